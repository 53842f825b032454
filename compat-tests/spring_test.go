package compattests_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/target"
)

// A Spring Boot application with Spring Kafka: topics made at start, listeners with threads, in batches, in transactions, with retries
// and a dead letter topic, request and reply. While it streams records to itself a node is killed, on one node started again, and
// nothing is lost.
func TestSpringKafka(t *testing.T) {
	set := need(t, "spring")
	onNodes(t, func(t *testing.T, nodes []*target.Broker) {
		dir := set.Spring()
		p := startFollowing(t, nil, "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", dir+":"+dir+"/*", "SpringScenario",
			addresses(nodes), "spring", strconv.Itoa(len(nodes)))
		struck := false
		deadline := time.After(10 * time.Minute)
		look := time.NewTicker(20 * time.Millisecond)
		defer look.Stop()
		for running := true; running; {
			select {
			case <-p.done:
				running = false
			case <-deadline:
				t.Fatalf("not done after 10 minutes:\n%.4000s", p.out.String())
			case <-look.C:
				if struck || !strings.Contains(p.out.String(), "streamed 300\n") {
					continue
				}
				struck = true
				if len(nodes) == 1 {
					restart(t, nodes[0], false)
				} else if err := nodes[0].Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !struck {
			t.Error("no node was killed")
		}
		judge(t, "SpringScenario", p.out.String(), 20)
	})
}
