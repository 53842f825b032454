package target

import "testing"

// What arrived at other listeners, and other metrics, do not count.
func TestSeen(t *testing.T) {
	s := Seen{}
	s.add("# HELP kaja_server_requests_total x\n" +
		"kaja_server_requests_total{api=\"Produce\",listener=\"CLIENTS\",version=\"9\"} 3\n" +
		"kaja_server_requests_total{api=\"Produce\",listener=\"CLIENTS\",version=\"11\"} 1\n" +
		"kaja_server_requests_total{api=\"Fetch\",listener=\"CLIENTS\",version=\"4\"} 1\n" +
		"kaja_server_requests_total{api=\"Fetch\",listener=\"PLAINTEXT\",version=\"18\"} 1\n")
	s.add("kaja_server_requests_total{api=\"Produce\",listener=\"CLIENTS\",version=\"7\"} 1\n")
	if got, want := s.String(), "Fetch 4, Produce 7+9+11"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
