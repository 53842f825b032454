package raftctl

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// runMore runs the commands that only a cluster of several brokers needs.
func (s *scripted) runMore(t *testing.T, td *datadriven.TestData, id wire.BrokerID, epoch wire.BrokerEpoch) ([]coordrec.MetadataRecord, string, error) {
	now := time.Unix(int64(num(t, td, "now", 0)), 0)
	switch td.Cmd {
	case "isr":
		return s.isr(t, td, id, epoch)
	case "elect":
		kind := PreferredElection
		if arg(td, "kind", "preferred") == "unclean" {
			kind = UncleanElection
		}
		var names []PartitionName
		if topic := arg(td, "topic", ""); topic != "" {
			names = []PartitionName{{topic, wire.PartitionID(num(t, td, "p", 0))}}
		}
		records, results, err := s.d.electLeaders(s.img, kind, names)
		said := ""
		for _, r := range results {
			if r.Err != nil {
				said += fmt.Sprintf("%s-%d: %v\n", r.Topic, r.Partition, r.Err)
			}
		}
		return records, said, err
	case "balance":
		return s.d.balance(s.img), "", nil
	case "heartbeat":
		hb := Heartbeat{ID: id, Epoch: wire.BrokerEpoch(num(t, td, "epoch", int(epoch))), Offset: s.img.Offset() - wire.Offset(num(t, td, "behind", 0)),
			WantFence: td.HasArg("fence"), WantShutDown: td.HasArg("stop")}
		if td.HasArg("offline") {
			b, _ := s.img.Broker(id)
			hb.OfflineDirs = b.LogDirs[num(t, td, "offline", 0):]
		}
		if td.HasArg("gone") {
			for removed := range s.img.Removed() {
				hb.Gone = append(hb.Gone, removed)
			}
		}
		records, reply, err := s.d.heartbeat(s.live, s.img, s.img.Offset(), hb, now)
		if err != nil {
			return nil, "", err
		}
		said := fmt.Sprintf("caughtup=%v fenced=%v stop=%v\n", reply.CaughtUp, reply.Fenced, reply.ShouldShutDown)
		for _, r := range records {
			if _, ok := r.(*coordrec.ReplicasRemovedRecord); ok {
				said += "removed topic forgotten\n"
			}
		}
		return records, said, nil
	case "delete":
		records, _, err := s.d.deleteTopics(s.img, []DeletedTopic{{Name: arg(td, "topic", "")}})
		return records, "", err
	case "quorum":
		var members []Member
		for b := range s.img.Brokers() {
			members = append(members, Member{ID: memberOf(b.ID, 0), Voter: b.ID < 3})
			if b.ID == wire.BrokerID(num(t, td, "wiped", -1)) {
				members = append(members, Member{ID: peer.ID{NodeID: b.ID, DirectoryID: b.LogDirs[0]}})
			}
		}
		members = append(members, withoutBrokers(t, td)...)
		q := s.live.quorum(s.img, id, members, now)
		said := fmt.Sprintf("leader=%d end=%d\n", q.Leader, q.End)
		for _, m := range q.Members {
			lag, heard, caught := "unknown", "unknown", "unknown"
			if m.End != wire.NoOffset {
				lag = strconv.Itoa(int(q.End - m.End))
			}
			if !m.Heard.IsZero() {
				heard = strconv.Itoa(int(m.Heard.Unix()))
			}
			if !m.CaughtUp.IsZero() {
				caught = strconv.Itoa(int(m.CaughtUp.Unix()))
			}
			said += fmt.Sprintf("%d: voter=%v lag=%s heard=%s caughtup=%s\n", m.ID.NodeID, m.Voter, lag, heard, caught)
		}
		return nil, said, nil
	case "answer":
		s.live.asked.note(memberOf(id, num(t, td, "life", 0)), s.img.Offset(), s.img.Offset()-wire.Offset(num(t, td, "behind", 0)), now)
		return nil, "", nil
	case "silence": // an answer of a node that does not tell how far it is
		s.live.asked.note(memberOf(id, num(t, td, "life", 0)), s.img.Offset(), wire.NoOffset, now)
		return nil, "", nil
	case "keep":
		var members []candidate
		for _, m := range withoutBrokers(t, td) {
			members = append(members, candidate{Member: m})
		}
		s.live.asked.keep(members)
		return nil, "", nil
	case "expire":
		records, who := s.d.expire(s.live, s.img, now)
		return records, fmt.Sprintf("expired %d\n", who), nil
	case "failover":
		s.live = newLiveness(s.img, 9*time.Second, now)
		return nil, "", nil
	case "unregister":
		records, err := s.d.unregisterBroker(s.img, id)
		return records, "", err
	case "feature":
		s.d.features = map[string]image.VersionRange{image.FeatureMetadataVersion: {Min: 33, Max: 33}, image.FeatureTransactionVersion: {Min: 0, Max: 2}, image.FeatureELR: {Min: 0, Max: 1}}
		records, err := s.d.updateFeatures(s.img, []FeatureUpdate{{Name: arg(td, "name", ""), Level: int16(num(t, td, "level", 0)), Type: UpgradeType(num(t, td, "type", 1))}})
		said := ""
		for _, r := range records {
			said += fmt.Sprintf("%s=%d\n", r.(*coordrec.FeatureLevelRecord).Name, r.(*coordrec.FeatureLevelRecord).Level)
		}
		return records, said, err
	case "raise":
		records, topics := s.d.raiseInternal(s.img, map[string]int{image.OffsetsTopic: 3, image.TxnStateTopic: 3})
		return records, fmt.Sprintf("raised %v\n", topics), nil
	case "assign":
		topic, _ := s.img.Topic(arg(td, "topic", ""))
		a := DirAssignment{Directory: wire.UUID{0: 1, 14: byte(num(t, td, "dir", int(id))), 15: 200}, Partition: wire.PartitionID(num(t, td, "p", 0))}
		if topic != nil {
			a.TopicID = topic.ID
		}
		records, results, err := s.d.assignDirs(s.img, id, epoch, []DirAssignment{a})
		if err == nil && results[0] != nil {
			return nil, results[0].Error() + "\n", nil
		}
		return records, "", err
	}
	td.Fatalf(t, "unknown command %s", td.Cmd)
	return nil, "", nil
}

// memberOf is a node in the quorum; life tells its directories apart.
func memberOf(id wire.BrokerID, life int) peer.ID {
	return peer.ID{NodeID: id, DirectoryID: wire.UUID{14: byte(life), 15: byte(id)}}
}

// withoutBrokers are members that no broker is on: voters and observers, each id or id@life, joined by +.
func withoutBrokers(t *testing.T, td *datadriven.TestData) []Member {
	t.Helper()
	var out []Member
	for _, role := range []string{"voters", "observers"} {
		for _, one := range strings.FieldsFunc(arg(td, role, ""), func(r rune) bool { return r == '+' }) {
			id, life, _ := strings.Cut(one, "@")
			n, err := strconv.Atoi(id)
			if err != nil {
				td.Fatalf(t, "%v", err)
			}
			l, err := strconv.Atoi("0" + life)
			if err != nil {
				td.Fatalf(t, "%v", err)
			}
			out = append(out, Member{ID: memberOf(wire.BrokerID(n), l), Voter: role == "voters"})
		}
	}
	return out
}

// isr: members are id or id@epoch, joined by +; log is the newest leader epoch in the leader's log.
func (s *scripted) isr(t *testing.T, td *datadriven.TestData, id wire.BrokerID, epoch wire.BrokerEpoch) ([]coordrec.MetadataRecord, string, error) {
	ch := ISRChange{Partition: wire.PartitionID(num(t, td, "p", 0)), Recovering: td.HasArg("recovering")}
	p := &image.Partition{}
	if topic, ok := s.img.Topic(arg(td, "topic", "")); ok {
		ch.TopicID = topic.ID
		if found, ok := topic.Partition(ch.Partition); ok {
			p = found
		}
	}
	ch.LeaderEpoch = p.LeaderEpoch + wire.LeaderEpoch(num(t, td, "le", 0))
	ch.PartitionEpoch = p.PartitionEpoch + wire.PartitionEpoch(num(t, td, "pe", 0))
	ch.LogEpoch = wire.LeaderEpoch(num(t, td, "log", -1))
	for _, m := range strings.Split(arg(td, "to", ""), "+") {
		text, e, ok := strings.Cut(m, "@")
		n, err := strconv.Atoi(text)
		if err != nil {
			td.Fatalf(t, "%v", err)
		}
		member := ISRMember{ID: wire.BrokerID(n), Epoch: wire.NoBrokerEpoch}
		if ok {
			v, err := strconv.Atoi(e)
			if err != nil {
				td.Fatalf(t, "%v", err)
			}
			member.Epoch = wire.BrokerEpoch(v)
		}
		ch.ISR = append(ch.ISR, member)
	}
	records, results, err := s.d.alterPartitions(s.img, id, epoch, []ISRChange{ch})
	switch {
	case err != nil:
		return nil, "", err
	case results[0].Err != nil:
		return nil, results[0].Err.Error() + "\n", nil
	}
	return records, "answer: " + partitionText(results[0].Partition) + "\n", nil
}
