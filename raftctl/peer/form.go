package peer

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
)

// Candidate is what a listed node says of itself while a cluster forms.
type Candidate struct {
	ID         ID   // ClusterID "" while the node has adopted none
	Controller bool // it may vote
	Founded    bool // it holds, or is about to hold, a metadata log
	// Founder is the ID, as text, of the node that it has let found the cluster; "" for none yet.
	Founder string
	// Quorum is the first voters, by node id, that its directory was formatted for; nil: nobody has said.
	Quorum []ID `json:",omitempty"`
	// Joins: its directory was formatted to join a quorum, and to be none of the first voters.
	Joins bool `json:",omitempty"`
}

// Plan is what a node does next while a cluster forms.
type Plan struct {
	Step Step
	// ClusterID is the cluster to join, or to found; "" to found one under a new id.
	ClusterID string
	Founders  []ID // of Found: the first voters, by node id
	// Addresses is where those who answered are, by their ids without the cluster's.
	Addresses map[ID]string
}

// Step is the kind of a Plan.
type Step uint8

// Steps.
const (
	Wait  Step = iota // ask again: somebody has not answered, or another founds
	Join              // there is a cluster
	Found             // this node founds it, once every node has adopted the id
)

// Decide says what self does when it has heard answers, by the address asked, of all that are listed. The rules make one
// cluster or none: only the lowest controller id founds, only after every listed node has answered, only while none of
// them holds metadata, only under one cluster id, and only if every node lets it, which each does for one node, once for
// all: so that lists which overlap do not make two clusters of one id either (C12). Where directories were formatted for a
// quorum, its members are the first voters, and the lowest of them founds.
func Decide(self Candidate, listed []string, answers map[string]Candidate) (Plan, error) {
	byNode := map[int32]Candidate{}
	cluster, listedSelf := "", false
	for _, addr := range slices.Sorted(maps.Keys(answers)) {
		c := answers[addr]
		if old, ok := byNode[int32(c.ID.NodeID)]; ok && old.ID.DirectoryID != c.ID.DirectoryID {
			return Plan{}, fmt.Errorf("two listed nodes have the node.id %d: give one of them another", c.ID.NodeID)
		}
		byNode[int32(c.ID.NodeID)] = c
		listedSelf = listedSelf || c.ID.DirectoryID == self.ID.DirectoryID
		switch {
		case c.ID.ClusterID == "" || c.ID.ClusterID == cluster:
		case cluster == "":
			cluster = c.ID.ClusterID
		default:
			return Plan{}, fmt.Errorf("the listed nodes belong to different clusters, %s and %s", cluster, c.ID.ClusterID)
		}
	}
	if self.ID.ClusterID != "" && cluster != "" && cluster != self.ID.ClusterID {
		return Plan{}, fmt.Errorf("this node belongs to cluster %s, the listed ones to %s", self.ID.ClusterID, cluster)
	}
	for _, c := range byNode {
		if c.Founded {
			return Plan{Step: Join, ClusterID: cluster}, nil
		}
	}
	if !listedSelf || !self.Controller || len(answers) < len(listed) && !planted.On(planted.FoundsUnanswered) {
		return Plan{Step: Wait}, nil
	}
	founders, err := firstVoters(byNode)
	if err != nil {
		return Plan{}, err
	}
	if founders[0].NodeID != self.ID.NodeID {
		return Plan{Step: Wait}, nil
	}
	for _, c := range byNode {
		if c.Founder != "" && c.Founder != self.ID.String() && !planted.On(planted.LetsTwoFound) {
			return Plan{Step: Wait}, nil
		}
	}
	return Plan{Step: Found, ClusterID: cluster, Founders: founders}, nil
}

// firstVoters are the controllers among the listed nodes that a new cluster begins with, by node id.
func firstVoters(byNode map[int32]Candidate) ([]ID, error) {
	var written, founders []ID
	var by wire.BrokerID
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		c := byNode[node]
		switch {
		case len(c.Quorum) == 0:
		case written == nil:
			written, by = c.Quorum, c.ID.NodeID
		case !slices.EqualFunc(written, c.Quorum, sameNode):
			return nil, fmt.Errorf("the directories of nodes %d and %d were formatted for different quorums", by, node)
		}
		if c.Controller && !c.Joins {
			founders = append(founders, c.ID)
		}
	}
	if written == nil {
		if len(founders) == 0 {
			return nil, errors.New("every listed node was formatted with --no-initial-controllers, to join a quorum: format one of them with --standalone, or begin with empty directories")
		}
		return founders, nil
	}
	for _, w := range written {
		if i := slices.IndexFunc(founders, func(f ID) bool { return sameNode(f, w) }); i < 0 {
			return nil, fmt.Errorf("the directory of node %d was formatted for a quorum with %s, which is no controller among the listed nodes", by, w)
		}
	}
	return slices.DeleteFunc(founders, func(f ID) bool {
		return !slices.ContainsFunc(written, func(w ID) bool { return sameNode(f, w) })
	}), nil
}

// sameNode compares nodes, whatever they know of their cluster.
func sameNode(a, b ID) bool { return a.NodeID == b.NodeID && a.DirectoryID == b.DirectoryID }
