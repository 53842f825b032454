package raftctl

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// scripted runs decisions on an image of several brokers. Every command prints what was decided and then, for partition
// changes, the partitions that it touched.
type scripted struct {
	d     *decider
	img   *image.Image
	entry uint64
	live  *liveness
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &scripted{img: image.Empty(testCluster)}
		s.d = &decider{
			nodeID: 1, defaults: Defaults{NumPartitions: 1, ReplicationFactor: 1}, configs: testConfigs{},
			newUUID: idSource(), rng: rand.New(rand.NewPCG(1, 2)),
		}
		s.apply(t, bootstrap(nil))
		s.live = newLiveness(s.img, 9*time.Second, time.Unix(0, 0))
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string { return s.run(t, td) })
	})
}

func (s *scripted) apply(t *testing.T, records []coordrec.MetadataRecord) *image.Delta {
	t.Helper()
	s.entry++
	next, delta, err := s.img.With(image.Position{Offset: s.img.Offset() + 1, Entry: s.entry}, records)
	if err != nil {
		t.Fatal(err)
	}
	s.img = next
	return delta
}

func arg(td *datadriven.TestData, name, def string) string {
	for _, a := range td.CmdArgs {
		if a.Key == name {
			return strings.Join(a.Vals, ",")
		}
	}
	return def
}

func num(t *testing.T, td *datadriven.TestData, name string, def int) int {
	t.Helper()
	n, err := strconv.Atoi(arg(td, name, strconv.Itoa(def)))
	if err != nil {
		td.Fatalf(t, "%s: %v", name, err)
	}
	return n
}

func (s *scripted) run(t *testing.T, td *datadriven.TestData) string {
	id := wire.BrokerID(num(t, td, "id", 1))
	epoch := wire.NoBrokerEpoch
	if b, ok := s.img.Broker(id); ok {
		epoch = b.Epoch
	}
	var records []coordrec.MetadataRecord
	var said string
	var err error
	switch td.Cmd {
	case "register":
		reg := registration(byte(num(t, td, "incarnation", int(id))), wire.BrokerEpoch(num(t, td, "previous", -1)))
		reg.ID, reg.LogDirs = id, []wire.UUID{{0: 1, 14: byte(num(t, td, "dir", int(id))), 15: 200}}
		if rack := arg(td, "rack", ""); rack != "" {
			reg.Rack = &rack
		}
		var e wire.BrokerEpoch
		records, e, err = s.d.registerBroker(s.img, reg)
		said = fmt.Sprintf("epoch %d\n", e)
	case "unfence":
		records, err = s.d.unfenceBroker(s.img, id, epoch)
	case "fence":
		b, _ := s.img.Broker(id)
		records = s.d.fenceBroker(s.img, b)
	case "shutdown":
		records, err = s.d.shutDown(s.img, id, epoch)
	case "create":
		records, said, err = s.create(t, td)
	case "config":
		res := image.Resource{Type: image.ResourceTopic, Name: arg(td, "topic", "")}
		value := arg(td, "value", "")
		var results []*Error
		records, results, err = s.d.alterConfigs(s.img, []AlterConfigs{{Resource: res, Changes: []ConfigChange{{arg(td, "name", ""), ConfigSet, &value}}}})
		if results[0] != nil {
			said = results[0].Error() + "\n"
		}
	case "show":
		return s.show(arg(td, "topic", ""))
	default:
		records, said, err = s.runMore(t, td, id, epoch)
	}
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			td.Fatalf(t, "%v", err)
		}
		return err.Error() + "\n"
	}
	if len(records) > 0 {
		said += s.changes(s.apply(t, records))
	}
	if said == "" {
		said = "nothing\n"
	}
	return said
}

func (s *scripted) create(t *testing.T, td *datadriven.TestData) ([]coordrec.MetadataRecord, string, error) {
	req := NewTopic{
		Name: arg(td, "topic", ""), Partitions: int32(num(t, td, "partitions", 1)), ReplicationFactor: int16(num(t, td, "rf", 1)),
	}
	for i, part := range strings.Fields(strings.ReplaceAll(arg(td, "assign", ""), "/", " ")) {
		a := Assignment{Partition: wire.PartitionID(i)}
		for _, r := range strings.Split(part, "+") {
			n, err := strconv.Atoi(r)
			if err != nil {
				td.Fatalf(t, "%v", err)
			}
			a.Replicas = append(a.Replicas, wire.BrokerID(n))
		}
		req.Assignments, req.Partitions, req.ReplicationFactor = append(req.Assignments, a), -1, -1
	}
	records, res, err := s.d.createTopics(s.img, []NewTopic{req})
	if err == nil && res[0].Err != nil {
		return nil, res[0].Err.Error() + "\n", nil
	}
	return records, "", err
}

func (s *scripted) changes(d *image.Delta) string {
	var b strings.Builder
	for _, bd := range d.Brokers {
		if bd.New == nil {
			fmt.Fprintf(&b, "broker %d: gone\n", bd.ID)
			continue
		}
		fmt.Fprintf(&b, "broker %d: epoch=%d fenced=%v shutdown=%v\n", bd.ID, bd.New.Epoch, bd.New.Fenced, bd.New.InShutdown)
	}
	for _, td := range d.Topics {
		if td.Removed() {
			fmt.Fprintf(&b, "%s: gone\n", td.Name)
			continue
		}
		for _, pd := range td.Partitions {
			fmt.Fprintf(&b, "%s-%d: %s\n", td.Name, pd.ID, partitionText(pd.New))
		}
	}
	return b.String()
}

func partitionText(p *image.Partition) string {
	text := fmt.Sprintf("replicas=%v leader=%d le=%d pe=%d isr=%v", p.Replicas, p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.ISR)
	if len(p.ELR) > 0 {
		text += fmt.Sprintf(" elr=%v", p.ELR)
	}
	if len(p.LastKnownELR) > 0 {
		text += fmt.Sprintf(" last=%v", p.LastKnownELR)
	}
	if p.Recovering {
		text += " recovering"
	}
	return text
}

func (s *scripted) show(topic string) string {
	t, ok := s.img.Topic(topic)
	if !ok {
		return "no such topic\n"
	}
	leaders := map[wire.BrokerID]int{}
	var b strings.Builder
	for _, p := range t.Partitions {
		leaders[p.Leader]++
		fmt.Fprintf(&b, "%d: %v\n", p.ID, p.Replicas)
	}
	for _, id := range slices.Sorted(func(yield func(wire.BrokerID) bool) {
		for id := range leaders {
			if !yield(id) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, "broker %d leads %d\n", id, leaders[id])
	}
	return b.String()
}
