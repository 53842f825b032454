package target

import (
	"net"
	"strconv"
)

// FreeAddr is an address on 127.0.0.1 that nothing listens on, for a server that is no Broker.
func FreeAddr() (string, error) {
	port, err := freePort()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}
