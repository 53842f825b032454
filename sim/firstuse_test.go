package sim

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// firstUseWithin bounds, in virtual time, how long anybody waits for internal topics and their coordinators.
const firstUseWithin = 100 * time.Millisecond

// firstUseTrips bounds how many packets on the way there wait for each other: two creations with their connections, commits and
// images, the coordinator's own replicas, and what the client says after that. The most of 360 clients at each of 10, 25, 50 and
// 100 ms was 22, so nothing but packets is waited for.
const firstUseTrips = 30

// The first groups and the first transactions of a cluster, all at once and at every node, meet no error that a client would have to
// try again for, and are served within 100 ms: the internal topics are there with the answer, and so is the coordinator that it
// names, whichever node that is. Nor do they where the other nodes hear late of what the controller has decided; that costs them the
// packets' delay, and no pause besides. Kafka answers 15, 14 and 16 for seconds.
func TestFirstUseShowsNoErrorOnThreeNodes(t *testing.T) {
	for _, late := range []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond} {
		t.Run(fmt.Sprint("late=", late), func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				c, nodes, cl := threeBrokers(t, seed)
				controller := c.Controller(time.Minute)
				for _, n := range nodes {
					if late > 0 && n != controller {
						c.Net.Slow(controller.Name(), n.Name(), late)
					}
				}
				var wg sync.WaitGroup
				for i := range 6 {
					u := firstUser{t, cl, 1 + i%3, fmt.Sprintf("%d-%d", seed, i), firstUseWithin + firstUseTrips*late}
					wg.Go(u.group)
					wg.Go(u.transaction)
				}
				wg.Wait()
			})
		})
	}
}

// firstUser is somebody who has just started, and asks one node first.
type firstUser struct {
	t    *testing.T
	cl   *kgo.Client
	node int
	name string
	most time.Duration // that it may take
}

func (u firstUser) ask(node int, req kmsg.Request) kmsg.Response {
	ctx, cancel := context.WithTimeout(u.t.Context(), time.Minute)
	defer cancel()
	resp, err := u.cl.Broker(node).Request(ctx, req)
	if err != nil {
		u.t.Errorf("%s at node %d: %T: %v", u.name, node, req, err)
		return req.ResponseKind()
	}
	return resp
}

func (u firstUser) none(what string, node int, code int16) {
	if code != 0 {
		u.t.Errorf("%s of %s at node %d: %v", what, u.name, node, kerr.ErrorForCode(code))
	}
}

// coordinator is the node that coordinates u's name.
func (u firstUser) coordinator(kind int8) int {
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorType, find.CoordinatorKeys = kind, []string{u.name}
	got := u.ask(u.node, find).(*kmsg.FindCoordinatorResponse)
	if len(got.Coordinators) != 1 {
		return u.node
	}
	u.none("FindCoordinator", u.node, got.Coordinators[0].ErrorCode)
	if got.Coordinators[0].ErrorCode != 0 {
		return u.node
	}
	return int(got.Coordinators[0].NodeID)
}

func (u firstUser) within(what string, began time.Time) {
	if took := time.Since(began); took > u.most {
		u.t.Errorf("the first %s of %s took %v", what, u.name, took)
	}
}

// group is what a consumer says until it has partitions.
func (u firstUser) group() {
	defer u.within("group", time.Now())
	at := u.coordinator(0)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = u.name, 10_000, 10_000, "consumer"
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{}}}
	joined := u.ask(at, join).(*kmsg.JoinGroupResponse)
	if joined.ErrorCode != kerr.MemberIDRequired.Code {
		u.t.Errorf("join of %s at node %d: %v", u.name, at, kerr.ErrorForCode(joined.ErrorCode))
	}
	join.MemberID = joined.MemberID
	joined = u.ask(at, join).(*kmsg.JoinGroupResponse)
	u.none("join", at, joined.ErrorCode)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.Generation, sync.MemberID, sync.ProtocolType, sync.Protocol = u.name, joined.Generation, join.MemberID, new("consumer"), new("range")
	u.none("sync", at, u.ask(at, sync).(*kmsg.SyncGroupResponse).ErrorCode)
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Groups = []kmsg.OffsetFetchRequestGroup{{Group: u.name, MemberEpoch: -1}}
	for _, g := range u.ask(at, fetch).(*kmsg.OffsetFetchResponse).Groups {
		u.none("offset fetch", at, g.ErrorCode)
	}
}

// transaction is what a transactional producer says before it writes, and the end of what it did not.
func (u firstUser) transaction() {
	defer u.within("transaction", time.Now())
	at := u.coordinator(1)
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = &u.name, 60_000, -1, -1
	got := u.ask(at, init).(*kmsg.InitProducerIDResponse)
	u.none("InitProducerId", at, got.ErrorCode)
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = u.name, got.ProducerID, got.ProducerEpoch, u.name
	u.none("AddOffsetsToTxn", at, u.ask(at, add).(*kmsg.AddOffsetsToTxnResponse).ErrorCode)
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = u.name, got.ProducerID, got.ProducerEpoch, true
	u.none("EndTxn", at, u.ask(at, end).(*kmsg.EndTxnResponse).ErrorCode)
}
