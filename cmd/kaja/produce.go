package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produceCommand is `kaja produce`.
type produceCommand struct {
	*adminCommands
	topic     string
	key       string
	hasKey    bool
	separator string
	headers   []string
	codec     string
	acks      string
	partition int32
	txnID     string
	verbose   bool
}

func (a *app) produceCommand() *cobra.Command {
	c := &produceCommand{adminCommands: &adminCommands{app: a}}
	cmd := &cobra.Command{
		Use: "produce TOPIC [VALUE...]", Short: "Write records: the values given, else the lines of standard input", Args: cobra.MinimumNArgs(1),
		Long: `Write records: the values given, else the lines of standard input.

With --json each line is a record as "kaja consume --json" writes it, with key, headers, timestamp and partition.`,
		Example: `  echo hello | kaja produce greetings
  kaja produce orders --key customer-1 --header source=cli "order 1"
  kaja consume orders --json -o start -e | kaja produce copy --json`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.completeTopics(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c.topic, c.hasKey = args[0], cmd.Flags().Changed("key")
			return c.run(args[1:])
		},
	}
	c.register(cmd)
	cmd.Flags().StringVarP(&c.key, "key", "k", "", "key of every record")
	cmd.Flags().StringVar(&c.separator, "key-separator", "", "what stands between key and value on a line")
	cmd.Flags().StringArrayVarP(&c.headers, "header", "H", nil, "a header of every record, `name=value`; repeatable")
	cmd.Flags().StringVarP(&c.codec, "compression-codec", "z", "none", "none, gzip, snappy, lz4 or zstd")
	cmd.Flags().StringVar(&c.acks, "acks", "all", "all, 1 or 0")
	cmd.Flags().Int32VarP(&c.partition, "partition", "p", -1, "partition of every record; -1 chooses by the key")
	cmd.Flags().StringVar(&c.txnID, "transactional-id", "", "write all of it in one transaction of this `id`")
	cmd.Flags().BoolVarP(&c.verbose, "verbose", "v", false, "print partition and offset of every record")
	return cmd
}

var codecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{
	{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
}

// options turns the flags into options of the client; a mistake is one of the command line.
func (c *produceCommand) options() ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(c.partitioner())}
	known := false
	for _, k := range codecs {
		if k.name == c.codec {
			opts, known = append(opts, kgo.ProducerBatchCompression(k.codec)), true
		}
	}
	if !known {
		return nil, fmt.Errorf("--compression-codec %q: want none, gzip, snappy, lz4 or zstd", c.codec)
	}
	switch c.acks {
	case "all", "-1":
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, fmt.Errorf("--acks %q: want all, 1 or 0", c.acks)
	}
	if c.txnID != "" {
		if c.acks != "all" && c.acks != "-1" {
			return nil, errors.New("--transactional-id wants --acks all")
		}
		opts = append(opts, kgo.TransactionalID(c.txnID))
	}
	return opts, nil
}

// partitioner sends a record to the partition that it names, others as Kafka's clients do.
func (c *produceCommand) partitioner() kgo.Partitioner {
	if c.partition >= 0 {
		return kgo.ManualPartitioner()
	}
	if c.json {
		return namedPartition{kgo.StickyKeyPartitioner(nil)}
	}
	return kgo.StickyKeyPartitioner(nil)
}

// namedPartition honours a record's own partition where it has one.
type namedPartition struct{ others kgo.Partitioner }

func (n namedPartition) ForTopic(topic string) kgo.TopicPartitioner {
	return namedTopicPartition{n.others.ForTopic(topic)}
}

type namedTopicPartition struct{ kgo.TopicPartitioner }

func (n namedTopicPartition) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || n.TopicPartitioner.RequiresConsistency(r)
}

func (n namedTopicPartition) Partition(r *kgo.Record, partitions int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return n.TopicPartitioner.Partition(r, partitions)
}

// record makes the record of one line or value.
func (c *produceCommand) record(line []byte) (*kgo.Record, error) {
	if c.json {
		r, err := parseJSONRecord(line)
		if err != nil {
			return nil, err
		}
		r.Topic = c.topic
		return c.withFlags(r), nil
	}
	r := &kgo.Record{Topic: c.topic, Value: line, Partition: -1}
	if c.separator != "" {
		key, value, ok := bytes.Cut(line, []byte(c.separator))
		if !ok {
			return nil, fmt.Errorf("no key separator %q in %q", c.separator, line)
		}
		r.Key, r.Value = key, value
	}
	return c.withFlags(r), nil
}

// withFlags adds what the command line says of every record.
func (c *produceCommand) withFlags(r *kgo.Record) *kgo.Record {
	if c.hasKey {
		r.Key = []byte(c.key)
	}
	if c.partition >= 0 {
		r.Partition = c.partition
	}
	for _, h := range c.headers {
		name, value, _ := strings.Cut(h, "=")
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return r
}

func (c *produceCommand) run(values []string) error {
	opts, err := c.options()
	if err != nil {
		return err
	}
	for _, h := range c.headers {
		if !strings.Contains(h, "=") {
			return fmt.Errorf("--header %q is not name=value", h)
		}
	}
	next := lines(c.stdin)
	if len(values) > 0 {
		next = given(values)
	}
	return c.withClient(context.Background(), func(ctx context.Context, client *kgo.Client) error {
		s := &sending{produceCommand: c, client: client, progress: newTally(c.stderr, c.terminal, "records produced")}
		if c.txnID != "" {
			if err := client.BeginTransaction(); err != nil {
				return fmt.Errorf("begin a transaction: %w", err)
			}
		}
		err := s.all(ctx, next)
		if c.txnID != "" {
			err = s.end(ctx, err)
		}
		s.progress.clear()
		_, _ = fmt.Fprintf(c.stderr, "Produced %s to %s.\n", count(s.acked, "record"), c.topic)
		return err
	}, opts...)
}

// lines reads what stands between line ends; a last line may lack its own.
func lines(r io.Reader) func() ([]byte, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	return func() ([]byte, error) {
		line, err := in.ReadBytes('\n')
		if err != nil && len(line) == 0 {
			return nil, err
		}
		return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
	}
}

func given(values []string) func() ([]byte, error) {
	return func() ([]byte, error) {
		if len(values) == 0 {
			return nil, io.EOF
		}
		v := values[0]
		values = values[1:]
		return []byte(v), nil
	}
}

// sending is one run of the command. The client calls back from a goroutine of its own.
type sending struct {
	*produceCommand
	client   *kgo.Client
	progress *tally // of the sender

	mu     sync.Mutex
	acked  int
	failed error // the first one
}

// all sends every record and waits for the answers.
func (s *sending) all(ctx context.Context, next func() ([]byte, error)) error {
	for n := 1; s.failure() == nil && ctx.Err() == nil; n++ {
		line, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errors.Join(fmt.Errorf("read standard input: %w", err), s.flush(ctx))
		}
		r, err := s.record(line)
		if err != nil {
			return errors.Join(fmt.Errorf("record %d: %w", n, err), s.flush(ctx))
		}
		s.client.Produce(ctx, r, s.done)
		s.progress.add(1, len(r.Key)+len(r.Value))
	}
	return s.flush(ctx)
}

func (s *sending) flush(ctx context.Context) error {
	if err := s.client.Flush(ctx); err != nil {
		return fmt.Errorf("produce to %s: %w", s.topic, err)
	}
	return s.failure()
}

func (s *sending) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *sending) done(r *kgo.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.acked++
		if s.verbose {
			_, _ = fmt.Fprintf(s.stdout, "%s-%d@%d\n", r.Topic, r.Partition, r.Offset)
		}
	case s.failed == nil:
		s.failed = refused("produce to "+s.topic, err, "")
		if errors.Is(err, kerr.MessageTooLarge) {
			s.failed = &advised{s.failed, "max.message.bytes of the topic is the bound: \"kaja topic alter\" raises it."}
		}
	}
}

// end commits the transaction, or aborts it when a record failed.
func (s *sending) end(ctx context.Context, failed error) error {
	how := kgo.TryCommit
	if failed != nil {
		how = kgo.TryAbort
	}
	err := s.client.EndTransaction(context.WithoutCancel(ctx), how)
	if err != nil {
		err = fmt.Errorf("end the transaction of %s: %w", s.txnID, err)
	}
	if how == kgo.TryAbort || err != nil {
		s.acked = 0
	}
	return errors.Join(failed, err)
}
