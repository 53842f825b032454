// cluster measures three nodes on one machine: what they take while nothing happens, how soon a change of the metadata is
// everywhere, produce with three replicas (beside Kafka), a node that comes back, 10,000 partitions and deaths among
// them, and whether anybody is fenced for nothing on a busy machine.
//
// It starts the nodes itself, each a process that is broker and controller, on 127.0.0.1 and below -dir, whose data are removed
// at the end. It builds nothing: give it a kaja binary, a directory of Kafka's jars (optional), and the directory that
// holds rawproduce. `make bench-cluster` does all that.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
)

type options struct {
	kaja, jars, bin, dir string
	port                 int
	json                 bool
	rounds               int

	idle       time.Duration
	changes    int
	poll       time.Duration
	partitions int
	perTopic   int
	gb         float64
	entries    int
	minutes    float64
	loops      int
}

// mode is a measurement and the tables that it gives.
type mode struct {
	name string
	run  func(ctx context.Context, o options) ([]table, error)
}

// table is one table of figures.
type table struct {
	Title   string
	Figures []string
	Rows    []*kw.Row
}

var modes = []mode{{"idle", idle}, {"image", image}, {"rf3", rf3}, {"missed", missed}, {"many", many}, {"busy", busy}}

func main() {
	// Nodes are told to end when the thread that started them does: they are started here, by one that lasts.
	runtime.LockOSThread()
	var o options
	all := names()
	only := flag.String("mode", strings.Join(all, ","), "comma-separated modes")
	flag.StringVar(&o.kaja, "kaja", "", "the kaja binary")
	flag.StringVar(&o.jars, "kafka-jars", "", "directory of Kafka's jars; empty leaves Kafka out")
	flag.StringVar(&o.bin, "bin", "", "directory of rawproduce")
	flag.StringVar(&o.dir, "dir", "", "scratch directory (on the disk to be measured)")
	flag.IntVar(&o.port, "port", 21600, "the first of the ports on 127.0.0.1, of which ten are taken a node")
	flag.BoolVar(&o.json, "json", false, "print JSON instead of tables")
	flag.IntVar(&o.rounds, "rounds", 3, "image, rf3, missed, many: rounds, each with fresh nodes")
	flag.DurationVar(&o.idle, "idle", time.Minute, "idle: how long")
	flag.IntVar(&o.changes, "changes", 2000, "image: changes of the metadata, in all rounds together")
	flag.DurationVar(&o.poll, "poll", 200*time.Microsecond, "image: pause between two looks at a node")
	flag.IntVar(&o.partitions, "partitions", 10_000, "image, many: partitions")
	flag.IntVar(&o.perTopic, "per-topic", 1000, "image, many: partitions of each topic, which is created by one request")
	flag.Float64Var(&o.gb, "gb", 1, "rf3: 10^9 bytes of batches a round")
	flag.IntVar(&o.entries, "entries", 20_000, "missed: metadata entries that the node misses")
	flag.Float64Var(&o.minutes, "minutes", 30, "busy: how long")
	flag.IntVar(&o.loops, "loops", 4, "busy: processes that only take CPU")
	spinFor := flag.Duration("spin", 0, "take CPU for so long and end (what busy starts)")
	flag.Parse()
	if *spinFor > 0 {
		spin(*spinFor)
		return
	}
	wanted := strings.Split(*only, ",")
	for _, w := range wanted {
		if !slices.Contains(all, w) {
			fmt.Fprintf(os.Stderr, "cluster: no mode %q; there are %s\n", w, strings.Join(all, ", "))
			os.Exit(2)
		}
	}
	if o.kaja == "" || o.bin == "" || o.dir == "" || o.perTopic < 1 || o.rounds < 1 {
		fmt.Fprintln(os.Stderr, "cluster: -kaja, -bin and -dir are needed, -per-topic and -rounds positive; see -h")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, wanted); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func names() (out []string) {
	for _, m := range modes {
		out = append(out, m.name)
	}
	return out
}

func run(ctx context.Context, o options, wanted []string) error {
	var tables []table
	for _, m := range modes {
		if !slices.Contains(wanted, m.name) {
			continue
		}
		before := kw.LoadAverage()
		got, err := m.run(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		tables = append(tables, got...)
		if o.json {
			continue
		}
		note := fmt.Sprintf("load average %s before, %s after", before, kw.LoadAverage())
		for _, t := range got {
			if err := kw.Table(os.Stdout, t.Title, note, t.Figures, t.Rows); err != nil {
				return err
			}
		}
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(tables)
	}
	return nil
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// pause waits, and gives ctx's error if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// until looks every 20 ms whether something is so; why tells what is missing.
func until(ctx context.Context, within time.Duration, what string, look func() (why error)) error {
	return untilEvery(ctx, 20*time.Millisecond, within, what, look)
}

func untilEvery(ctx context.Context, every, within time.Duration, what string, look func() (why error)) error {
	for end := time.Now().Add(within); ; {
		why := look()
		if why == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v: %w", what, within, why)
		}
		if err := pause(ctx, every); err != nil {
			return fmt.Errorf("%s: %w (%w)", what, err, why)
		}
	}
}
