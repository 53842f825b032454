package api

import (
	"context"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
)

// code is the number of a coordinator's answer; nil is 0.
func code(err *kerr.Error) int16 {
	if err == nil {
		return 0
	}
	return err.Code
}

// fencedCode is code for requests whose clients know PRODUCER_FENCED only from version since on.
func fencedCode(err *kerr.Error, version, since int16) int16 {
	if err == kerr.ProducerFenced && version < since {
		return kerr.InvalidProducerEpoch.Code
	}
	return code(err)
}

// txnClient says who sent a request, as `kaja txn` shows it.
func txnClient(req *server.Request) state.Client {
	c := groupClient(req)
	return state.Client{ID: c.ID, Host: c.Host}
}

// txnCoordinator is what handlers need of the coordinator of a transactional id; txn.Service is one. Callbacks may run
// before the call returns.
type txnCoordinator interface {
	AddPartitions(r state.AddRequest, done func(*kerr.Error))
	Verify(r state.AddRequest, done func(state.VerifyReply))
	Completed(id string) (done <-chan struct{}, forget func())
}

// TxnTopic creates __transaction_state as the configuration asks for.
type TxnTopic struct {
	images  imageSource
	creator topicCreator
	config  *config.Config
}

// NewTxnTopic makes one; the arguments are kept.
func NewTxnTopic(images imageSource, creator topicCreator, c *config.Config) *TxnTopic {
	return &TxnTopic{images: images, creator: creator, config: c}
}

// request is the topic with the settings of the transaction coordinator (Kafka: TransactionStateManager's
// transactionTopicConfigs). Without an explicit replication factor it gets what the usable brokers allow.
func (o *TxnTopic) request() raftctl.NewTopic {
	value := func(name, v string) raftctl.TopicConfig { return raftctl.TopicConfig{Name: name, Value: &v} }
	return raftctl.NewTopic{
		Name:              image.TxnStateTopic,
		Partitions:        int32(o.config.Int("transaction.state.log.num.partitions")),
		ReplicationFactor: int16(o.config.Int("transaction.state.log.replication.factor")),
		AtMost:            !o.config.IsSet("transaction.state.log.replication.factor"),
		Configs: []raftctl.TopicConfig{
			value("unclean.leader.election.enable", "false"), value("compression.type", "uncompressed"), value("cleanup.policy", "compact"),
			value("min.insync.replicas", strconv.Itoa(o.config.Int("transaction.state.log.min.isr"))),
			value("segment.bytes", strconv.Itoa(o.config.Int("transaction.state.log.segment.bytes"))),
		},
	}
}

// Ensure returns once the published image has the topic, whoever created it.
func (o *TxnTopic) Ensure(ctx context.Context) error {
	return ensureTopic(ctx, o.images, o.creator, o.request())
}

// enroller makes sure that the coordinator of a transaction knows of the partitions that a request writes to, before
// they are written to (KIP-890).
type enroller struct {
	txns   txnCoordinator
	images imageSource // the coordinator's view of which partitions there are
	// retry and retryMax are add.partitions.to.txn.retry.backoff.ms and .max.ms.
	retry, retryMax time.Duration
	// verifies is transaction.partition.verification.enable; a client of version 2 is enrolled in any case.
	verifies func() bool
	// elsewhere asks the coordinator of a transaction on another node; nil without other nodes.
	elsewhere *remoteTxns
}

// enrolled is what the coordinator says: an error for all partitions, or those that do not belong to the transaction.
type enrolled struct {
	err     *kerr.Error
	missing []wire.TopicPartition
}

// enroll asks and waits: the connection's next request does not start before the answer, so that nothing of the same
// producer can overtake what waits here. A v2 client's partitions are added; while its last transaction is being
// completed, that is tried again for a while: as soon as a coordinator here has completed it, else after the back-off.
// Otherwise they are only looked up.
//
// guard runs before each question and names the partitions to ask for: a guard that was given before the last
// transaction's marker came is gone with it. Without partitions nothing is asked.
func (e *enroller) enroll(ctx context.Context, r state.AddRequest, guard func() []wire.TopicPartition) enrolled {
	until := time.Now().Add(e.retryMax)
	var completed <-chan struct{} // nil before the first refusal
	for {
		if r.Partitions = guard(); len(r.Partitions) == 0 || planted.On(planted.VerificationSkipped) {
			return enrolled{}
		}
		to, remote := e.elsewhere.coordinator(r.ID)
		if !r.Client.Bumps() {
			if remote {
				return e.elsewhere.enroll(ctx, to, r)
			}
			return e.ask(ctx, func(done func(enrolled)) {
				e.txns.Verify(r, func(v state.VerifyReply) { done(enrolled{err: v.Err, missing: v.Missing}) })
			})
		}
		var got enrolled
		if remote {
			got = e.elsewhere.enroll(ctx, to, r)
		} else if !hasAll(e.images.Image(), r.Partitions) {
			got = enrolled{err: kerr.CoordinatorNotAvailable} // replicas are open before the image has them
		} else {
			got = e.ask(ctx, func(done func(enrolled)) { e.txns.AddPartitions(r, func(err *kerr.Error) { done(enrolled{err: err}) }) })
		}
		if got.err != kerr.ConcurrentTransactions || !time.Now().Before(until) {
			return got
		}
		again := time.After(e.retry)
		if completed == nil {
			again = time.After(0) // it may have been completed before anybody listened
		}
		select {
		case <-completed:
		case <-again:
		case <-ctx.Done():
			return got
		}
		next, forget := e.txns.Completed(r.ID)
		defer forget() // a few at most: the loop is bounded by retryMax
		completed = next
	}
}

func (e *enroller) ask(ctx context.Context, post func(done func(enrolled))) enrolled {
	answer := make(chan enrolled, 1)
	post(func(got enrolled) { answer <- got })
	select {
	case got := <-answer:
		return got
	case <-ctx.Done():
		return enrolled{err: kerr.NotCoordinator} // nobody is left to be told
	}
}

// newEnroller takes the settings of the verification from the configuration, and from the metadata what was altered.
func newEnroller(txns txnCoordinator, c *config.Config, images imageSource, node wire.BrokerID, ask NodeCaller) *enroller {
	return &enroller{
		txns: txns, images: images, retry: c.Duration("add.partitions.to.txn.retry.backoff.ms"),
		retryMax:  c.Duration("add.partitions.to.txn.retry.backoff.max.ms"),
		elsewhere: newRemoteTxns(images, node, ask),
		verifies: func() bool {
			return config.Overlay(c, dynamic(images.Image(), node)).Bool("transaction.partition.verification.enable")
		},
	}
}
