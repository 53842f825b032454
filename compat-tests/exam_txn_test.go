package compattests_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/target"
)

func transactions(args string) step {
	return step{tool: "kafka-transactions", args: "--bootstrap-server $B " + args}
}

// kafka-transactions prints about kaja what it prints about Kafka, with every verb. The producers are the same requests
// on both; producer ids and times differ.
func TestExamTransactions(t *testing.T) {
	need(t, "java")
	got, reference := ownBroker(t, nil), examOwnReference(t)
	for _, b := range []*target.Broker{got, reference} {
		makeTopic(t, b, "et", 2, nil)
		for _, v2 := range []bool{false, true} {
			name := "v1"
			if v2 {
				name = "v2"
			}
			open := newRawProducer(t, b, "et-open-"+name, v2)
			open.begin("et", 0)
			open.send("et", 0, 0, "a")
			done := newRawProducer(t, b, "et-done-"+name, v2)
			done.begin("et", 1)
			done.send("et", 1, 0, "b")
			wantCode(t, "commit", done.end(true), 0)
			done.awaitState("CompleteCommit")
			_ = newRawProducer(t, b, "et-empty-"+name, v2)
		}
	}
	// What holds times is compared by its shape, while transactions are open and after they were ended.
	number := regexp.MustCompile(`\d+`)
	shapes := func(when string) {
		t.Helper()
		for _, args := range []string{"describe-producers --topic et --partition 0", "describe-producers --topic et --partition 1",
			"describe --transactional-id et-open-v1", "describe --transactional-id et-open-v2", "describe --transactional-id et-done-v1", "describe --transactional-id et-done-v2"} {
			shape := func(b *target.Broker) string {
				return number.ReplaceAllString(tool(t, transactions(args).command(b, t.TempDir())).Out, "N")
			}
			if want, have := strings.Fields(shape(reference)), strings.Fields(shape(got)); strings.Join(want, " ") != strings.Join(have, " ") {
				t.Errorf("%s, %s\nKafka %v\nkaja  %v", args, when, want, have)
			}
		}
	}
	shapes("open")
	examineOn(t, got, reference, []step{
		again(transactions("list")),
		transactions("list --duration-filter 100000000"),
		transactions("list --transactional-id-pattern et-open-.*"),
		transactions("list --transactional-id-pattern open"),
		transactions("list --transactional-id-pattern ["),
		transactions("describe --transactional-id et-empty-v1"),
		transactions("describe --transactional-id et-absent"),
		again(transactions("find-hanging --broker-id 1")),
		again(transactions("find-hanging --topic et")),
		transactions("describe-producers --topic et-absent --partition 0 --command-config $DIR/absent"),
		transactions("abort --topic et --partition 0 --start-offset 77"),
		transactions("forceTerminateTransaction --transactional-id et-absent"),
		transactions("forceTerminateTransaction --transactional-id et-open-v1"),
		transactions("abort --topic et --partition 0 --start-offset 1"),
		again(transactions("list")),
	})
	shapes("ended")
}

// examOwnReference is a Kafka 4.4 of one test's own.
func examOwnReference(t *testing.T) *target.Broker {
	t.Helper()
	return startOwn(t, target.Kafka, nil)
}

// `kaja txn` says who holds back a topic's readers, since when and from where, and frees it.
func TestKajaTxn(t *testing.T) {
	if kind(t) != target.Kaja {
		t.Skip("a command of kaja's")
	}
	b := ownBroker(t, nil)
	run := func(args ...string) output {
		t.Helper()
		theSuite.mu.Lock()
		binary := theSuite.binary
		theSuite.mu.Unlock()
		return execute(t, time.Minute, "", nil, binary, append([]string{"txn", "--bootstrap-server", b.Addr}, args...)...)
	}
	ok := func(args ...string) string {
		t.Helper()
		o := run(args...)
		if o.Exit != 0 {
			t.Fatalf("kaja txn %s: exit %d\n%s%s", strings.Join(args, " "), o.Exit, o.Out, o.Err)
		}
		return o.Out
	}
	makeTopic(t, b, "kt", 2, nil)
	if out := ok("why-blocked", "kt"); !strings.HasPrefix(out, "Nothing is blocked") {
		t.Errorf("why-blocked of an idle topic: %s", out)
	}
	p := newRawProducer(t, b, "kt-tx", true)
	p.send("kt", 1, 0, "a", "b", "c")
	var blocked []struct {
		Partition   int32 `json:"partition"`
		LastStable  int64 `json:"last_stable_offset"`
		Behind      int64 `json:"behind"`
		Hanging     bool  `json:"hanging"`
		Transaction struct {
			ID         string `json:"transactional_id"`
			State      string `json:"state"`
			ClientID   string `json:"client_id"`
			ClientHost string `json:"client_host"`
		} `json:"transaction"`
	}
	look := func() {
		t.Helper()
		blocked = nil
		if err := json.Unmarshal([]byte(ok("why-blocked", "--json", "kt")), &blocked); err != nil {
			t.Fatal(err)
		}
	}
	look()
	if len(blocked) != 1 || blocked[0].Partition != 1 || blocked[0].LastStable != 0 || blocked[0].Behind != 3 || blocked[0].Hanging ||
		blocked[0].Transaction.ID != "kt-tx" || blocked[0].Transaction.ClientID != "raw" || blocked[0].Transaction.ClientHost != "127.0.0.1" {
		t.Errorf("blocked by %+v", blocked)
	}
	for _, args := range [][]string{{"list"}, {"list", "--state", "Ongoing"}, {"describe", "kt-tx"}, {"why-blocked", "kt"}} {
		if out := ok(args...); !strings.Contains(out, "kt-tx") || !strings.Contains(out, "Ongoing") {
			t.Errorf("kaja txn %v:\n%s", args, out)
		}
	}
	restart(t, b, false)
	awaitLeaders(t, b, "kt", 2)
	p.c = dial(t, b)
	p.findCoordinator()
	if out := ok("why-blocked", "kt"); !strings.Contains(out, "unknown since failover") {
		t.Errorf("after a restart:\n%s", out)
	}
	ok("abort", "kt-tx")
	awaitStable(t, p.c, "kt", 1)
	wantCode(t, "the fenced producer's commit", p.end(true), codeProducerFenced)
	if out := run("abort", "kt-none"); out.Exit == 0 {
		t.Errorf("abort of an id that does not exist: %s", out.Out)
	}
	if os.Getenv("KAJA_COMPAT_SHOW") != "" {
		fmt.Println(ok("list"), ok("describe", "kt-tx"))
	}
}
