// compare measures kaja, Apache Kafka and the machine's own floor in one run on one machine: the same loaders against
// each in turn, several rounds, medians printed as a table (or JSON with -json).
//
// It builds nothing: give it a kaja binary, a directory of Kafka's jars (optional), and the directory that holds the
// loaders (rawproduce, rawfetch, kfloor, coldstart). `make bench-compare` does all that.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
)

type options struct {
	kaja, jars, bin, dir string
	rounds, coldStarts   int
	gb                   float64
	idle                 time.Duration
	json                 bool
	only                 string
}

func main() {
	var o options
	flag.StringVar(&o.kaja, "kaja", "", "the kaja binary")
	flag.StringVar(&o.jars, "kafka-jars", "", "directory of Kafka's jars; empty leaves Kafka out")
	flag.StringVar(&o.bin, "bin", "", "directory of the loaders")
	flag.StringVar(&o.dir, "dir", "", "scratch directory (on the disk to be measured)")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each measurement")
	flag.IntVar(&o.coldStarts, "cold-starts", 20, "process starts of kaja (Kafka: a fifth of that)")
	flag.Float64Var(&o.gb, "gb", 1, "10^9 bytes of batches a round")
	flag.DurationVar(&o.idle, "idle", 60*time.Second, "how long the idle measurement takes")
	flag.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	flag.StringVar(&o.only, "only", "", "comma-separated parts: cold,idle,produce,requests,fetch,latency,sync")
	flag.Parse()
	if o.kaja == "" || o.bin == "" || o.dir == "" {
		fmt.Fprintln(os.Stderr, "compare: -kaja, -bin and -dir are needed; see -h")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	want := func(part string) bool { return o.only == "" || slices.Contains(strings.Split(o.only, ","), part) }
	var rows []*kw.Row
	for _, p := range parts {
		if !want(p.name) {
			continue
		}
		before := kw.LoadAverage()
		got, err := p.run(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		rows = append(rows, got...)
		if !o.json {
			note := fmt.Sprintf("load average %s before, %s after", before, kw.LoadAverage())
			if err := kw.Table(os.Stdout, p.title, note, p.figures, got); err != nil {
				return err
			}
		}
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(rows)
	}
	return nil
}
