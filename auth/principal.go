package auth

// Principal is who acts: a type (User) and a name. Type is part of equality.
type Principal struct{ Type, Name string }

// Anonymous is the principal of an unauthenticated connection.
var Anonymous = Principal{Type: "User", Name: "ANONYMOUS"}

func (p Principal) String() string { return p.Type + ":" + p.Name }
