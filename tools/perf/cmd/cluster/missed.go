package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
)

const (
	missedWriters = 4
	offsetMetric  = "kaja_raftctl_metadata_offset"
	entriesMetric = "kaja_raftctl_entries_total"
)

// missed measures how soon a node has the metadata that were written while it was dead.
func missed(ctx context.Context, o options) ([]table, error) {
	row := &kw.Row{Part: "missed", Subject: "kaja"}
	for round := range o.rounds {
		say("missed: round %d of %d", round+1, o.rounds)
		f, err := missedOnce(ctx, o)
		if err != nil {
			return nil, err
		}
		row.Samples = append(row.Samples, f)
	}
	return []table{{
		Title:   fmt.Sprintf("A node is killed, misses %d metadata entries and is started: from exec until it has applied them, has answered with the last, and is in sync", o.entries),
		Figures: []string{"entries", "offsets", "write_s", "applied_s", "answered_s", "in_sync_s", "cpu_s"},
		Rows:    []*kw.Row{row},
	}}, nil
}

func missedOnce(ctx context.Context, o options) (f kw.Figures, err error) {
	c, err := start(ctx, o, kaja("kaja"))
	if err != nil {
		return nil, err
	}
	defer c.stop(&err)
	for i := range missedWriters {
		if err := c.create(ctx, missedTopic(i), 1); err != nil {
			return nil, err
		}
	}
	controller, others, err := c.roles(ctx, c.nodes[0])
	if err != nil {
		return nil, err
	}
	victim := others[0]
	victim.end(syscall.SIGKILL)
	began := time.Now()
	_, offset, err := c.progress()
	if err != nil {
		return nil, err
	}
	entries, err := c.writeEntries(ctx, controller, o.entries)
	if err != nil {
		return nil, err
	}
	wrote := time.Since(began)
	const value = "77777777"
	if _, err := ask(controller, func(k *kw.Conn) (any, error) { return nil, setAgain(k, missedTopic(0), value) }); err != nil {
		return nil, err
	}
	_, target, err := c.progress()
	if err != nil {
		return nil, err
	}
	say("missed: %.0f entries, offsets %.0f to %.0f", entries, offset, target)
	f = kw.Figures{"entries": entries, "offsets": target - offset, "write_s": wrote.Seconds()}
	return f, c.back(ctx, victim, target, value, f)
}

func missedTopic(writer int) string { return fmt.Sprint("missed-", writer) }

// progress is how many metadata entries the running nodes have written since they were started, and the newest offset.
func (c *cluster) progress() (entries, offset float64, err error) {
	for _, n := range c.nodes {
		if n.proc == nil {
			continue
		}
		e, err1 := n.metric(entriesMetric)
		at, err2 := n.metric(offsetMetric)
		entries, offset, err = entries+e, max(offset, at), errors.Join(err, err1, err2, n.alive())
	}
	return entries, offset, err
}

// writeEntries changes configs, one in a request, until so many entries more are written: changes that come together are one.
func (c *cluster) writeEntries(ctx context.Context, asked *node, want int) (written float64, err error) {
	before, _, err := c.progress()
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()
	failed := make(chan error, missedWriters)
	var wg sync.WaitGroup
	for w := range missedWriters {
		wg.Go(func() {
			if err := changeAgainAndAgain(ctx, asked, missedTopic(w)); err != nil {
				failed <- err
			}
		})
	}
	defer wg.Wait()
	defer stop()
	look, tell := time.NewTicker(50*time.Millisecond), time.NewTicker(30*time.Second)
	defer look.Stop()
	defer tell.Stop()
	for {
		select {
		case err := <-failed:
			return 0, fmt.Errorf("after %.0f of %d entries: %w", written, want, err)
		case <-tell.C:
			say("missed: %.0f of %d entries", written, want)
		case <-look.C:
			now, _, err := c.progress()
			if written = now - before; err != nil || written >= float64(want) {
				return written, err
			}
		}
	}
}

// changeAgainAndAgain ends with an error, or with ctx.
func changeAgainAndAgain(ctx context.Context, asked *node, topic string) error {
	k, err := kw.Dial(asked.addr, time.Second)
	if err != nil {
		return err
	}
	defer k.C.Close()
	for n := 1_000_000; ctx.Err() == nil; n++ {
		if err := setAgain(k, topic, strconv.Itoa(n)); err != nil {
			return err
		}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	return nil
}

func setAgain(k *kw.Conn, topic, value string) error {
	return again(func() error { return k.SetTopicConfig(topic, imageConfig, value, time.Minute) })
}

// back starts a node and adds when it has reached a metadata offset, answers with a value, and is in every ISR.
func (c *cluster) back(ctx context.Context, n *node, target float64, value string, f kw.Figures) error {
	began := time.Now()
	if err := c.launch(n); err != nil {
		return err
	}
	const every = 2 * time.Millisecond
	err := untilEvery(ctx, every, readyBound, fmt.Sprintf("node %d has caught up", n.id), func() error {
		got, err := n.metric(offsetMetric)
		if err == nil && got < target {
			err = fmt.Errorf("offset %.0f of %.0f", got, target)
		}
		return errors.Join(err, n.alive())
	})
	if err != nil {
		return err
	}
	f["applied_s"] = time.Since(began).Seconds()
	err = untilEvery(ctx, every, readyBound, fmt.Sprintf("node %d answers", n.id), func() error {
		got, err := ask(n, func(k *kw.Conn) (string, error) { return k.TopicConfig(missedTopic(0), imageConfig, askBound) })
		if err == nil && got != value {
			err = fmt.Errorf("%s is %s", imageConfig, got)
		}
		return err
	})
	if err != nil {
		return err
	}
	f["answered_s"] = time.Since(began).Seconds()
	for i := range missedWriters {
		if err := c.whole(ctx, missedTopic(i), 1); err != nil {
			return err
		}
	}
	f["in_sync_s"], f["cpu_s"] = time.Since(began).Seconds(), n.usage().CPU
	return nil
}
