package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// manyBound is how long a step among many partitions may take.
const manyBound = 10 * time.Minute

// many measures what many partitions take, and deaths among them: of a node that only follows in the quorum, then of the
// controller's.
func many(ctx context.Context, o options) ([]table, error) {
	m := &manyRun{o: o}
	for i := range m.rows {
		m.rows[i] = &kw.Row{Part: "many", Subject: manySubjects[i]}
	}
	for _, without := range []string{"without partitions", "with them", "with them, after the deaths"} {
		m.memory = append(m.memory, &kw.Row{Part: "many memory", Subject: "a node " + without})
	}
	for round := range o.rounds {
		say("many: round %d of %d", round+1, o.rounds)
		if err := m.once(ctx); err != nil {
			return nil, err
		}
	}
	return []table{{
		Title:   fmt.Sprintf("%d partitions of three replicas on three nodes, SIGKILL: until each leadership of the node is elsewhere, by the metadata of a live node; a start, until each replica is in sync", o.partitions),
		Figures: []string{"leaderships", "elected_s", "admin_s", "start_answers_s", "start_in_sync_s", "start_cpu_s"},
		Rows:    m.rows[:],
	}, {
		Title:   fmt.Sprintf("Memory with %d partitions (all nodes of all rounds; heap: after the collector's last run and what came since)", o.partitions),
		Figures: []string{"rss_mb", "heap_mb"},
		Rows:    m.memory,
	}}, nil
}

var manySubjects = [2]string{"a follower of the quorum", "the controller's node"}

type manyRun struct {
	o      options
	rows   [2]*kw.Row // by manySubjects
	memory []*kw.Row
}

func (m *manyRun) once(ctx context.Context) (err error) {
	c, err := start(ctx, m.o, kaja("kaja"))
	if err != nil {
		return err
	}
	defer c.stop(&err)
	if err := c.create(ctx, imageTopic, 1); err != nil {
		return err
	}
	if err := m.weigh(ctx, c, 0); err != nil {
		return err
	}
	controller, _, err := c.roles(ctx, c.nodes[0])
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := ask(controller, func(k *kw.Conn) (int, error) { return createMany(k, m.o) }); err != nil {
		return err
	}
	created := time.Since(began)
	if err := c.allWhole(ctx, m.o.partitions+1); err != nil {
		return err
	}
	say("many: created after %v, in sync after %v", created.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if err := m.weigh(ctx, c, 1); err != nil {
		return err
	}
	for i := range m.rows {
		controller, others, err := c.roles(ctx, c.nodes[0])
		if err != nil {
			return err
		}
		victim, live := others[0], others[1]
		if i == 1 {
			victim, live = controller, others[0]
		}
		f, err := c.death(ctx, victim, live, m.o.partitions+1)
		if err != nil {
			return fmt.Errorf("death of %s: %w", manySubjects[i], err)
		}
		m.rows[i].Samples = append(m.rows[i].Samples, f)
	}
	return m.weigh(ctx, c, 2)
}

// weigh takes the memory of each node, once what has just been done is over.
func (m *manyRun) weigh(ctx context.Context, c *cluster, row int) error {
	if err := pause(ctx, 10*time.Second); err != nil {
		return err
	}
	for _, n := range c.nodes {
		heap, err := n.metric("go_memstats_heap_alloc_bytes")
		if err != nil {
			return err
		}
		m.memory[row].Samples = append(m.memory[row].Samples, kw.Figures{"rss_mb": float64(n.usage().RSS) / 1e6, "heap_mb": heap / 1e6})
	}
	return nil
}

// allWhole waits until each running node says that every partition has a leader and all replicas in sync.
func (c *cluster) allWhole(ctx context.Context, partitions int) error {
	for _, n := range c.nodes {
		err := until(ctx, manyBound, fmt.Sprintf("all replicas are in sync at node %d", n.id), func() error {
			m, err := ask(n, everything)
			if err != nil {
				return err
			}
			return inSync(m, partitions)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func everything(k *kw.Conn) (*kmsg.MetadataResponse, error) { return k.MetadataAll(askBound) }

// ledBy counts the partitions that a node leads, and those without a leader.
func ledBy(m *kmsg.MetadataResponse, id int32) (led, none int) {
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			switch p.Leader {
			case id:
				led++
			case -1:
				none++
			}
		}
	}
	return led, none
}

// death kills a node, measures at a live one until somebody decides and leads again, and starts it.
func (c *cluster) death(ctx context.Context, victim, live *node, partitions int) (kw.Figures, error) {
	before, err := ask(live, everything)
	if err != nil {
		return nil, err
	}
	led, _ := ledBy(before, victim.id)
	f := kw.Figures{"leaderships": float64(led)}
	began := time.Now()
	victim.end(syscall.SIGKILL)
	decided := make(chan error, 1)
	var admin time.Duration
	go func() {
		err := until(ctx, manyBound, "an admin request is carried out", func() error {
			_, err := ask(live, func(k *kw.Conn) (any, error) {
				return nil, k.SetTopicConfig(imageTopic, imageConfig, fmt.Sprint(1_000_000+victim.id), askBound)
			})
			return err
		})
		admin = time.Since(began)
		decided <- err
	}()
	elected := until(ctx, manyBound, "all leaderships are elsewhere", func() error {
		m, err := ask(live, everything)
		if err != nil {
			return err
		}
		if led, none := ledBy(m, victim.id); led+none > 0 {
			return fmt.Errorf("%d led by node %d, %d by nobody", led, victim.id, none)
		}
		return nil
	})
	f["elected_s"] = time.Since(began).Seconds()
	if err := errors.Join(elected, <-decided); err != nil {
		return nil, err
	}
	f["admin_s"] = admin.Seconds()
	if err := pause(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	began = time.Now()
	if err := c.launch(victim); err != nil {
		return nil, err
	}
	err = until(ctx, manyBound, fmt.Sprintf("node %d answers", victim.id), func() error {
		_, err := ask(victim, func(k *kw.Conn) (*kmsg.MetadataResponse, error) { return k.Metadata(imageTopic) })
		return err
	})
	if err != nil {
		return nil, err
	}
	f["start_answers_s"] = time.Since(began).Seconds()
	err = until(ctx, manyBound, fmt.Sprintf("node %d is in every ISR", victim.id), func() error {
		m, err := ask(live, everything)
		if err != nil {
			return err
		}
		return inSync(m, partitions)
	})
	f["start_in_sync_s"], f["start_cpu_s"] = time.Since(began).Seconds(), victim.usage().CPU
	return f, errors.Join(err, c.allWhole(ctx, partitions))
}
