package peer

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/kajamq/kaja/internal/planted"
)

// FormerOptions is what NewFormer needs.
type FormerOptions struct {
	Self   Candidate
	Listed []string // host:port of every node that is asked, this one among them if it shall found
	// Credentials is what this node and the others prove themselves by; Dial makes connections as they want them.
	Credentials Credentials
	Dial        func(ctx context.Context, network, addr string) (net.Conn, error)
	// NewClusterID draws the id of a new cluster.
	NewClusterID func() string
	// Adopt writes down the cluster id and who founds it ("" for a cluster that exists); both are durable when Adopt
	// returns. A process calls it at most twice.
	Adopt  func(clusterID, founder string) error
	Retry  time.Duration // between two rounds of questions
	Logger *slog.Logger
}

// Former is one node's part in the forming of a cluster: it answers who it is, and asks the others. Safe for concurrent
// use.
type Former struct {
	o FormerOptions

	mu   sync.Mutex // held while an id is written down: no second one may be adopted meanwhile
	self Candidate
}

// NewFormer makes one; nothing is asked before Run.
func NewFormer(o FormerOptions) *Former { return &Former{o: o, self: o.Self} }

// Self is what the node says of itself now.
func (f *Former) Self() Candidate {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.self
}

// Joined tells that the node holds the metadata of its cluster: who asks it may join, too.
func (f *Former) Joined() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.self.Founded = true
}

// adopt makes the node one of a cluster, and lets founder found it; both for ever. Another cluster is refused, and so is
// another founder.
func (f *Former) adopt(cluster, founder string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, by := f.self.ID.ClusterID, f.self.Founder
	switch {
	case id != "" && id != cluster:
		return fmt.Errorf("node %d belongs to cluster %s", f.self.ID.NodeID, id)
	case founder != "" && (f.self.Founded || by != "" && by != founder) && !planted.On(planted.LetsTwoFound):
		return fmt.Errorf("node %d does not wait for %s to found the cluster", f.self.ID.NodeID, founder)
	case id == cluster && (founder == "" || by == founder):
		return nil
	}
	if founder == "" {
		founder = by
	}
	if err := f.o.Adopt(cluster, founder); err != nil {
		return fmt.Errorf("write the cluster id: %w", err)
	}
	f.self.ID.ClusterID, f.self.Founder = cluster, founder
	return nil
}

// Run asks until it is clear what this node does: Plan.Step is Join or Found, the node has adopted Plan.ClusterID, and of
// Found every listed node has. It logs what it waits for.
func (f *Former) Run(ctx context.Context) (Plan, error) {
	said := ""
	for {
		answers, missing := f.ask(ctx, "")
		plan, err := Decide(f.Self(), f.o.Listed, answers)
		if err != nil {
			return Plan{}, err
		}
		plan.Addresses = map[ID]string{}
		for addr, c := range answers {
			plan.Addresses[ID{NodeID: c.ID.NodeID, DirectoryID: c.ID.DirectoryID}] = addr
		}
		if plan.Step != Wait {
			done, err := f.carryOut(ctx, &plan)
			if err != nil || done {
				return plan, err
			}
		}
		if why := fmt.Sprint(missing); why != said {
			said = why
			f.o.Logger.Info("waiting for the cluster to form", "without_answer", missing)
		}
		t := time.NewTimer(f.o.Retry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return Plan{}, fmt.Errorf("wait for the cluster to form: %w", ctx.Err())
		}
	}
}

// carryOut adopts the cluster; it is not done if somebody did not follow.
func (f *Former) carryOut(ctx context.Context, plan *Plan) (done bool, err error) {
	if plan.ClusterID == "" {
		plan.ClusterID = f.o.NewClusterID()
		if own := f.Self().ID.ClusterID; own != "" {
			plan.ClusterID = own // a founding that was cut short goes on
		}
	}
	if plan.Step == Join {
		err := f.adopt(plan.ClusterID, "")
		return err == nil, err
	}
	if err := f.adopt(plan.ClusterID, f.o.Self.ID.String()); err != nil {
		f.o.Logger.Info("another node founds the cluster", "err", err)
		return false, nil
	}
	answers, missing := f.ask(ctx, plan.ClusterID)
	again, err := Decide(f.Self(), f.o.Listed, answers)
	if err != nil || len(missing) > 0 && !planted.On(planted.FoundsUnanswered) || again.Step != Found {
		return false, err
	}
	if len(again.Founders) != len(plan.Founders) {
		return false, nil
	}
	for i := range again.Founders {
		if again.Founders[i].ClusterID != plan.ClusterID || again.Founders[i].DirectoryID != plan.Founders[i].DirectoryID {
			return false, nil
		}
	}
	plan.Founders = again.Founders
	f.mu.Lock()
	defer f.mu.Unlock()
	f.self.Founded = true
	return true, nil
}

// ask asks every listed node at once.
func (f *Former) ask(ctx context.Context, adopt string) (answers map[string]Candidate, missing []string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got := make([]*Candidate, len(f.o.Listed))
	var wg sync.WaitGroup
	for i, addr := range f.o.Listed {
		wg.Go(func() {
			c, err := f.askOne(ctx, addr, adopt)
			if err != nil {
				f.o.Logger.Debug("no answer while the cluster forms", "address", addr, "err", err)
				return
			}
			got[i] = &c
		})
	}
	wg.Wait()
	answers = map[string]Candidate{}
	for i, addr := range f.o.Listed {
		if got[i] != nil {
			answers[addr] = *got[i]
		} else {
			missing = append(missing, addr)
		}
	}
	return answers, missing
}

func (f *Former) askOne(ctx context.Context, addr, adopt string) (Candidate, error) {
	identity, err := f.o.Credentials.Identity(f.Self().ID)
	if err != nil {
		return Candidate{}, err
	}
	a, err := Caller{identity, f.o.Dial}.Ask(ctx, addr, Anybody, f.question(adopt))
	return a.Candidate, err
}

func (f *Former) question(adopt string) Question {
	if adopt == "" {
		return Question{}
	}
	return Question{Adopt: adopt, Founder: f.o.Self.ID.String()}
}

// Reply answers a question about the forming of the cluster, or who this node is; by is who asks.
func (f *Former) Reply(q Question, by ID) Answer {
	var a Answer
	switch {
	case q.Adopt == "":
	case q.Founder != by.String():
		a.Refused = "a node founds for itself only"
	default:
		if err := f.adopt(q.Adopt, q.Founder); err != nil {
			a.Refused = err.Error()
		}
	}
	a.Candidate = f.Self()
	return a
}

// Answer answers one question on a connection whose handshake said Call, and by whom; the caller owns the connection and
// closes it.
func (f *Former) Answer(conn net.Conn, by ID) error {
	return AnswerCall(conn, func(q Question) Answer { return f.Reply(q, by) })
}
