//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/kajamq/kaja/chaos/netns"
)

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	if o.tables {
		if err := printAll(os.Stdout, o.results); err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
			os.Exit(2)
		}
		return
	}
	if err := netns.Enter(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	}
	os.Exit(run(o))
}

// run does one run and gives the exit code: 0, 1 where something was found, 2 where the run could not be made.
func run(o options) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	w, err := newWorld(o.dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	}
	defer func() {
		w.end()
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(fmt.Sprintf("%v\n%s", r, debug.Stack()))
			}
			fmt.Fprintln(os.Stderr, "chaos:", f.why)
			code = 2
		}
	}()
	r, err := perform(ctx, o, w)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	}
	r.print(os.Stdout)
	if o.json != "" {
		if err := r.write(o.json); err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
			return 2
		}
	}
	if len(r.Findings) > 0 {
		return 1
	}
	return 0
}

// options are the command line.
type options struct {
	binary, old string
	nodes       int
	duration    time.Duration
	count       int
	seed        uint64
	kinds       []string
	rate        int
	partitions  int
	series      bool
	least       int
	fsync       string
	session     string
	dir, json   string
	jars        string
	tables      bool
	results     []string
	planted     string
	quiet       time.Duration
}

func parse(args []string) (options, error) {
	var o options
	var faults string
	fs := flag.NewFlagSet("chaos", flag.ContinueOnError)
	fs.StringVar(&o.binary, "binary", "bin/kaja", "the kaja to be tested")
	fs.StringVar(&o.old, "old", "", "an older kaja, for the upgrades")
	fs.IntVar(&o.nodes, "nodes", 3, "nodes, all of them brokers and voters")
	fs.DurationVar(&o.duration, "duration", 5*time.Minute, "of the load, when -count is not given")
	fs.IntVar(&o.count, "count", 0, "faults, instead of a duration")
	fs.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()%1_000_000), "of the schedule")
	fs.StringVar(&faults, "faults", "", "kinds of faults, separated by commas; none: every one that can be; "+strings.Join(names(kinds()), " "))
	fs.IntVar(&o.rate, "rate", 500, "records a second, besides the probes")
	fs.IntVar(&o.partitions, "partitions", 12, "partitions of the topic that idempotent producers write to")
	fs.BoolVar(&o.series, "series", false, "measure gaps: 100 partitions at 10 records a second each and the probes, nothing else")
	fs.IntVar(&o.least, "least", 500, "acknowledged records a second that there must be before the first fault")
	fs.StringVar(&o.fsync, "fsync", "auto", "kaja.fsync of the nodes")
	fs.StringVar(&o.session, "session", "", "broker.session.timeout.ms of the nodes; empty: the default")
	fs.StringVar(&o.dir, "dir", "build/chaos", "for logs of the nodes; runs at the same time need one each")
	fs.StringVar(&o.json, "json", "", "write the result to this file")
	fs.StringVar(&o.jars, "kafka-jars", "", "run Kafka out of this directory of jars, not kaja")
	fs.BoolVar(&o.tables, "table", false, "run nothing: print one table of the results in the files that are given")
	fs.StringVar(&o.planted, "planted", "", "switch on this planted bug, in a binary built with -tags planted")
	fs.DurationVar(&o.quiet, "quiet", 0, "time without faults before each one; 0: 3 s, 1 s in a series")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.results = fs.Args()
	if o.series {
		o.partitions, o.rate = 100, 1000
	}
	if o.quiet == 0 {
		o.quiet = 3 * time.Second
		if o.series {
			o.quiet = time.Second
		}
	}
	var err error
	if o.jars != "" {
		if o.jars, err = filepath.Abs(o.jars); err != nil {
			return o, err
		}
	}
	o.kinds, err = choose(faults, o)
	return o, err
}

// choose gives the kinds that a list names, or all that make sense.
func choose(list string, o options) ([]string, error) {
	all := kinds()
	if list == "" {
		var chosen []string
		for _, k := range all {
			if !k.special && (!k.needsOld || o.old != "") {
				chosen = append(chosen, k.name)
			}
		}
		return chosen, nil
	}
	var chosen []string
	for name := range strings.SplitSeq(list, ",") {
		k, ok := find(all, name)
		if !ok {
			return nil, fmt.Errorf("no fault is called %q; there are %s", name, strings.Join(names(all), " "))
		}
		if k.needsOld && o.old == "" {
			return nil, fmt.Errorf("%s needs -old", name)
		}
		chosen = append(chosen, name)
	}
	return chosen, nil
}
