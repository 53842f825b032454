package control

import (
	"context"
	"maps"
	"slices"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// RegisterBroker registers a broker of this node, and gives its epoch.
func (a *Access) RegisterBroker(ctx context.Context, reg raftctl.Registration) (epoch wire.BrokerEpoch, err error) {
	err = a.call(ctx, askAgain, func(ctx context.Context) (err error) {
		epoch, err = a.o.Local.RegisterBroker(ctx, reg)
		return err
	}, func(ctx context.Context, to wire.BrokerID) error {
		resp, err := a.o.Lanes.Beats.Do(ctx, to, a.registration(reg))
		if err != nil {
			return err
		}
		r := resp.(*kmsg.BrokerRegistrationResponse)
		epoch = wire.BrokerEpoch(r.BrokerEpoch)
		return coded(r.ErrorCode, nil)
	})
	return epoch, err
}

func (a *Access) registration(reg raftctl.Registration) *kmsg.BrokerRegistrationRequest {
	r := kmsg.NewPtrBrokerRegistrationRequest()
	r.BrokerID, r.ClusterID, r.IncarnationID = int32(reg.ID), a.o.ClusterID, reg.Incarnation
	r.Rack, r.PreviousBrokerEpoch = reg.Rack, int64(reg.PreviousEpoch)
	for _, e := range reg.Endpoints {
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Listener, e.Host, e.Port, e.Protocol
		r.Listeners = append(r.Listeners, l)
	}
	for _, name := range slices.Sorted(maps.Keys(reg.Features)) {
		f := kmsg.NewBrokerRegistrationRequestFeature()
		f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = name, reg.Features[name].Min, reg.Features[name].Max
		r.Features = append(r.Features, f)
	}
	r.LogDirs = rawIDs(reg.LogDirs)
	return r
}

func rawIDs(ids []wire.UUID) [][16]byte {
	out := make([][16]byte, len(ids))
	for i, id := range ids {
		out[i] = id
	}
	return out
}

// Heartbeat sends one heartbeat. It is not repeated for longer than ctx allows.
func (a *Access) Heartbeat(ctx context.Context, hb raftctl.Heartbeat) (reply raftctl.HeartbeatReply, err error) {
	err = a.call(ctx, askAgain, func(ctx context.Context) (err error) {
		reply, err = a.o.Local.Heartbeat(ctx, hb)
		return err
	}, func(ctx context.Context, to wire.BrokerID) error {
		r := kmsg.NewPtrBrokerHeartbeatRequest()
		r.BrokerID, r.BrokerEpoch, r.CurrentMetadataOffset = int32(hb.ID), int64(hb.Epoch), int64(hb.Offset)
		r.WantFence, r.WantShutdown, r.OfflineLogDirs = hb.WantFence, hb.WantShutDown, rawIDs(hb.OfflineDirs)
		if hb.Cordoned != nil {
			r.CordonedLogDirs = rawIDs(hb.Cordoned)
		}
		if len(hb.Gone) > 0 {
			r.UnknownTags.Set(wire.TagGoneTopics, wire.AppendUUIDs(nil, hb.Gone))
		}
		resp, err := a.o.Lanes.Beats.Do(ctx, to, r)
		if err != nil {
			return err
		}
		out := resp.(*kmsg.BrokerHeartbeatResponse)
		reply = raftctl.HeartbeatReply{CaughtUp: out.IsCaughtUp, Fenced: out.IsFenced, ShouldShutDown: out.ShouldShutdown}
		reply.Metadata, _ = wire.OffsetTag(&out.UnknownTags)
		reply.Since = wire.SinceTag(&out.UnknownTags)
		return coded(out.ErrorCode, nil)
	})
	return reply, err
}

// AlterPartitions asks for other ISRs of partitions that this broker leads; results are parallel to changes. Nothing is sent
// twice: after any error the request may yet be carried out.
func (a *Access) AlterPartitions(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch, changes []raftctl.ISRChange) (results []raftctl.ISRResult, err error) {
	err = a.call(ctx, tellNow, func(ctx context.Context) (err error) {
		results, err = a.o.Local.AlterPartitions(ctx, id, epoch, changes)
		return err
	}, func(ctx context.Context, to wire.BrokerID) error {
		resp, err := a.o.Lanes.ISR.Do(ctx, to, alterPartition(id, epoch, changes))
		if err != nil {
			return err
		}
		out := resp.(*kmsg.AlterPartitionResponse)
		results = isrResults(out, changes)
		return coded(out.ErrorCode, nil)
	})
	return results, err
}

func alterPartition(id wire.BrokerID, epoch wire.BrokerEpoch, changes []raftctl.ISRChange) *kmsg.AlterPartitionRequest {
	r := kmsg.NewPtrAlterPartitionRequest()
	r.BrokerID, r.BrokerEpoch = int32(id), int64(epoch)
	at := map[wire.UUID]int{}
	for _, ch := range changes {
		i, ok := at[ch.TopicID]
		if !ok {
			i = len(r.Topics)
			at[ch.TopicID] = i
			t := kmsg.NewAlterPartitionRequestTopic()
			t.TopicID = ch.TopicID
			r.Topics = append(r.Topics, t)
		}
		p := kmsg.NewAlterPartitionRequestTopicPartition()
		p.Partition, p.LeaderEpoch, p.PartitionEpoch = int32(ch.Partition), int32(ch.LeaderEpoch), int32(ch.PartitionEpoch)
		if ch.Recovering {
			p.LeaderRecoveryState = 1
		}
		if ch.LogEpoch > ch.LeaderEpoch {
			wire.SetLogEpochTag(&p.UnknownTags, ch.LogEpoch)
		}
		for _, m := range ch.ISR {
			s := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			s.BrokerID, s.BrokerEpoch = int32(m.ID), int64(m.Epoch)
			p.NewEpochISR = append(p.NewEpochISR, s)
		}
		r.Topics[i].Partitions = append(r.Topics[i].Partitions, p)
	}
	return r
}

// isrResults brings the answer into the order of the changes. What the controller does not answer is unknown.
func isrResults(resp *kmsg.AlterPartitionResponse, changes []raftctl.ISRChange) []raftctl.ISRResult {
	type key struct {
		topic     wire.UUID
		partition wire.PartitionID
	}
	at := map[key]raftctl.ISRResult{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			r := raftctl.ISRResult{}
			if p.ErrorCode != 0 {
				r.Err = refused(p.ErrorCode, nil)
			} else {
				r.Partition = &image.Partition{
					ID: wire.PartitionID(p.Partition), Leader: wire.BrokerID(p.LeaderID), LeaderEpoch: wire.LeaderEpoch(p.LeaderEpoch),
					PartitionEpoch: wire.PartitionEpoch(p.PartitionEpoch), Recovering: p.LeaderRecoveryState == 1,
				}
				for _, id := range p.ISR {
					r.Partition.ISR = append(r.Partition.ISR, wire.BrokerID(id))
				}
			}
			at[key{t.TopidID, wire.PartitionID(p.Partition)}] = r
		}
	}
	out := make([]raftctl.ISRResult, len(changes))
	for i, ch := range changes {
		r, ok := at[key{ch.TopicID, ch.Partition}]
		if !ok {
			r.Err = &raftctl.Error{Code: kerr.UnknownServerError}
		}
		out[i] = r
	}
	return out
}

// AssignDirs says where this broker's replicas lie; results are parallel to assignments, nil for success.
func (a *Access) AssignDirs(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch, assignments []raftctl.DirAssignment) (results []*raftctl.Error, err error) {
	err = a.call(ctx, askAgain, func(ctx context.Context) (err error) {
		results, err = a.o.Local.AssignDirs(ctx, id, epoch, assignments)
		return err
	}, func(ctx context.Context, to wire.BrokerID) error {
		resp, err := a.o.Lanes.Other.Do(ctx, to, assignReplicasToDirs(id, epoch, assignments))
		if err != nil {
			return err
		}
		out := resp.(*kmsg.AssignReplicasToDirsResponse)
		results = dirResults(out, assignments)
		return coded(out.ErrorCode, nil)
	})
	return results, err
}

func assignReplicasToDirs(id wire.BrokerID, epoch wire.BrokerEpoch, assignments []raftctl.DirAssignment) *kmsg.AssignReplicasToDirsRequest {
	r := kmsg.NewPtrAssignReplicasToDirsRequest()
	r.BrokerID, r.BrokerEpoch = int32(id), int64(epoch)
	for _, as := range assignments {
		i := slices.IndexFunc(r.Directories, func(d kmsg.AssignReplicasToDirsRequestDirectory) bool { return d.ID == as.Directory })
		if i < 0 {
			d := kmsg.NewAssignReplicasToDirsRequestDirectory()
			d.ID = as.Directory
			i, r.Directories = len(r.Directories), append(r.Directories, d)
		}
		d := &r.Directories[i]
		j := slices.IndexFunc(d.Topics, func(t kmsg.AssignReplicasToDirsRequestDirectoryTopic) bool { return t.TopicID == as.TopicID })
		if j < 0 {
			t := kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
			t.TopicID = as.TopicID
			j, d.Topics = len(d.Topics), append(d.Topics, t)
		}
		p := kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition()
		p.Partition = int32(as.Partition)
		d.Topics[j].Partitions = append(d.Topics[j].Partitions, p)
	}
	return r
}

func dirResults(resp *kmsg.AssignReplicasToDirsResponse, assignments []raftctl.DirAssignment) []*raftctl.Error {
	at := map[raftctl.DirAssignment]int16{}
	for _, d := range resp.Directories {
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				at[raftctl.DirAssignment{Directory: d.ID, TopicID: t.TopicID, Partition: wire.PartitionID(p.Partition)}] = p.ErrorCode
			}
		}
	}
	out := make([]*raftctl.Error, len(assignments))
	for i, as := range assignments {
		code, ok := at[as]
		switch {
		case !ok:
			out[i] = &raftctl.Error{Code: kerr.UnknownServerError}
		case code != 0:
			out[i] = refused(code, nil)
		}
	}
	return out
}

// AllocateProducerIDs gets a block of producer ids. One whose answer is lost is never used.
func (a *Access) AllocateProducerIDs(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch) (block raftctl.ProducerIDs, err error) {
	err = a.call(ctx, askAgain, func(ctx context.Context) (err error) {
		block, err = a.o.Local.AllocateProducerIDs(ctx, id, epoch)
		return err
	}, func(ctx context.Context, to wire.BrokerID) error {
		r := kmsg.NewPtrAllocateProducerIDsRequest()
		r.BrokerID, r.BrokerEpoch = int32(id), int64(epoch)
		resp, err := a.o.Lanes.Other.Do(ctx, to, r)
		if err != nil {
			return err
		}
		out := resp.(*kmsg.AllocateProducerIDsResponse)
		block = raftctl.ProducerIDs{First: wire.ProducerID(out.ProducerIDStart), Count: int64(out.ProducerIDLen)}
		return coded(out.ErrorCode, nil)
	})
	return block, err
}
