// Command franz is franz-go as a program of the client matrix. It is built twice: with the current release, and by go.franz-old.mod with
// an old one.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kajamq/kaja/compat-tests/clients/internal/scenario"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() { scenario.Main(franz{}) }

type franz struct{}

const perCodec = 100

func codecs() map[string]kgo.CompressionCodec {
	return map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
}

func client(r *scenario.Run, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(r.Addresses...), kgo.ClientID(r.Name), kgo.MetadataMinAge(100 * time.Millisecond)}, opts...)...)
}

func admin(r *scenario.Run, do func(ctx context.Context, a *kadm.Client) error) error {
	c, err := client(r)
	if err != nil {
		return err
	}
	defer c.Close()
	return do(context.Background(), kadm.NewClient(c))
}

// Admin makes the topic.
func (franz) Admin(r *scenario.Run) error {
	return admin(r, func(ctx context.Context, a *kadm.Client) error {
		made, err := a.CreateTopics(ctx, 2, int16(r.Replicas), nil, r.Name)
		if err == nil {
			err = made[r.Name].Err
		}
		if err != nil {
			return err
		}
		r.Check("topic is listed", scenario.Until(func() bool { l, err := a.ListTopics(ctx); return err == nil && l.Has(r.Name) }), nil)
		described := func() bool {
			configs, err := a.DescribeTopicConfigs(ctx, r.Name)
			return err == nil && len(configs) == 1 && len(configs[0].Configs) > 20
		}
		r.Check("configs are described", scenario.Until(described), nil)
		return nil
	})
}

func produce(c *kgo.Client, topic string, values []string, headers ...kgo.RecordHeader) error {
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, &kgo.Record{Topic: topic, Key: []byte(v), Value: []byte(v), Headers: headers})
	}
	return c.ProduceSync(context.Background(), records...).FirstErr()
}

// Codecs sends and reads.
func (franz) Codecs(r *scenario.Run) error {
	want := 0
	for name, codec := range codecs() {
		c, err := client(r, kgo.ProducerBatchCompression(codec), kgo.DisableIdempotentWrite())
		if err != nil {
			return err
		}
		var values []string
		for i := range perCodec {
			values = append(values, fmt.Sprint(name, i))
		}
		err = produce(c, r.Name, values, kgo.RecordHeader{Key: "h", Value: []byte("v")})
		c.Close()
		r.Check("produced with "+name, err == nil, err)
		want += perCodec
	}
	c, err := client(r, kgo.ConsumeTopics(r.Name), kgo.ConsumerGroup(r.Name+"-g"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		return err
	}
	defer c.Close()
	seen, good := map[string]bool{}, true
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for len(seen) < want && ctx.Err() == nil {
		c.PollFetches(ctx).EachRecord(func(rec *kgo.Record) {
			seen[string(rec.Key)] = true
			good = good && string(rec.Key) == string(rec.Value) && len(rec.Headers) == 1
		})
	}
	r.Check("group reads all, with keys, values and headers", good && len(seen) == want, len(seen))
	return c.CommitUncommittedOffsets(ctx)
}

// Sender is idempotent by default.
func (franz) Sender(r *scenario.Run, topic string) (send func(values []string) error, end func() error, err error) {
	c, err := client(r)
	if err != nil {
		return nil, nil, err
	}
	return func(values []string) error { return produce(c, topic, values) }, func() error { c.Close(); return nil }, nil
}

// Transactions read, process and write: kgo commits the offsets of what its session has read itself. The program sends that first.
func (franz) Transactions(r *scenario.Run) (scenario.Transactions, error) {
	feed, err := client(r)
	if err != nil {
		return nil, err
	}
	t := &transactions{r: r, feed: feed}
	return t, t.renew()
}

type transactions struct {
	r    *scenario.Run
	feed *kgo.Client
	fed  int64 // records that are there to be read
	s    *kgo.GroupTransactSession
}

// renew replaces the session. Its producer ends the transaction that is open before the group's offsets are asked for, which wait for that.
func (t *transactions) renew() (err error) {
	if t.s != nil {
		t.s.Close()
	}
	t.s, err = kgo.NewGroupTransactSession(kgo.SeedBrokers(t.r.Addresses...), kgo.ClientID(t.r.Name), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.TransactionalID(t.r.Name+"-id"), kgo.TransactionTimeout(30*time.Second), kgo.ConsumeTopics(t.r.Name+"-in"), kgo.ConsumerGroup(t.r.Name+"-txn-g"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, _, err = t.s.Client().ProducerID(ctx)
	return err
}

// Attempt makes one transaction.
func (t *transactions) Attempt(values []string, offset int64, commit bool) error {
	err := t.attempt(values, offset, commit)
	if err != nil {
		for r := t.renew(); r != nil; r = t.renew() {
			fmt.Println("again", r)
		}
	}
	return err
}

func (t *transactions) attempt(values []string, offset int64, commit bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for t.fed < offset {
		sent, err := t.feed.ProduceSync(ctx, &kgo.Record{Topic: t.r.Name + "-in", Value: []byte(values[0])}).First()
		if err != nil {
			return fmt.Errorf("feed: %w", err)
		}
		t.fed = sent.Offset + 1
	}
	for read := int64(0); read < offset; {
		fetches := t.s.PollRecords(ctx, 1)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read %d of %d: %w", read, offset, err)
		}
		fetches.EachRecord(func(rec *kgo.Record) { read = rec.Offset + 1 })
	}
	if err := t.s.Begin(); err != nil {
		return err
	}
	if err := produce(t.s.Client(), t.r.Name+"-txn", values); err != nil {
		return err
	}
	committed, err := t.s.End(ctx, kgo.TransactionEndTry(commit))
	if err == nil && committed != commit {
		err = errors.New("aborted instead: the group has changed")
	}
	return err
}

// Close ends the session.
func (t *transactions) Close() error {
	t.s.Close()
	t.feed.Close()
	return nil
}

// Member reads in a group.
func (franz) Member(r *scenario.Run, mode string, member int, read func(string), stop <-chan struct{}) error {
	opts := []kgo.Opt{kgo.ConsumeTopics(r.Name + "-group"), kgo.ConsumerGroup(r.Name + "-" + mode), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond), kgo.AutoCommitInterval(200 * time.Millisecond)}
	switch mode {
	case "cooperative":
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case "static":
		opts = append(opts, kgo.InstanceID(fmt.Sprint("i", member)))
		fallthrough
	default:
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	}
	c, err := client(r, opts...)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { <-stop; cancel() }()
	for ctx.Err() == nil {
		c.PollFetches(ctx).EachRecord(func(rec *kgo.Record) { read(string(rec.Value)) })
	}
	return c.CommitUncommittedOffsets(context.Background())
}

// End deletes.
func (franz) End(r *scenario.Run) error {
	return admin(r, func(ctx context.Context, a *kadm.Client) error {
		groups, err := a.DescribeGroups(ctx, r.Name+"-g")
		r.Check("group is described", err == nil && groups[r.Name+"-g"].State == "Empty", err)
		lag, err := a.Lag(ctx, r.Name+"-g")
		r.Check("group has no lag", err == nil && lag[r.Name+"-g"].Lag.Total() == 0, err)
		if _, err := a.DeleteGroups(ctx, r.Name+"-g"); err != nil {
			return err
		}
		if _, err := a.DeleteTopics(ctx, r.Name); err != nil {
			return err
		}
		r.Check("topic is deleted", scenario.Until(func() bool { l, err := a.ListTopics(ctx); return err == nil && !l.Has(r.Name) }), nil)
		return nil
	})
}
