package raftctl

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire/coordrec"
)

// serverID is how raft knows a node: a wiped directory makes another server of it, which may not vote as the old one did.
func serverID(id peer.ID) raft.ServerID { return raft.ServerID(id.String()) }

// addresses tells raft where its peers are: the address of a node is its id, which the stream layer looks up at every
// dial. What raft has stored is as old as the membership, and is not used.
type addresses struct{}

// ServerAddr implements raft.ServerAddressProvider.
func (addresses) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	return raft.ServerAddress(id), nil
}

func (c *Controller) raftConfig(logger *raftLogger) *raft.Config {
	cfg := raft.DefaultConfig()
	cfg.ProtocolVersion = raft.ProtocolVersionMax
	cfg.LocalID = serverID(c.self())
	cfg.Logger = logger
	cfg.MaxAppendEntries = 512
	cfg.CommitTimeout = commitTimeout
	cfg.TrailingLogs = trailingLogs
	cfg.ShutdownOnRemove = false
	cfg.NoLegacyTelemetry = true
	// Snapshots are taken by Controller.snapshot: raft counts entries, not bytes.
	cfg.SnapshotInterval, cfg.SnapshotThreshold = 365*24*time.Hour, 1<<62
	// Above what hasten sets.
	timeout := c.timeout()
	cfg.HeartbeatTimeout, cfg.ElectionTimeout = timeout+time.Millisecond, timeout+time.Millisecond
	// Nothing rests on a deposed leader knowing that it is one: what counts is committed, entries of an earlier controller
	// have no effect, and brokers are told how old its word is (HeartbeatReply.Since). A shorter lease would only end leaderships
	// on a machine that is out of breath.
	cfg.LeaderLeaseTimeout = timeout
	return cfg
}

// commitTimeout is how long after its last entries, at least, raft tells a peer by itself what is committed, and sends it what it has missed; at
// most twice that. The pusher has told it by then, also one that has come back, and every 50 ms, raft's default, is a third of what
// an idle controller does.
const commitTimeout = time.Second

// timeout is how long a follower does without its leader.
func (c *Controller) timeout() time.Duration {
	if c.opts.Streams == nil {
		return loneTimeout
	}
	return electionTimeout
}

// hasten makes the only voter stand for election at once: when its timeouts are made smaller, a follower's timer fires
// immediately. With other voters this would disturb elections.
func (c *Controller) hasten() error {
	rc := c.raft.ReloadableConfig()
	rc.HeartbeatTimeout, rc.ElectionTimeout = c.timeout(), c.timeout()
	return c.raft.ReloadConfig(rc)
}

func (c *Controller) start(logger *raftLogger) error {
	known, err := c.store.HasState()
	if err != nil {
		return fmt.Errorf("look into the metadata store: %w", err)
	}
	if !known && c.opts.Holds {
		return ErrNoMetadata
	}
	if err := c.preview(); err != nil {
		return err
	}
	cfg := c.raftConfig(logger)
	notify := make(chan bool, 1)
	cfg.NotifyCh = notify
	c.wg.Go(func() { c.watch(notify) })
	c.wg.Go(c.publish)
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: addresses{}, Logger: logger, Stream: streams{c.streams}, MaxPool: 3, Timeout: rpcTimeout,
		// No pipelining: where a pipeline's reader ends at a refusal while its sender is full, hashicorp/raft 1.8.0 waits for
		// itself, and its shutdown for it. Entries are batched before they are proposed, so that one in flight is enough.
		MaxRPCsInFlight: 1,
	})
	if !known && !c.opts.Join {
		if err := c.store.Bootstrap(c.founders(cfg.LocalID)); err != nil {
			return errors.Join(fmt.Errorf("make a new metadata log: %w", err), transport.Close())
		}
	}
	c.inject = newInjector(cfg.LocalID, transport, c.opts.DiskHangs)
	if known { // its former life may have said yes to a leader until now
		c.inject.pledge.give(nil, time.Now())
	}
	c.inject.silence.observe = func(d time.Duration) { c.metrics.leaderSilence.Observe(d.Seconds()) }
	c.pusher = newPusher(cfg.LocalID, c.inject)
	c.inject.back = c.pusher.again
	c.wg.Go(func() { c.inject.run(c.stop) })
	c.raft, err = raft.NewRaft(cfg, c.fsm, c.store, votes{c.store}, c.store.Snapshots(), c.inject)
	if err != nil {
		return errors.Join(fmt.Errorf("start raft: %w", err), transport.Close())
	}
	c.inject.raft.Store(c.raft)
	if err := c.checkMember(cfg.LocalID); err != nil {
		return err
	}
	c.wg.Go(func() {
		select {
		case <-c.store.Failed():
			c.fail(c.store.Err())
		case <-c.stop:
		}
	})
	c.wg.Go(c.decide)
	c.wg.Go(c.settle)
	c.wg.Go(c.snapshot)
	if c.opts.Streams == nil {
		return c.hasten()
	}
	if !known && len(c.opts.Founders) > 0 || c.soleVoter() { // those that it founds with have no log yet, and do not stand
		if err := c.hasten(); err != nil {
			return err
		}
	}
	c.wg.Go(c.follow)
	c.wg.Go(c.observe)
	c.wg.Go(c.watchLeader)
	c.wg.Go(func() { c.pusher.run(c.raft, c.stop) })
	if c.opts.Status != nil {
		c.wg.Go(c.watchVoters)
	}
	return nil
}

// founders is the members that a new cluster begins with.
func (c *Controller) founders(self raft.ServerID) raft.Configuration {
	if len(c.opts.Founders) == 0 {
		return raft.Configuration{Servers: []raft.Server{{ID: self, Address: raft.ServerAddress(self)}}}
	}
	var cfg raft.Configuration
	for _, f := range c.opts.Founders {
		cfg.Servers = append(cfg.Servers, raft.Server{ID: serverID(f), Address: raft.ServerAddress(f.String())})
	}
	return cfg
}

// preview reads every entry that raft will apply, so that a log of a later release is refused before anything starts.
func (c *Controller) preview() error {
	first, err := c.store.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the metadata log: %w", err)
	}
	last, err := c.store.LastIndex()
	if err != nil {
		return fmt.Errorf("read the metadata log: %w", err)
	}
	var l raft.Log
	for i := first; i != 0 && i <= last; i++ {
		if err := c.store.GetLog(i, &l); err != nil {
			return fmt.Errorf("read the metadata log: %w", err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		if _, err := decodeEntry(l.Data); err != nil {
			var unknown *coordrec.UnknownRecordError
			if errors.As(err, &unknown) {
				return fmt.Errorf("metadata entry %d was written by a later release: %w: run a release that knows it", i, err)
			}
			return fmt.Errorf("metadata entry %d: %w", i, err)
		}
	}
	return nil
}

// checkMember refuses a store that belongs to another node or directory. A node that was taken out of the quorum is no member:
// it stands for no election, and waits to be added again.
func (c *Controller) checkMember(self raft.ServerID) error {
	f := c.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return fmt.Errorf("read the members of the metadata log: %w", err)
	}
	servers := f.Configuration().Servers
	if c.opts.Streams == nil && len(servers) > 1 {
		return ErrNeedsPeers
	}
	others := len(servers) > 0 || c.opts.Join // what it is a member of may be
	for _, s := range servers {
		if s.ID == self {
			return nil
		}
		id, err := peer.ParseID(string(s.ID))
		if err != nil {
			return fmt.Errorf("read the members of the metadata log: %w", err)
		}
		others = others && id.NodeID != c.opts.NodeID && id.DirectoryID != c.opts.DirectoryID
	}
	if others && c.opts.Streams != nil {
		return nil
	}
	return fmt.Errorf("the metadata log in %s belongs to %v, this node is %s: node.id or the directory's identity has changed", c.opts.Dir, servers, self)
}

// watch keeps the newest word on the leadership, so that raft never waits for anybody to read it.
func (c *Controller) watch(notify <-chan bool) {
	for {
		select {
		case leads := <-notify:
			if !leads {
				select {
				case c.unled <- struct{}{}:
				default:
				}
			}
			select {
			case <-c.leads:
			default:
			}
			c.leads <- leads
		case <-c.stop:
			return
		}
	}
}

// current is the committed image.
func (c *Controller) committed() *image.Image { return c.fsm.current.Load() }
