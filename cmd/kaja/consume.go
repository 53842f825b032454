package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeCommand is `kaja consume`.
type consumeCommand struct {
	*adminCommands
	offset     string
	group      string
	format     string
	number     int
	exitAtEnd  bool
	timeout    time.Duration
	partitions []int32
	committed  bool
}

func (a *app) consumeCommand() *cobra.Command {
	c := &consumeCommand{adminCommands: &adminCommands{app: a}}
	cmd := &cobra.Command{
		Use: "consume TOPIC...", Short: "Read records until Ctrl-C, or until the end with -e", Args: cobra.MinimumNArgs(1),
		Long: `Read records until Ctrl-C, or until the end with -e.

--format takes %t topic, %p partition, %o offset, %k key, %v value, %d timestamp, %h{%k=%v } headers, %T %K %V lengths, and
\n \t. With --json each record is an object on a line of its own.`,
		Example: `  kaja consume greetings -o start -e
  kaja consume orders -o -10 -f '%p@%o %k: %v\n'
  kaja consume orders --group billing -o start`,
		ValidArgsFunction: c.completeTopics,
		RunE:              func(_ *cobra.Command, topics []string) error { return c.run(topics) },
	}
	c.register(cmd)
	cmd.Flags().StringVarP(&c.offset, "offset", "o", "end", "where to begin: start, end, an offset, -N for the last N of each partition, @time or @-1h")
	cmd.Flags().StringVarP(&c.group, "group", "g", "", "read as a member of this `group`, and commit; --offset counts where it has committed nothing")
	cmd.Flags().StringVarP(&c.format, "format", "f", `%v\n`, "how to print a record")
	cmd.Flags().IntVarP(&c.number, "number", "n", 0, "end after so many records")
	cmd.Flags().BoolVarP(&c.exitAtEnd, "exit-at-end", "e", false, "end where the partitions ended when the command began")
	cmd.Flags().DurationVar(&c.timeout, "timeout", 0, "end when nothing came for so long")
	cmd.Flags().Int32SliceVarP(&c.partitions, "partition", "p", nil, "only these partitions")
	cmd.Flags().BoolVar(&c.committed, "read-committed", false, "without records of open and aborted transactions")
	_ = cmd.RegisterFlagCompletionFunc("group", c.completeGroups)
	return cmd
}

// printer writes one record.
type printer func(out []byte, r *kgo.Record) ([]byte, error)

func (c *consumeCommand) printer() (printer, error) {
	if c.json {
		return appendJSONRecord, nil
	}
	f, err := kgo.NewRecordFormatter(c.format)
	if err != nil {
		return nil, fmt.Errorf("--format %q: %w", c.format, err)
	}
	return func(out []byte, r *kgo.Record) ([]byte, error) { return f.AppendRecord(out, r), nil }, nil
}

func (c *consumeCommand) run(topics []string) error {
	show, err := c.printer()
	if err != nil {
		return err
	}
	from, err := parseFrom(c.offset, time.Now())
	if err != nil {
		return err
	}
	if c.group != "" && (c.exitAtEnd || len(c.partitions) > 0) {
		return errors.New("--group goes neither with --exit-at-end nor with --partition: where a group is, its members settle; --timeout ends it")
	}
	opts := []kgo.Opt{kgo.FetchMaxWait(500 * time.Millisecond), kgo.KeepControlRecords()}
	if c.committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if c.group != "" {
		opts = append(opts, kgo.ConsumerGroup(c.group), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(from.reset()), kgo.AutoCommitMarks())
	}
	return c.withClient(context.Background(), func(ctx context.Context, client *kgo.Client) error {
		r := &reading{consumeCommand: c, client: client, show: show, out: bufio.NewWriter(c.stdout), ends: map[partitionKey]int64{},
			progress: newTally(c.stderr, c.terminal, "records consumed")}
		if c.group == "" {
			if err := r.assign(ctx, topics, from); err != nil {
				return err
			}
		}
		err := r.loop(ctx)
		if c.group != "" {
			if e := client.CommitMarkedOffsets(context.WithoutCancel(ctx)); e != nil {
				err = errors.Join(err, fmt.Errorf("commit the offsets of group %s: %w", c.group, e))
			}
		}
		r.progress.clear()
		_, _ = fmt.Fprintf(c.stderr, "Consumed %s.\n", count(r.shown, "record"))
		return err
	}, opts...)
}

// reading is one run of the command.
type reading struct {
	*consumeCommand
	client   *kgo.Client
	show     printer
	out      *bufio.Writer
	progress *tally
	ends     map[partitionKey]int64 // where to stop, of partitions that are not there yet; with exitAtEnd
	shown    int
	line     []byte
}

type partitionKey struct {
	topic     string
	partition int32
}

// quiet is how long --exit-at-end waits for partitions whose last offsets are of no record: compaction may have taken it.
const quiet = 5 * time.Second

// loop reads until the end that was asked for, or until it is told to stop, which is no error.
func (r *reading) loop(ctx context.Context) error {
	for !r.over() {
		fetches, silent := r.poll(ctx)
		if ctx.Err() != nil || silent {
			break
		}
		if err := fetches.Err(); err != nil {
			return errors.Join(fmt.Errorf("consume: %w", err), r.out.Flush())
		}
		for it := fetches.RecordIter(); !it.Done(); {
			if err := r.take(it.Next()); err != nil {
				return err
			}
		}
		if err := r.out.Flush(); err != nil {
			return fmt.Errorf("write standard output: %w", err)
		}
	}
	return r.out.Flush()
}

// poll waits for records; silent when none came for as long as was asked for.
func (r *reading) poll(ctx context.Context) (fetches kgo.Fetches, silent bool) {
	wait := r.timeout
	if r.exitAtEnd && wait == 0 {
		wait = quiet
	}
	polling, cancel := ctx, context.CancelFunc(func() {})
	if wait > 0 {
		polling, cancel = context.WithTimeout(ctx, wait)
	}
	defer cancel()
	at := 0
	if r.number > 0 {
		at = r.number - r.shown
	}
	fetches = r.client.PollRecords(polling, at)
	return fetches, polling.Err() != nil && fetches.NumRecords() == 0
}

func (r *reading) over() bool {
	return r.number > 0 && r.shown >= r.number || r.exitAtEnd && len(r.ends) == 0
}

// take prints a record, unless it is a marker or lies beyond the end.
func (r *reading) take(rec *kgo.Record) error {
	k := partitionKey{rec.Topic, rec.Partition}
	if r.exitAtEnd {
		end, open := r.ends[k]
		if !open || rec.Offset >= end {
			delete(r.ends, k)
			return nil
		}
		if rec.Offset+1 >= end {
			delete(r.ends, k)
		}
	}
	if rec.Attrs.IsControl() {
		r.client.MarkCommitRecords(rec)
		return nil
	}
	var err error
	if r.line, err = r.show(r.line[:0], rec); err != nil {
		return err
	}
	if _, err := r.out.Write(r.line); err != nil {
		return fmt.Errorf("write standard output: %w", err)
	}
	r.shown++
	r.progress.add(1, len(rec.Key)+len(rec.Value))
	r.client.MarkCommitRecords(rec)
	return nil
}
