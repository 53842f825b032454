package broker

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// formatted is the checkpoint that kafka-storage format of Kafka 4.4.0 wrote with some options: standalone (--standalone),
// static (controller.quorum.voters), noinit (--no-initial-controllers), three (--initial-controllers), scram (--add-scram),
// old (--release-version 4.0-IV3), txn1 (--feature transaction.version=1).
func formatted(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/formatted/" + name + ".checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const formattedFile = "/data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"

func uuidOf(t *testing.T, s string) wire.UUID {
	t.Helper()
	u, err := wire.ParseUUID(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestFormattedIsRead(t *testing.T) {
	missing := []string{"group.version=1", "share.version=2", "streams.version=1"}
	levels := func(txn int16) map[string]int16 {
		return map[string]int16{"metadata.version": 33, "eligible.leader.replicas.version": 1, "transaction.version": txn}
	}
	voter := func(id wire.BrokerID, dir string, port uint16) coordrec.KRaftVoter {
		return coordrec.KRaftVoter{ID: id, DirectoryID: uuidOf(t, dir), Endpoints: []coordrec.KRaftEndpoint{{Name: "CONTROLLER", Host: "127.0.0.1", Port: port}}}
	}
	for name, want := range map[string]*Formatted{
		"static":     {Features: levels(2), Missing: missing},
		"standalone": {Features: levels(2), Missing: missing, Voters: []coordrec.KRaftVoter{voter(1, "KnamOoDRTUSbEDyRudpK1g", 19711)}},
		"txn1":       {Features: levels(1), Missing: missing, Voters: []coordrec.KRaftVoter{voter(1, "jNROuZe6Rne4srrBv4a5sQ", 19711)}},
		"noinit":     {Features: levels(2), Missing: missing, Joins: true},
		"three": {Features: levels(2), Missing: missing, Voters: []coordrec.KRaftVoter{
			voter(1, "P0IUEQLbTYSPH1DISQuN_Q", 19711), voter(2, "P0IUEQLbTYSPH1DISQuN_A", 19712), voter(3, "P0IUEQLbTYSPH1DISQuN_w", 19713)}},
	} {
		t.Run(name, func(t *testing.T) {
			fs := newMem()
			put(t, fs, formattedFile, string(formatted(t, name)))
			got, err := readFormatted(fs, []string{formattedFile})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What would get lost is refused by its name, and every byte stays as it was.
func TestFormattedIsRefused(t *testing.T) {
	half := func(name string) []byte { return formatted(t, name)[:300] }
	flipped := formatted(t, "static")
	flipped[200] ^= 1
	const use = "use the formatted directory of " + formattedFile + ": "
	for name, tt := range map[string]struct {
		content []byte
		dir     string
		want    string
	}{
		"SCRAM":            {formatted(t, "scram"), "", use + "it holds SCRAM credentials (--add-scram), which kaja does not have yet"},
		"another release":  {formatted(t, "old"), "", use + "it was formatted for metadata.version 25, and kaja has 33 to 33"},
		"cut short":        {half("static"), "", use},
		"damaged":          {flipped, "", use},
		"another node's":   {formatted(t, "standalone"), "", use + "its quorum is node 1 with directory KnamOoDRTUSbEDyRudpK1g, and this is node 1 with directory " + uuid(207).String()},
		"waits to join":    {formatted(t, "noinit"), "", use + "it was formatted with --no-initial-controllers, to join a quorum, and the configuration names no other controller"},
		"three of a kind":  {formatted(t, "three"), "", use + "its quorum has 3 controllers, and the configuration names no other than this node"},
		"nothing in there": {nil, "", use + "it says no metadata.version"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := newMem()
			put(t, fs, formattedFile, string(tt.content))
			put(t, fs, "/data/meta.properties", meta(1, 7, testCluster))
			before := tree(t, fs, "/data")
			b := newIn(t, fs, nil)
			err := b.Start(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Fatalf("start: %v\nwant %s", err, tt.want)
			}
			if diff := cmp.Diff(before, tree(t, fs, "/data")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The levels that the format asked for are those that the cluster begins with, and has after a restart.
func TestFormattedLevelsAreApplied(t *testing.T) {
	fs := newMem()
	put(t, fs, formattedFile, string(formatted(t, "txn1")))
	put(t, fs, "/data/meta.properties", "version=1\ncluster.id="+testCluster+"\nnode.id=1\ndirectory.id=jNROuZe6Rne4srrBv4a5sQ\n")
	for range 2 {
		n := start(t, fs, nil)
		if level, _ := n.Image().Feature("transaction.version"); level != 1 || n.identity.ClusterID != testCluster || n.identity.Metadata.ID != uuidOf(t, "jNROuZe6Rne4srrBv4a5sQ") {
			t.Errorf("transaction.version %d of %s in directory %s", level, n.identity.ClusterID, n.identity.Metadata.ID)
		}
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
