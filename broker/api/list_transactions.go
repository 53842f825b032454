package api

import (
	"context"
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/txn"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
)

// listTransactions answers ListTransactions (key 66), versions 0-2, for the ids that are coordinated here. v1 (KIP-994)
// running for longer than; v2 (KIP-1152) a pattern in RE2's syntax that the whole id has to match. A state filter that
// is none is said to be unknown. Errors: 14; 128 for a pattern that does not parse.
type listTransactions struct{ txns *txn.Service }

const (
	listDurationFrom = 1
	listPatternFrom  = 2
)

func (h listTransactions) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.ListTransactionsRequest)
	resp := msg.ResponseKind().(*kmsg.ListTransactionsResponse)
	f := state.Filter{LongerMs: -1}
	for _, id := range msg.ProducerIDFilters {
		f.Producers = append(f.Producers, wire.ProducerID(id))
	}
	for _, name := range msg.StateFilters {
		if s, ok := state.ParseStatus(name); ok {
			f.Statuses = append(f.Statuses, s)
		} else {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, name)
		}
	}
	if msg.Version >= listDurationFrom {
		f.LongerMs = msg.DurationFilterMillis
	}
	if msg.Version >= listPatternFrom && msg.TransactionalIDPattern != nil && *msg.TransactionalIDPattern != "" {
		re, err := regexp.Compile(`\A(?:` + *msg.TransactionalIDPattern + `)\z`)
		if err != nil {
			resp.ErrorCode = kerr.InvalidRegularExpression.Code
			w.Reply(resp)
			return
		}
		f.Pattern = re
	}
	if len(f.Statuses) == 0 && len(msg.StateFilters) > 0 {
		w.Reply(resp) // nothing can have a state that does not exist
		return
	}
	h.txns.List(f, func(found []txn.Listed, err *kerr.Error) {
		resp.ErrorCode = code(err)
		for _, t := range found {
			s := kmsg.NewListTransactionsResponseTransactionState()
			s.TransactionalID, s.ProducerID, s.TransactionState = t.ID, int64(t.ProducerID), t.Status.String()
			resp.TransactionStates = append(resp.TransactionStates, s)
		}
		w.Reply(resp)
	})
}
