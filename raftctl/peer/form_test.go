package peer

import (
	"fmt"
	"testing"

	"github.com/kajamq/kaja/wire"
)

func TestDecide(t *testing.T) {
	node := func(id int32, cluster string, founded bool) Candidate {
		return Candidate{ID: ID{ClusterID: cluster, NodeID: wire.BrokerID(id), DirectoryID: wire.UUID{15: byte(id)}}, Controller: true, Founded: founded}
	}
	broker := node(1, "", false)
	broker.Controller = false
	twin := node(2, "", false)
	twin.ID.DirectoryID[0] = 9
	promised := node(2, "x", false)
	promised.Founder = node(9, "", false).ID.String()
	ours := node(2, "x", false)
	ours.Founder = node(1, "", false).ID.String()
	formatted := func(id int32, quorum ...int32) Candidate {
		c := node(id, "f", false)
		c.Joins = len(quorum) == 0
		for _, q := range quorum {
			c.Quorum = append(c.Quorum, node(q, "", false).ID)
		}
		return c
	}
	notTheSame := formatted(3, 1, 3)
	notTheSame.Quorum[1].DirectoryID[0] = 9
	listed := []string{"a", "b", "c"}
	for _, tt := range []struct {
		name    string
		self    Candidate
		answers []Candidate // of a, b, c
		want    string
	}{
		{"the lowest founds", node(1, "", false), []Candidate{node(1, "", false), node(2, "", false), node(3, "", false)}, `found "" 1 2 3`},
		{"others wait", node(2, "", false), []Candidate{node(1, "", false), node(2, "", false), node(3, "", false)}, "wait"},
		{"not before all answer", node(1, "", false), []Candidate{node(1, "", false), node(2, "", false)}, "wait"},
		{"a founding goes on", node(1, "x", false), []Candidate{node(1, "x", false), node(2, "x", false), node(3, "", false)}, `found "x" 1 2 3`},
		{"under the id that one was formatted with", node(1, "", false), []Candidate{node(1, "", false), node(2, "y", false), node(3, "", false)}, `found "y" 1 2 3`},
		{"there is a cluster", node(1, "", false), []Candidate{node(1, "", false), node(2, "", false), node(3, "x", true)}, `join "x"`},
		{"there is a cluster, and one is silent", node(1, "", false), []Candidate{node(1, "", false), node(3, "x", true)}, `join "x"`},
		{"who is not listed never founds", node(0, "", false), []Candidate{node(1, "", false), node(2, "", false), node(3, "", false)}, "wait"},
		{"a broker founds nothing", broker, []Candidate{broker, node(2, "", false), node(3, "", false)}, "wait"},
		{"the lowest controller founds", node(2, "", false), []Candidate{broker, node(2, "", false), node(3, "", false)}, `found "" 2 3`},
		{"one lets another found", node(1, "", false), []Candidate{node(1, "", false), promised, node(3, "", false)}, "wait"},
		{"one lets us found already", node(1, "x", false), []Candidate{node(1, "x", false), ours, node(3, "", false)}, `found "x" 1 2 3`},
		{"two clusters", node(1, "", false), []Candidate{node(1, "", false), node(2, "x", false), node(3, "y", true)}, "error: the listed nodes belong to different clusters, x and y"},
		{"another cluster", node(1, "z", false), []Candidate{node(2, "x", true)}, "error: this node belongs to cluster z, the listed ones to x"},
		{"one id twice", node(1, "", false), []Candidate{node(1, "", false), node(2, "", false), twin}, "error: two listed nodes have the node.id 2: give one of them another"},
		{"formatted as one, and two that join", node(1, "f", false), []Candidate{formatted(1), formatted(2), formatted(3, 3)}, "wait"},
		{"formatted as one", node(3, "f", false), []Candidate{formatted(1), formatted(2), formatted(3, 3)}, `found "f" 3`},
		{"formatted as two, and one that is empty", node(2, "f", false), []Candidate{node(1, "", false), formatted(2, 2, 3), formatted(3, 2, 3)}, `found "f" 2 3`},
		{"formatted as one each", node(1, "f", false), []Candidate{formatted(1, 1), formatted(2, 2), formatted(3, 3)}, "error: the directories of nodes 1 and 2 were formatted for different quorums"},
		{"formatted for a directory that is gone", node(1, "f", false), []Candidate{node(1, "f", false), node(2, "f", false), notTheSame},
			"error: the directory of node 3 was formatted for a quorum with 3@" + notTheSame.Quorum[1].DirectoryID.String() + ", which is no controller among the listed nodes"},
		{"all formatted to join", node(1, "f", false), []Candidate{formatted(1), formatted(2), formatted(3)},
			"error: every listed node was formatted with --no-initial-controllers, to join a quorum: format one of them with --standalone, or begin with empty directories"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answers := map[string]Candidate{}
			for i, a := range tt.answers {
				answers[listed[i]] = a
			}
			plan, err := Decide(tt.self, listed, answers)
			got := [...]string{"wait", fmt.Sprintf("join %q", plan.ClusterID), fmt.Sprintf("found %q", plan.ClusterID)}[plan.Step]
			for _, f := range plan.Founders {
				got += fmt.Sprintf(" %d", f.NodeID)
			}
			if err != nil {
				got = "error: " + err.Error()
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
