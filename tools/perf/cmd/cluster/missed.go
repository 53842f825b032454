package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
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
	controller, others, err := c.roles(c.nodes[0])
	if err != nil {
		return nil, err
	}
	victim := others[0]
	victim.end(syscall.SIGKILL)
	offset, err := controller.metric(offsetMetric)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	entries, value, err := writeEntries(ctx, controller, o.entries)
	if err != nil {
		return nil, err
	}
	wrote := time.Since(began)
	target, err := controller.metric(offsetMetric)
	if err != nil {
		return nil, err
	}
	say("missed: %.0f entries, offsets %.0f to %.0f", entries, offset, target)
	f = kw.Figures{"entries": entries, "offsets": target - offset, "write_s": wrote.Seconds()}
	return f, c.back(ctx, victim, target, value, f)
}

func missedTopic(writer int) string { return fmt.Sprint("missed-", writer) }

// writeEntries changes configs, one in a request, until the controller has written so many entries more: changes that come
// together are one entry. value is the last that the first topic was given.
func writeEntries(ctx context.Context, controller *node, entries int) (written float64, value string, err error) {
	before, err := controller.metric(entriesMetric)
	if err != nil {
		return 0, "", err
	}
	ctx, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()
	var enough atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, missedWriters)
	for w := range missedWriters {
		wg.Go(func() { errs[w] = changeAgainAndAgain(ctx, controller, missedTopic(w), &enough) })
	}
	for err == nil && written < float64(entries) {
		if err = pause(ctx, 50*time.Millisecond); err == nil {
			written, err = controller.metric(entriesMetric)
			written -= before
		}
	}
	enough.Store(true)
	wg.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return 0, "", err
	}
	value = "77777777"
	_, err = ask(controller, func(k *kw.Conn) (any, error) {
		return nil, k.SetTopicConfig(missedTopic(0), imageConfig, value, askBound)
	})
	return written, value, err
}

func changeAgainAndAgain(ctx context.Context, controller *node, topic string, enough *atomic.Bool) error {
	k, err := kw.Dial(controller.addr, time.Second)
	if err != nil {
		return err
	}
	defer k.C.Close()
	for n := 1_000_000; !enough.Load(); n++ {
		if err := errors.Join(ctx.Err(), k.SetTopicConfig(topic, imageConfig, strconv.Itoa(n), askBound)); err != nil {
			return err
		}
	}
	return nil
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
