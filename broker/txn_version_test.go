package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// finalise sets the level of transaction.version.
func (c *client) finalise(level int16) {
	c.t.Helper()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.Version, req.TimeoutMillis = 1, 20_000
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType = image.FeatureTransactionVersion, level, 2
	if level == 2 {
		u.UpgradeType = 1
	}
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	if err := kerr.ErrorForCode(c.ask(req).(*kmsg.UpdateFeaturesResponse).ErrorCode); err != nil {
		c.t.Fatal(err)
	}
}

// finalised gives the level as clients are told it; 0: it is not finalised.
func (c *client) finalised() int16 {
	c.t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 4, "test", "1"
	for _, f := range c.ask(req).(*kmsg.ApiVersionsResponse).FinalizedFeatures {
		if f.Name == image.FeatureTransactionVersion {
			return f.MaxVersionLevel
		}
	}
	return 0
}

// A level of transaction.version that was finalised is that of the cluster until it is changed again, also after a clean
// stop and after a crash, and "none" is a level like the others: nothing puts the default back. Transactions of version 1
// work at each of them, and their records have the version of the level.
func TestTransactionVersionStays(t *testing.T) {
	const settle = 60 * time.Second
	set := map[string]string{"transaction.state.log.num.partitions": "1", "kaja.fsync": "always"}
	for _, level := range []int16{0, 1, 2} {
		t.Run(fmt.Sprint(level), func(t *testing.T) {
			mem := memfs.New(time.Now)
			n := start(t, mem, set)
			c := n.dial()
			if got := c.finalised(); got != 2 {
				t.Fatalf("a new cluster is at %d", got)
			}
			c.finalise(level)
			if err := n.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			again := start(t, mem, set)
			after := again.dial()
			if got := after.finalised(); got != level {
				t.Errorf("after a clean stop: %d, want %d", got, level)
			}
			crashed := start(t, mem.Crash(memfs.Lose, 1), set)
			c = crashed.dial()
			if got := c.finalised(); got != level || int16(crashed.transactionVersion()) != level {
				t.Errorf("after a crash: %d, for the coordinator %d, want %d", got, crashed.transactionVersion(), level)
			}

			create := kmsg.NewPtrCreateTopicsRequest()
			create.Version, create.TimeoutMillis = 7, 20_000
			create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 1, ReplicationFactor: 1}}
			c.ask(create)
			find := kmsg.NewPtrFindCoordinatorRequest()
			find.Version, find.CoordinatorType, find.CoordinatorKey = 3, 1, "tx"
			c.ask(find)
			id, epoch := initTxn(t, c, "tx")
			add := kmsg.NewPtrAddPartitionsToTxnRequest()
			add.Version, add.TransactionalID, add.ProducerID, add.ProducerEpoch = 3, "tx", int64(id), int16(epoch)
			add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{0}}}
			if err := kerr.ErrorForCode(c.ask(add).(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode); err != nil {
				t.Fatal(err)
			}
			if err := kerr.ErrorForCode(c.ask(txnProduce(11, "tx", id, epoch, 0, 0)).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode); err != nil {
				t.Fatal(err)
			}
			end := kmsg.NewPtrEndTxnRequest()
			end.Version, end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = 4, "tx", int64(id), int16(epoch), true
			for deadline := time.Now().Add(settle); ; { // until the markers are there, which is answered 51
				err := kerr.ErrorForCode(c.ask(end).(*kmsg.EndTxnResponse).ErrorCode)
				if p, _ := crashed.replicas.Load().ByName("t", 0); err == nil && p.Offsets().LSO == 2 {
					break
				}
				if err != nil && !errors.Is(err, kerr.ConcurrentTransactions) || time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
			want := int16(0)
			if level > 0 {
				want = 1
			}
			for i, got := range stateRecordVersions(t, crashed) {
				if got != want {
					t.Errorf("record %d of __transaction_state has version %d, want %d", i, got, want)
				}
			}
			c.finalise(2)
			if got := c.finalised(); got != 2 {
				t.Errorf("finalised again: %d", got)
			}
		})
	}
}

// stateRecordVersions gives the version of the value of every record of __transaction_state.
func stateRecordVersions(t *testing.T, n *node) []int16 {
	t.Helper()
	p, ok := n.replicas.Load().ByName(image.TxnStateTopic, 0)
	if !ok {
		t.Fatal("no transaction log")
	}
	var versions valueVersions
	if _, err := p.Log().Load(t.Context(), &versions); err != nil || len(versions) == 0 {
		t.Fatalf("%d records of the transaction log, %v", len(versions), err)
	}
	return versions
}

// valueVersions collects the version that a record's value begins with.
type valueVersions []int16

func (v *valueVersions) Replay(r coord.Record, _ coord.Pos) error {
	*v = append(*v, int16(binary.BigEndian.Uint16(r.Value)))
	return nil
}

func (v *valueVersions) ReplayMarker(wire.ProducerID, wire.ProducerEpoch, bool) error { return nil }
