package api

import (
	"context"
	"errors"
	"net"
	"reflect"
	"time"

	"github.com/kajamq/kaja/broker/control"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// forwarder serves at any node what the active controller decides: by a call where it is this node, else by an Envelope.
// A client's answer leaves when the image of the node that it asked has got to the result.
type forwarder struct {
	active activeController
	inner  map[int16]server.Route // what this node does for others while it leads
}

// leastForward is the least time that a request is tried for, whatever timeout it names: the controller gives the answer
// that a timeout of 0 has.
const leastForward = time.Second

// againWait is the time between two tries while no controller is active.
const againWait = 20 * time.Millisecond

// entry is the row of an API that is forwarded.
func (f *forwarder) entry(key, min, max int16, h server.HandlerFunc) Entry {
	f.take(key, min, max, h)
	return Entry{Route: server.Route{Key: key, Min: min, Max: max, Handle: f.wrap(h)}, Controller: true}
}

// take has this node do, while it leads, what others forward under a key.
func (f *forwarder) take(key, min, max int16, h server.HandlerFunc) {
	f.inner[key] = server.Route{Key: key, Min: min, Max: max, Handle: h}
}

func (f *forwarder) wrap(here server.HandlerFunc) server.HandlerFunc {
	return func(ctx context.Context, req *server.Request, w server.Responder) {
		if f.active.Alone() {
			here(ctx, req, w)
			return
		}
		ctx, cancel := context.WithTimeout(ctx, forwardTime(req.Msg))
		defer cancel()
		for {
			resp, err := f.once(ctx, here, req)
			switch {
			case err == nil && !notController(resp):
				w.Reply(resp)
				return
			case err != nil && !errors.Is(err, kerr.NotController):
				f.fail(req, w, err)
				return
			}
			timer := time.NewTimer(againWait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				f.fail(req, w, &raftctl.Error{Code: kerr.RequestTimedOut, Message: "The active controller could not be reached."})
				return
			}
		}
	}
}

func (f *forwarder) once(ctx context.Context, here server.HandlerFunc, req *server.Request) (kmsg.Response, error) {
	if f.active.Leading() {
		return run(ctx, here, req)
	}
	p := req.Conn.Principal()
	resp, err := f.active.Forward(ctx, control.Forwarded{
		Msg: req.Msg, ClientID: req.ClientID, Principal: wire.AppendPrincipal(nil, p.Type, p.Name), Host: hostOf(req.Conn),
	})
	if errors.Is(err, control.ErrHere) {
		return run(ctx, here, req)
	}
	return resp, err
}

// hostOf is the client's IP address as an Envelope carries it.
func hostOf(conn *server.Conn) []byte {
	if at, ok := conn.Remote.(*net.TCPAddr); ok {
		if four := at.IP.To4(); four != nil {
			return four
		}
		if len(at.IP) == net.IPv6len {
			return at.IP
		}
	}
	return []byte{0, 0, 0, 0}
}

// forwardTime is how long a request may take.
func forwardTime(msg kmsg.Request) time.Duration {
	if t, ok := msg.(kmsg.TimeoutRequest); ok {
		return max(time.Duration(t.Timeout())*time.Millisecond, leastForward)
	}
	return alterTimeout
}

func (f *forwarder) fail(req *server.Request, w server.Responder, err error) {
	if resp := failed(req.Msg, err); resp != nil {
		w.Reply(resp)
		return
	}
	w.Drop(err)
}

// notController reports whether an answer says, anywhere, that its maker is not the active controller.
func notController(resp kmsg.Response) bool {
	return hasCode(reflect.ValueOf(resp).Elem(), kerr.NotController.Code)
}

func hasCode(v reflect.Value, code int16) bool {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			if f.Name == "ErrorCode" && v.Field(i).Int() == int64(code) || hasCode(v.Field(i), code) {
				return true
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Struct {
			return false
		}
		for i := range v.Len() {
			if hasCode(v.Index(i), code) {
				return true
			}
		}
	}
	return false
}
