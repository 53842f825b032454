package wire

import "encoding/binary"

// Versions of Fetch that EncodeFetch writes, inclusive.
const (
	FetchMinVersion int16 = 4
	FetchMaxVersion int16 = 18
)

// FetchResponse is the body of a Fetch response whose records need not be in memory. Fields that a version does not
// have are left out by EncodeFetch.
type FetchResponse struct {
	ThrottleMillis int32
	ErrorCode      int16 // v7+
	SessionID      int32 // v7+; 0 = no session
	Topics         []FetchTopic
	NodeEndpoints  []NodeEndpoint // v16+; leaders named by CurrentLeader
}

// FetchTopic is a topic of a FetchResponse: by Name up to v12, by ID from v13 on.
type FetchTopic struct {
	Name       string
	ID         UUID
	Partitions []FetchPartition
}

// FetchPartition is what a Fetch answers for one partition. Every field counts: PreferredReadReplica is NoBroker for
// none, offsets are NoOffset where unknown.
type FetchPartition struct {
	Partition            PartitionID
	ErrorCode            int16
	HighWatermark        Offset // exclusive
	LastStableOffset     Offset // exclusive
	LogStartOffset       Offset // v5+
	DivergingEpoch       *EpochEndOffset
	CurrentLeader        *LeaderAndEpoch      // v12+
	SnapshotID           *EpochEndOffset      // v12+
	Aborted              []AbortedTransaction // nil = null (read_uncommitted)
	PreferredReadReplica BrokerID             // v11+
	Records              []Segment            // the batches in order; owned by the response from EncodeFetch on
	NullRecords          bool                 // the record set is null instead of empty; Records must be empty
}

// EpochEndOffset is an epoch with its end offset (exclusive).
type EpochEndOffset struct {
	Epoch     LeaderEpoch
	EndOffset Offset
}

// LeaderAndEpoch tells a client who leads now.
type LeaderAndEpoch struct {
	ID    BrokerID
	Epoch LeaderEpoch
}

// AbortedTransaction names a producer whose records from FirstOffset (inclusive) to its abort marker do not count.
type AbortedTransaction struct {
	ProducerID  ProducerID
	FirstOffset Offset
}

// NodeEndpoint is the address of a broker on the listener of the request.
type NodeEndpoint struct {
	ID   BrokerID
	Host string
	Port int32
	Rack *string // nil = none
}

// EncodeFetch writes the body of resp (without frame size and response header) as segments: bytes that it encodes into
// one buffer, with the record segments between them. The bytes are what kmsg's FetchResponse would write. A record
// segment without bytes is released at once, the others are passed on with their Done.
//
// version must lie within FetchMinVersion and FetchMaxVersion.
func EncodeFetch(resp *FetchResponse, version int16) []Segment {
	size, segments := fetchBounds(resp)
	e := fetchEncoder{
		buf: make([]byte, 0, size), segs: make([]Segment, 0, segments),
		version: version, flex: version >= 12,
	}
	e.response(resp)
	e.cut()
	return e.segs
}

// fetchBounds gives upper bounds of the encoded bytes without records, and of the number of segments.
func fetchBounds(resp *FetchResponse) (size, segments int) {
	const topicMax, partitionMax, abortedSize, endpointMax = 32, 120, 17, 32
	size, segments = 32, 1
	for i := range resp.Topics {
		t := &resp.Topics[i]
		size += topicMax + len(t.Name) + partitionMax*len(t.Partitions)
		for j := range t.Partitions {
			size += abortedSize * len(t.Partitions[j].Aborted)
			segments += 2 * len(t.Partitions[j].Records)
		}
	}
	for i := range resp.NodeEndpoints {
		n := &resp.NodeEndpoints[i]
		size += endpointMax + len(n.Host)
		if n.Rack != nil {
			size += len(*n.Rack)
		}
	}
	return size, segments
}

type fetchEncoder struct {
	buf     []byte // everything encoded; never grows, so that segments may alias it
	start   int    // of what is not yet in a segment
	segs    []Segment
	version int16
	flex    bool
}

// cut makes what was encoded since the last cut a segment.
func (e *fetchEncoder) cut() {
	if e.start < len(e.buf) {
		e.segs = append(e.segs, Segment{Bytes: e.buf[e.start:len(e.buf):len(e.buf)]})
		e.start = len(e.buf)
	}
}

func (e *fetchEncoder) int16(v int16) { e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(v)) }

// length writes the length of an array or of bytes; −1 = null.
func (e *fetchEncoder) length(n int) {
	if e.flex {
		e.buf = binary.AppendUvarint(e.buf, uint64(n+1))
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) string(s string) {
	if e.flex {
		e.buf = binary.AppendUvarint(e.buf, uint64(len(s)+1))
	} else {
		e.int16(int16(len(s)))
	}
	e.buf = append(e.buf, s...)
}

// noTags ends a structure that has no tagged fields.
func (e *fetchEncoder) noTags() {
	if e.flex {
		e.buf = append(e.buf, 0)
	}
}

func (e *fetchEncoder) response(resp *FetchResponse) {
	e.int32(resp.ThrottleMillis)
	if e.version >= 7 {
		e.int16(resp.ErrorCode)
		e.int32(resp.SessionID)
	}
	e.length(len(resp.Topics))
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if e.version >= 13 {
			e.buf = append(e.buf, t.ID[:]...)
		} else {
			e.string(t.Name)
		}
		e.length(len(t.Partitions))
		for j := range t.Partitions {
			e.partition(&t.Partitions[j])
		}
		e.noTags()
	}
	if e.version >= 16 && len(resp.NodeEndpoints) > 0 {
		e.endpoints(resp.NodeEndpoints)
	} else {
		e.noTags()
	}
}

func (e *fetchEncoder) partition(p *FetchPartition) {
	e.int32(int32(p.Partition))
	e.int16(p.ErrorCode)
	e.int64(int64(p.HighWatermark))
	e.int64(int64(p.LastStableOffset))
	if e.version >= 5 {
		e.int64(int64(p.LogStartOffset))
	}
	if p.Aborted == nil {
		e.length(-1)
	} else {
		e.length(len(p.Aborted))
	}
	for _, a := range p.Aborted {
		e.int64(int64(a.ProducerID))
		e.int64(int64(a.FirstOffset))
		e.noTags()
	}
	if e.version >= 11 {
		e.int32(int32(p.PreferredReadReplica))
	}
	e.records(p)
	if e.flex {
		e.partitionTags(p)
	}
}

func (e *fetchEncoder) records(p *FetchPartition) {
	if p.NullRecords {
		e.length(-1)
		return
	}
	size := int64(0)
	for i := range p.Records {
		size += p.Records[i].Size()
	}
	e.length(int(size))
	for i := range p.Records {
		s := &p.Records[i]
		if s.Size() == 0 {
			if s.Done != nil {
				s.Done()
			}
			continue
		}
		e.cut()
		e.segs = append(e.segs, *s)
	}
}

// partitionTags writes the tagged fields that differ from their defaults, which are −1 throughout.
func (e *fetchEncoder) partitionTags(p *FetchPartition) {
	none := EpochEndOffset{NoLeaderEpoch, NoOffset}
	diverging := p.DivergingEpoch != nil && *p.DivergingEpoch != none
	leader := p.CurrentLeader != nil && *p.CurrentLeader != LeaderAndEpoch{NoBroker, NoLeaderEpoch}
	snapshot := p.SnapshotID != nil && *p.SnapshotID != none
	n := byte(0)
	for _, set := range [...]bool{diverging, leader, snapshot} {
		if set {
			n++
		}
	}
	e.buf = append(e.buf, n)
	if diverging {
		e.buf = append(e.buf, 0, 13)
		e.int32(int32(p.DivergingEpoch.Epoch))
		e.int64(int64(p.DivergingEpoch.EndOffset))
		e.noTags()
	}
	if leader {
		e.buf = append(e.buf, 1, 9)
		e.int32(int32(p.CurrentLeader.ID))
		e.int32(int32(p.CurrentLeader.Epoch))
		e.noTags()
	}
	if snapshot {
		e.buf = append(e.buf, 2, 13)
		e.int64(int64(p.SnapshotID.EndOffset))
		e.int32(int32(p.SnapshotID.Epoch))
		e.noTags()
	}
}

// endpoints writes the response's tag section with its only field, the addresses of leaders.
func (e *fetchEncoder) endpoints(nodes []NodeEndpoint) {
	size := uvarintSize(len(nodes) + 1)
	for i := range nodes {
		n := &nodes[i]
		size += 4 + uvarintSize(len(n.Host)+1) + len(n.Host) + 4 + 1 // and no tags; the rack follows
		if n.Rack == nil {
			size++
		} else {
			size += uvarintSize(len(*n.Rack)+1) + len(*n.Rack)
		}
	}
	e.buf = append(e.buf, 1, 0)
	e.buf = binary.AppendUvarint(e.buf, uint64(size))
	e.length(len(nodes))
	for i := range nodes {
		n := &nodes[i]
		e.int32(int32(n.ID))
		e.string(n.Host)
		e.int32(n.Port)
		if n.Rack == nil {
			e.length(-1)
		} else {
			e.string(*n.Rack)
		}
		e.noTags()
	}
}

// uvarintSize is the number of bytes of n ≥ 0 as an unsigned varint.
func uvarintSize(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}
