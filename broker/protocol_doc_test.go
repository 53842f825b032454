package broker

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/vfs/memfs"
)

func TestProtocolSupport(t *testing.T) {
	got := ProtocolSupport([]server.Route{
		{Key: 0, Min: 0, Max: 13, FirstServed: 3},
		{Key: 1, Min: 4, Max: 17},
		{Key: 18, Min: 0, Max: 5},
		{Key: 62, Min: 0, Max: 4},
	})
	for _, want := range []string{
		"| 0 | Produce | 0–13 | 0–13 | 0–2 only advertised, for old clients; the connection is closed, as by Kafka |\n",
		"| 1 | Fetch | 4–18 | 4–17 | in part |\n",
		"| 2 | ListOffsets | 1–11 |  |  |\n",
		"| 45 | AlterPartitionReassignments | 0–1 |  | replicas cannot be moved between nodes yet |\n",
		"| 18 | ApiVersions | 0–5 | 0–5 |  |\n",
		"| 62 | BrokerRegistration | not advertised | 0–4 |  |\n",
		"\n2 of Kafka's 77 APIs are served in their whole range.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

var update = flag.Bool("update", false, "write docs/protocol-support.md instead of comparing it")

// Each key that Kafka advertises is served in its whole range or says why not, and none does both.
func TestWhatIsMissingHasAReason(t *testing.T) {
	served := map[int16]server.Route{}
	for _, r := range start(t, memfs.New(nil), nil).routes.Routes(server.NewConn(1, "PLAINTEXT", nil, nil)) {
		served[r.Key] = r
	}
	for _, k := range kafkaRanges {
		r, ok := served[k.key]
		if ok && (r.Min != k.min || r.Max != k.max) {
			t.Errorf("%s is advertised as %s, by Kafka as %s", apiName(k.key), versions(r.Min, r.Max), versions(k.min, k.max))
		}
		if reason := whyMissing(k.key); ok == (reason != "") {
			t.Errorf("%s is served: %v, and the reason why not: %q", apiName(k.key), ok, reason)
		}
		delete(served, k.key)
	}
	for key := range served {
		t.Errorf("%s is advertised to clients, and Kafka does not", apiName(key))
	}
	for reason, keys := range missing {
		for _, key := range keys {
			if !slices.ContainsFunc(kafkaRanges, func(k kafkaRange) bool { return k.key == key }) {
				t.Errorf("%d is missing because %s, and Kafka does not serve it", key, reason)
			}
		}
	}
}

func TestProtocolDocIsCurrent(t *testing.T) {
	const name = "../docs/protocol-support.md"
	want := ProtocolSupport(start(t, memfs.New(nil), nil).routes.Routes(server.NewConn(1, "PLAINTEXT", nil, nil)))
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s does not match what a node serves; run: make gen", name)
	}
}
