package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// Recover makes the stopped node that cfg describes the only voter of its cluster, and says what it did, or, without
// force, what it would do. It refuses while a majority of the voters, this node among them, answers or could.
func Recover(ctx context.Context, env Env, cfg *config.Config, force bool) (text string, err error) {
	nothing := &StartError{What: "recover the metadata in " + cfg.MetadataDir(), Err: errors.New("there are none"), Todo: "Nothing was changed. Name the settings of the node by --config and --set as at its start."}
	meta, err := readMeta(env.FS, cfg.MetadataDir())
	if err != nil {
		return "", err
	}
	if meta == nil || meta.clusterID == "" {
		return "", nothing
	}
	id, err := OpenIdentity(IdentityOptions{
		FS: env.FS, LogDirs: cfg.LogDirs(), MetadataDir: cfg.MetadataDir(), NodeID: wire.BrokerID(cfg.NodeID()), Forming: true,
		NewUUID: newIDs(env.Seed).uuid,
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, id.Close()) }()
	self := peer.ID{ClusterID: id.ClusterID, NodeID: id.NodeID, DirectoryID: id.Metadata.ID}
	founded, err := raftctl.Founded(env.FS, id.RaftDir(), id.ClusterID, env.Logger)
	if err != nil {
		return "", err
	}
	if !founded {
		return "", nothing
	}
	stored, err := raftctl.OpenStored(env.FS, id.RaftDir(), self, env.Logger)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, stored.Close()) }()
	return recoverStored(ctx, env, cfg, id, self, stored, force)
}

func recoverStored(ctx context.Context, env Env, cfg *config.Config, id *Identity, self peer.ID, stored *raftctl.Stored, force bool) (string, error) {
	members, err := stored.Members()
	if err != nil {
		return "", err
	}
	var voters, answer []string
	var others []peer.ID
	for _, m := range members {
		if !m.Voter {
			continue
		}
		voters = append(voters, fmt.Sprint(m.ID.NodeID))
		if m.ID.NodeID != self.NodeID || m.ID.DirectoryID != self.DirectoryID {
			others = append(others, m.ID)
		}
	}
	if len(others) == 0 && len(voters) == 1 {
		return "", &StartError{What: "recover the quorum", Err: errors.New("this node is its only voter"), Todo: "Nothing was changed. Start the node."}
	}
	if answer, err = whoAnswers(ctx, env, cfg, id, self, others); err != nil {
		return "", err
	}
	able := len(answer)
	if len(others) < len(voters) {
		able++ // this node would answer, too, were it not stopped
	}
	if able > len(voters)/2 {
		return "", &StartError{
			What: "recover the quorum", Err: fmt.Errorf("it is not lost: of the voters %s these answer: %s, and with this node they are a majority", strings.Join(voters, ", "), strings.Join(answer, ", ")),
			Todo: "Nothing was changed. Start this node.",
		}
	}
	index, term, err := stored.Last()
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf(`Cluster %s, voters %s; none but these answer: %s.
This node has the metadata up to entry %d of term %d, and all of it will count, also what no majority had agreed to.
What the others had decided after that is lost: topics, partitions, configurations, committed leaders and ISRs.
Records in partitions of which this node has no in-sync replica are lost with the nodes that had them.
The other nodes must never be started again with the directories that they have: they would be a second cluster under
the same id. Empty their log.dirs; they then join as new nodes.
`, self.ClusterID, strings.Join(voters, ", "), orNobody(answer), index, term)
	if !force {
		return text, &StartError{What: "recover the quorum", Err: errors.New("nothing was changed"), Todo: "Say --force if that is what you want."}
	}
	if err := stored.Recover(); err != nil {
		return text, err
	}
	return text + "Done: this node is the only voter. Start it.\n", nil
}

func orNobody(names []string) string {
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}

// whoAnswers asks the other voters, wherever they may be, all at once, and names those that answer. It fails where somebody is there
// who does not prove to be one of them, nor to be somebody else: it may be one of a majority that goes on.
func whoAnswers(ctx context.Context, env Env, cfg *config.Config, id *Identity, self peer.ID, others []peer.ID) ([]string, error) {
	hostname, _ := env.Hostname() // unknown: the node does not recognise its own address by it
	quorum, err := cfg.Quorum(hostname)
	if err != nil {
		return nil, err
	}
	book, err := newNodeBook(env.FS, id.RaftDir(), quorum.Voters)
	if err != nil {
		return nil, err
	}
	if !cfg.ProvesNodes() {
		return nil, &StartError{What: "ask the other voters", Err: errors.New("neither kaja.cluster.secret nor certificates are set"), Todo: "Name the settings of the node by --config and --set as at its start."}
	}
	dial := env.Dial
	env.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, &unreachableError{err}
		}
		return conn, nil
	}
	caller, err := callerAs(env, cfg, self)
	if err != nil {
		return nil, err
	}
	up, unproven := make([]bool, len(others)), make([]error, len(others))
	var wg sync.WaitGroup
	for i, other := range others {
		wg.Go(func() {
			up[i], unproven[i] = findVoter(ctx, caller, other, append(book.addresses(other), quorum.Listed...))
		})
	}
	wg.Wait()
	var out []string
	for i, other := range others {
		if up[i] {
			out = append(out, fmt.Sprint(other.NodeID))
		}
	}
	if err := errors.Join(unproven...); err != nil {
		return nil, &StartError{
			What: "ask the other voters", Err: err,
			Todo: "Nothing was changed. Who is there may be one of a majority that goes on: see that it has this node's secret or a certificate that is valid, and start it again, or stop it.",
		}
	}
	return out, nil
}

// unreachableError is a connection that could not be made: nobody is there.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// findVoter looks for a voter at each of the addresses. The error is of those where somebody is, of whom it cannot be told whether he is
// the voter; nil where it was found.
func findVoter(ctx context.Context, caller peer.Caller, voter peer.ID, at []string) (bool, error) {
	var unproven error
	seen := map[string]bool{}
	for _, addr := range at {
		if seen[addr] {
			continue
		}
		seen[addr] = true
		_, err := caller.Ask(ctx, addr, peer.Only(voter), peer.Question{})
		_, nobody := errors.AsType[*unreachableError](err)
		_, other := errors.AsType[*peer.OtherNodeError](err)
		_, refused := errors.AsType[*peer.Refusal](err)
		switch {
		case err == nil, refused:
			return true, nil
		case !nobody && !other:
			unproven = errors.Join(unproven, fmt.Errorf("somebody is at %s, who does not prove to be node %d or another one: %w", addr, voter.NodeID, err))
		}
	}
	return false, unproven
}
