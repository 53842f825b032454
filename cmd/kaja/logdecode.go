package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/coordrec"
)

// decoder tells what a record of an internal topic says: a line for people, and its fields. ok is false for a record that it does
// not know, which is then shown as any other.
type decoder func(key, value []byte) (text string, fields any, ok bool)

// decoderOf gives the decoder for the partition in a directory of this name, nil if its records are anybody's.
func decoderOf(dir string) decoder {
	topic := ""
	if tp, ok := replica.ParsePartitionDir(dir); ok {
		topic = tp.Topic
	}
	switch topic {
	case image.OffsetsTopic:
		return decodeOffsets
	case image.TxnStateTopic:
		return decodeTransactions
	case "__cluster_metadata":
		return decodeMetadata
	}
	return nil
}

// line is fields as one line of JSON, which people can read too.
func line(what string, fields any) string {
	b, err := json.Marshal(fields)
	if err != nil {
		return what
	}
	return what + " " + string(b)
}

func decodeOffsets(key, value []byte) (string, any, bool) {
	if len(key) < 2 {
		return "", nil, false
	}
	switch t := binary.BigEndian.Uint16(key); t {
	case 0, 1:
		var k kmsg.OffsetCommitKey
		var v kmsg.OffsetCommitValue
		if k.ReadFrom(key) != nil || value != nil && v.ReadFrom(value) != nil {
			return "", nil, false
		}
		fields := map[string]any{"group": k.Group, "topic": k.Topic, "partition": k.Partition, "tombstone": value == nil}
		if value == nil {
			return fmt.Sprintf("offset of group %q for %s-%d is removed", k.Group, k.Topic, k.Partition), fields, true
		}
		fields["offset"], fields["leaderEpoch"], fields["metadata"], fields["commitTimestamp"] = v.Offset, v.LeaderEpoch, v.Metadata, v.CommitTimestamp
		return fmt.Sprintf("offset of group %q for %s-%d is %d, epoch %d, metadata %q, committed %s", k.Group, k.Topic, k.Partition, v.Offset,
			v.LeaderEpoch, v.Metadata, stamp(v.CommitTimestamp)), fields, true
	case 2:
		var k kmsg.GroupMetadataKey
		var v kmsg.GroupMetadataValue
		if k.ReadFrom(key) != nil || value != nil && v.ReadFrom(value) != nil {
			return "", nil, false
		}
		if value == nil {
			return fmt.Sprintf("group %q is removed", k.Group), map[string]any{"group": k.Group, "tombstone": true}, true
		}
		var members []map[string]any
		for _, m := range v.Members {
			members = append(members, map[string]any{"memberId": m.MemberID, "instanceId": m.InstanceID, "clientId": m.ClientID, "clientHost": m.ClientHost})
		}
		fields := map[string]any{"group": k.Group, "protocolType": v.ProtocolType, "generation": v.Generation, "protocol": v.Protocol, "leader": v.Leader, "members": members}
		return line(fmt.Sprintf("group %q:", k.Group), fields), fields, true
	}
	return "", nil, false
}

// txnStates are the names of the states by their numbers (Kafka: TransactionState).
var txnStates = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

func decodeTransactions(key, value []byte) (string, any, bool) {
	id, err := coordrec.DecodeTxnKey(key)
	if err != nil {
		return "", nil, false
	}
	if value == nil {
		return fmt.Sprintf("transactional id %q is removed", id), map[string]any{"transactionalId": id, "tombstone": true}, true
	}
	v, err := coordrec.DecodeTxnValue(value)
	if err != nil {
		return "", nil, false
	}
	state := fmt.Sprint(v.Status)
	if int(v.Status) < len(txnStates) && v.Status >= 0 {
		state = txnStates[v.Status]
	}
	fields := map[string]any{"transactionalId": id, "state": state, "value": v}
	return line(fmt.Sprintf("transactional id %q, %s:", id, state), v), fields, true
}

func decodeMetadata(_, value []byte) (string, any, bool) {
	r, err := coordrec.DecodeMetadata(value)
	if err != nil {
		return "", nil, false
	}
	name := fmt.Sprintf("%T", r)
	return line(name[len("*coordrec."):], r), map[string]any{"record": name[len("*coordrec."):], "fields": r}, true
}

// decodeControl tells what a control record says.
func decodeControl(key, value []byte) (string, any) {
	_, t, err := batch.ParseControlKey(key)
	if err != nil {
		return fmt.Sprintf("control record with a key that makes no sense: %q", key), nil
	}
	names := map[batch.ControlType]string{batch.ControlAbort: "abort", batch.ControlCommit: "commit", batch.ControlLeaderChange: "leader change",
		batch.ControlSnapshotHeader: "snapshot header", batch.ControlSnapshotFooter: "snapshot footer",
		batch.ControlKRaftVersion: "kraft version", batch.ControlKRaftVoters: "kraft voters"}
	name, known := names[t]
	if !known {
		name = fmt.Sprintf("control record of type %d", t)
	}
	fields := map[string]any{"control": name}
	if end, err := batch.ParseEndTxn(t, value); err == nil {
		fields["coordinatorEpoch"] = end.CoordinatorEpoch
		return fmt.Sprintf("%s marker, coordinator epoch %d", name, end.CoordinatorEpoch), fields
	}
	return name, fields
}

// jsonBytes is bytes for JSON: text where they are text, else base64.
func jsonBytes(b []byte) any {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return string(b)
	}
	return map[string][]byte{"base64": b}
}
