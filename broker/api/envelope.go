package api

import (
	"context"
	"errors"
	"net"
	"slices"

	"github.com/kajamq/kaja/auth"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// envelope answers Envelope (key 58), version 0, of nodes that have proven who they are: a client's request that one node
// brings to the active controller (KIP-590). The answer carries, in a tagged field of kaja's own, the metadata offset that
// this node's image had reached when it was made. Errors: 35 for a version of the inner request that is not served, 41
// where this node is not the active controller, 42 for requests that are not forwarded, 97.
type envelope struct {
	inner   map[int16]server.Route // what may be forwarded
	active  activeController
	images  imageSource
	refused func(resp kmsg.Response) bool // by a controller that is not active
}

func (h *envelope) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.EnvelopeRequest)
	resp := msg.ResponseKind().(*kmsg.EnvelopeResponse)
	inner, route, code := h.open(req, msg)
	switch {
	case code != nil:
		resp.ErrorCode = code.Code
		w.Reply(resp)
		return
	case !h.active.Leading():
		resp.ErrorCode = kerr.NotController.Code
		w.Reply(resp)
		return
	}
	answer, err := run(ctx, route.Handle, inner)
	switch {
	case err != nil:
		resp.ErrorCode = errorCode(err)
	case h.refused(answer):
		resp.ErrorCode = kerr.NotController.Code
	default:
		answer.SetVersion(inner.Version)
		data := wire.AppendResponseHeader(nil, inner.Key, inner.Version, inner.CorrelationID)
		resp.ResponseData = answer.AppendTo(data)
		wire.SetOffsetTag(&resp.UnknownTags, h.images.Image().Offset())
	}
	w.Reply(resp)
}

// open reads the request inside.
func (h *envelope) open(req *server.Request, msg *kmsg.EnvelopeRequest) (*server.Request, server.Route, *kerr.Error) {
	kind, name, err := wire.ParsePrincipal(msg.RequestPrincipal)
	if err != nil {
		return nil, server.Route{}, kerr.PrincipalDeserializationFailure
	}
	head, body, err := wire.ParseHeader(msg.RequestData)
	if err != nil {
		return nil, server.Route{}, kerr.InvalidRequest
	}
	route, ok := h.inner[head.Key]
	switch {
	case !ok:
		return nil, server.Route{}, kerr.InvalidRequest
	case head.Version < route.Min || head.Version > route.Max:
		return nil, server.Route{}, kerr.UnsupportedVersion
	}
	if _, err := wire.DecodeCost(head.Key, head.Version, body); err != nil {
		return nil, server.Route{}, kerr.InvalidRequest
	}
	in := kmsg.RequestForKey(head.Key)
	in.SetVersion(head.Version)
	if err := in.ReadFrom(body); err != nil {
		return nil, server.Route{}, kerr.InvalidRequest
	}
	conn := server.NewConn(req.Conn.ID, req.Conn.Listener, req.Conn.Local, &net.TCPAddr{IP: slices.Clone(msg.ClientHostAddress)})
	conn.SetPrincipal(auth.Principal{Type: kind, Name: name})
	return &server.Request{
		Key: head.Key, Version: head.Version, CorrelationID: head.CorrelationID, ClientID: head.Client(), Msg: in, Conn: conn, Received: req.Received,
	}, route, nil
}

var errNoAnswer = errors.New("the request has no answer that can be passed on")

// run runs a handler and gives its answer.
func run(ctx context.Context, handle server.HandlerFunc, req *server.Request) (kmsg.Response, error) {
	k := keeper{done: make(chan struct{})}
	handle(ctx, req, &k)
	select {
	case <-k.done:
		return k.resp, k.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// keeper is a Responder that keeps the answer.
type keeper struct {
	resp kmsg.Response
	err  error
	done chan struct{} // closed when resp or err is set
}

// Reply implements server.Responder.
func (k *keeper) Reply(resp kmsg.Response) {
	k.resp = resp
	close(k.done)
}

// ReplyFunc implements server.Responder.
func (k *keeper) ReplyFunc(func() []wire.Segment) { k.Drop(errNoAnswer) }

// Drop implements server.Responder.
func (k *keeper) Drop(err error) {
	if err == nil {
		err = errNoAnswer
	}
	k.err = err
	close(k.done)
}
