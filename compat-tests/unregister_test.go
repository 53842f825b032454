package compattests_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A broker that lives can be forgotten, once: it is not listed any more, and the second time it is unknown.
func TestUnregisterOfALiveBroker(t *testing.T) {
	nodes := ownNodes(t, 3)
	c := dial(t, nodes[0])
	ids := func() []int32 {
		var ids []int32
		for _, b := range do[*kmsg.DescribeClusterResponse](t, c, kmsg.NewPtrDescribeClusterRequest()).Brokers {
			ids = append(ids, b.NodeID)
		}
		slices.Sort(ids)
		return ids
	}
	all := ids()
	if len(all) != 3 {
		t.Fatalf("brokers %v, want three", all)
	}
	unregister := func(what string, id int32, code int16, message string) {
		t.Helper()
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = id
		resp := do[*kmsg.UnregisterBrokerResponse](t, c, req)
		got := ""
		if resp.ErrorMessage != nil {
			got = *resp.ErrorMessage
		}
		if resp.ErrorCode != code || got != message {
			t.Errorf("%s: code %d, message %q, want %d, %q", what, resp.ErrorCode, got, code, message)
		}
	}
	unknown := kerr.BrokerIDNotRegistered.Code
	unregister("a broker that never was", 99, unknown, "Broker ID 99 is not currently registered")
	unregister("a broker that lives", all[2], 0, "")
	err := poll.Until(t.Context(), 30*time.Second, "the broker is forgotten", func() (bool, error) {
		got := ids()
		return slices.Equal(got, all[:2]), fmt.Errorf("brokers %v", got)
	})
	if err != nil {
		t.Fatal(err)
	}
	unregister("the same again", all[2], unknown, fmt.Sprintf("Broker ID %d is not currently registered", all[2]))
}
