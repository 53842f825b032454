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
