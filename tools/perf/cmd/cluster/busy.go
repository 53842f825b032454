package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	busyTopic = "busy"
	busyEvery = 30 * time.Millisecond // between two produces to one partition
)

// spin takes CPU.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

// busy runs three nodes beside processes that only take CPU, with a small load, and counts who was fenced and how often
// the leadership of the metadata changed. Nobody dies, so both should be none.
func busy(ctx context.Context, o options) (tables []table, err error) {
	c, err := start(ctx, o, kaja("kaja"))
	if err != nil {
		return nil, err
	}
	defer c.stop(&err)
	if err := c.create(ctx, busyTopic, nodes); err != nil {
		return nil, err
	}
	whole := time.Duration(o.minutes * float64(time.Minute))
	loops, err := startLoops(o.loops, whole+readyBound)
	defer endLoops(loops)
	if err != nil {
		return nil, err
	}
	loading, stop := context.WithTimeout(ctx, whole)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	loads := make([]busyLoad, nodes)
	for p := range loads {
		wg.Go(func() { loads[p].run(loading, c.nodes, int32(p)) })
	}
	before, err := c.unrest()
	if err != nil {
		return nil, err
	}
	for began := time.Now(); time.Since(began) < whole; {
		if err := pause(ctx, min(time.Minute, whole-time.Since(began))); err != nil {
			return nil, err
		}
		now, err := c.unrest()
		if err != nil {
			return nil, err
		}
		say("busy: %.1f of %g minutes, %d loops, load average %s: %v", time.Since(began).Minutes(), o.minutes, o.loops, kw.LoadAverage(), now.since(before))
	}
	wg.Wait()
	now, err := c.unrest()
	if err != nil {
		return nil, err
	}
	return []table{busyTable(o, now.since(before), loads)}, nil
}

func busyTable(o options, u unrest, loads []busyLoad) table {
	f := kw.Figures{"fenced": u.fenced, "metadata leaders": u.epochs, "isr_shrinks": u.shrinks, "heartbeat gap <_s": u.gap, "leader silence <_s": u.silence}
	var took []float64
	for _, l := range loads {
		took = append(took, l.took...)
		f["errors"] += l.errors
	}
	slices.Sort(took)
	f["acks"] = float64(len(took))
	if len(took) > 0 {
		f["ack p99_ms"], f["ack max_ms"] = quantile(took, 0.99), quantile(took, 1)
	}
	return table{
		Title:   fmt.Sprintf("%g minutes beside %d busy loops, acks=all every %v to each of three partitions; fencings and changes of the metadata's leader, of which none has a reason", o.minutes, o.loops, busyEvery),
		Figures: []string{"fenced", "metadata leaders", "isr_shrinks", "heartbeat gap <_s", "leader silence <_s", "acks", "errors", "ack p99_ms", "ack max_ms"},
		Rows:    []*kw.Row{{Part: "busy", Subject: "kaja", Samples: []kw.Figures{f}}},
	}
}

// startLoops starts processes that take CPU until they are ended, or for d.
func startLoops(n int, d time.Duration) (loops []*exec.Cmd, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for range n {
		cmd := exec.Command(self, "-spin", d.String())
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return loops, fmt.Errorf("start a busy loop: %w", err)
		}
		loops = append(loops, cmd)
	}
	return loops, nil
}

func endLoops(loops []*exec.Cmd) {
	for _, l := range loops {
		_ = l.Process.Kill() // it may have ended already
		_ = l.Wait()         // killed
	}
}

// busyLoad is one producer, which has one request in flight.
type busyLoad struct {
	took   []float64 // milliseconds of each acknowledged produce
	errors float64
}

func (l *busyLoad) run(ctx context.Context, all []*node, partition int32) {
	batch, _ := kw.Batch(1000, 900)
	for {
		err := l.atLeader(ctx, all, partition, batch)
		if ctx.Err() != nil {
			return
		}
		l.errors++
		say("busy: partition %d: %v", partition, err)
		if pause(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

// atLeader finds the partition's leader and produces to it until something goes wrong.
func (l *busyLoad) atLeader(ctx context.Context, all []*node, partition int32, batch []byte) error {
	m, err := ask(all[partition], func(k *kw.Conn) (*kmsg.MetadataResponse, error) { return k.Metadata(busyTopic) })
	if err != nil {
		return err
	}
	var leader *node
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			if at := slices.IndexFunc(all, func(n *node) bool { return n.id == p.Leader }); p.Partition == partition && at >= 0 {
				leader = all[at]
			}
		}
	}
	if leader == nil {
		return errors.New("no leader")
	}
	k, err := kw.Dial(leader.addr, time.Second)
	if err != nil {
		return err
	}
	defer k.C.Close()
	for next := time.Now(); ; next = next.Add(busyEvery) {
		if err := pause(ctx, time.Until(next)); err != nil {
			return err
		}
		began := time.Now()
		if err := k.Produce(busyTopic, []int32{partition}, batch, -1, askBound); err != nil {
			return err
		}
		l.took = append(l.took, float64(time.Since(began))/1e6)
	}
}

// unrest is what should stay still while nobody dies.
type unrest struct {
	fenced  float64 // brokers fenced by the controllers
	epochs  float64 // the newest controller epoch: each new leader of the metadata takes another
	shrinks float64
	gap     float64 // upper bound of the longest time between two heartbeats of a broker, in seconds
	silence float64 // the same of two words of the metadata's leader at a node that follows
}

func (u unrest) since(b unrest) unrest {
	u.fenced, u.epochs, u.shrinks = u.fenced-b.fenced, u.epochs-b.epochs, u.shrinks-b.shrinks
	return u
}

func (u unrest) String() string {
	return fmt.Sprintf("%.0f fenced, %.0f new leaders of the metadata, %.0f ISR shrinks; longest gap of heartbeats below %g s, longest silence of the leader below %g s", u.fenced, u.epochs, u.shrinks, u.gap, u.silence)
}

func (c *cluster) unrest() (u unrest, err error) {
	for _, n := range c.nodes {
		m, err := kw.Metrics(n.http)
		if err := errors.Join(err, n.alive()); err != nil {
			return u, fmt.Errorf("node %d: %w", n.id, err)
		}
		for name, v := range m {
			if strings.HasPrefix(name, "kaja_raftctl_fenced_brokers_total{") {
				u.fenced += v
			}
		}
		u.epochs = max(u.epochs, m["kaja_raftctl_controller_epoch"])
		u.shrinks += m["kaja_replica_isr_shrinks_total"]
		u.gap = max(u.gap, longest(m, "kaja_raftctl_heartbeat_gap_seconds"))
		u.silence = max(u.silence, longest(m, "kaja_raftctl_leader_silence_seconds"))
	}
	return u, nil
}

// longest is the upper bound of the highest bucket of a histogram that is not empty; 0 if all are.
func longest(m map[string]float64, histogram string) float64 {
	type bucket struct{ le, count float64 }
	var all []bucket
	for name, count := range m {
		if le, ok := strings.CutPrefix(name, histogram+`_bucket{le="`); ok {
			if v, err := strconv.ParseFloat(strings.TrimSuffix(le, `"}`), 64); err == nil {
				all = append(all, bucket{v, count})
			}
		}
	}
	slices.SortFunc(all, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
	out, below := 0.0, 0.0
	for _, b := range all {
		if b.count > below {
			out, below = b.le, b.count
		}
	}
	return out
}
