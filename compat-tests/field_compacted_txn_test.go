package compattests_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// keyed is a record by its key and value.
func keyed(key, value string) raw.Record { return raw.Record{Key: []byte(key), Value: []byte(value)} }

// put writes one record in the producer's transaction, and gives its offset.
func (p *rawProducer) put(topic string, partition, sequence int32, r raw.Record) int64 {
	p.t.Helper()
	b := raw.NewBatch(r).Idempotent(p.id, p.epoch, sequence)
	b.Attributes |= transactionalBatch
	req := produceRequest(topic, partition, b.Bytes())
	req.Version, req.TransactionID = 11, &p.txnID
	if p.v2 {
		req.Version = 12
	}
	var at int64
	untilCode(p.t, "Produce", func() int16 { // 19: the coordinator loads
		got := onlyPartition(p.t, do[*kmsg.ProduceResponse](p.t, p.c, req))
		at = got.BaseOffset
		return got.ErrorCode
	}, codeNotEnoughReplicas, codeConcurrent)
	return at
}

// seal fills the active segment of a partition, so that what was written before is sealed, and ends with a plain record.
func seal(t *testing.T, c *raw.Conn, topic string, partition int32) (end int64) {
	t.Helper()
	mustProduce(t, c, topic, partition, raw.NewBatch(keyed("roll", strings.Repeat("x", compactionSegment-100))).Bytes())
	return mustProduce(t, c, topic, partition, raw.NewBatch(keyed("end", "")).Bytes())
}

// uncleaned is up to where a broker says that it has compacted a partition; -1 if it does not say.
func uncleaned(t *testing.T, b *target.Broker, partition int32) int64 {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.DataDir(), "cleaner-offset-checkpoint"))
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == compactionTopic && f[1] == fmt.Sprint(partition) {
			at, err := strconv.ParseInt(f[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
	}
	return -1
}

// readKeyed reads a partition up to the record at end, as "offset key=value", the filling left out.
func readKeyed(t *testing.T, b *target.Broker, partition int32, level kgo.IsolationLevel, end int64) (lines []string, offsets []int64) {
	t.Helper()
	ctx, cancel := withTimeout(t, time.Minute)
	defer cancel()
	cl := newClient(t, b, kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{compactionTopic: {partition: kgo.NewOffset().AtStart()}}))
	defer cl.Close()
	for len(offsets) == 0 || offsets[len(offsets)-1] < end {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read partition %d up to %d: %v; so far %v", partition, end, err, lines)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			offsets = append(offsets, r.Offset)
			if key := string(r.Key); !r.Attrs.IsControl() && key != "roll" && key != "end" {
				lines = append(lines, fmt.Sprintf("%d %s=%s", r.Offset, key, r.Value))
			}
		})
	}
	if !slices.IsSortedFunc(offsets, cmp.Compare) {
		t.Errorf("offsets %v are not in order", offsets)
	}
	return lines, offsets
}

// B29: markers are no keyed records, aborted records never win over committed ones, and nothing of an open transaction is
// compacted, with a compaction and a restart between the steps. (The move of the replica is missing: kaja does not move.)
func TestFieldB29CompactedTransactions(t *testing.T) {
	b := ownBroker(t, map[string]string{"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "1", "transaction.state.log.num.partitions": "1"})
	makeTopic(t, b, compactionTopic, int32(len(txnVersions)), map[string]string{
		"cleanup.policy": "compact", "internal.segment.bytes": strconv.Itoa(compactionSegment), "min.cleanable.dirty.ratio": "1",
		"delete.retention.ms": "0", "file.delete.delay.ms": "100",
	})
	type history struct {
		p         *rawProducer
		partition int32
		seq       int32
		committed []string // what read_committed must give
		open      int64    // offset of the transaction that is open
	}
	var histories []*history
	for i, v2 := range []bool{false, true} {
		histories = append(histories, &history{p: newRawProducer(t, b, fmt.Sprint("b29-", i), v2), partition: int32(i)})
	}
	put := func(h *history, r raw.Record) int64 {
		t.Helper()
		at := h.p.put(compactionTopic, h.partition, h.seq, r)
		h.seq++
		return at
	}
	begin := func(h *history) {
		t.Helper()
		h.p.begin(compactionTopic, h.partition)
		if h.p.v2 {
			h.seq = 0 // every transaction has an epoch of its own
		}
	}
	end := func(h *history, commit bool) {
		t.Helper()
		untilCode(t, "EndTxn", func() int16 { return h.p.end(commit) }, 14, 15, 16, codeConcurrent)
		awaitStable(t, h.p.c, compactionTopic, h.partition)
	}
	// compacted seals and compacts everything, and looks at it with both isolations.
	compacted := func(step string) {
		t.Helper()
		ends := map[int32]int64{}
		for _, h := range histories {
			ends[h.partition] = seal(t, h.p.c, compactionTopic, h.partition)
		}
		compact(t, b, len(histories))
		for _, h := range histories {
			for _, level := range []kgo.IsolationLevel{kgo.ReadCommitted(), kgo.ReadUncommitted()} { // what was aborted is gone for both
				if got, _ := readKeyed(t, b, h.partition, level, ends[h.partition]); !slices.Equal(got, h.committed) {
					t.Errorf("%s: partition %d holds %q, want %q (%v)", step, h.partition, got, h.committed, level)
				}
			}
		}
	}
	again := func() {
		t.Helper()
		restart(t, b, true)
		awaitLeaders(t, b, compactionTopic, len(histories))
		for _, h := range histories {
			h.p.c = dial(t, b)
			h.p.findCoordinator()
		}
	}

	for _, h := range histories {
		begin(h)
		h.committed = []string{fmt.Sprintf("%d k=v1", put(h, keyed("k", "v1")))}
		end(h, true)
	}
	compacted("v1 is committed")
	for _, h := range histories {
		begin(h)
		put(h, keyed("k", "v2"))
		end(h, false)
	}
	compacted("v2 was aborted")
	again()
	for _, h := range histories {
		begin(h)
		put(h, keyed("a", "x"))
		put(h, keyed("b", "x"))
		end(h, false)
	}
	compacted("other keys were aborted")
	again()
	compacted("after a restart")

	// A transaction stays open across segments, while what lies before it is compacted.
	var ends []int64
	for _, h := range histories {
		for range 3 { // something to compact
			seal(t, h.p.c, compactionTopic, h.partition)
		}
		begin(h)
		h.open = put(h, keyed("k", "v3"))
		for range 3 {
			seal(t, h.p.c, compactionTopic, h.partition)
			put(h, keyed("c", "x"))
		}
		ends = append(ends, seal(t, h.p.c, compactionTopic, h.partition))
	}
	before := []int64{uncleaned(t, b, 0), uncleaned(t, b, 1)}
	alterTopic(t, b, compactionTopic, "min.cleanable.dirty.ratio", "0")
	err := poll.Until(t.Context(), time.Minute, "what lies before the open transaction is compacted", func() (bool, error) {
		now := []int64{uncleaned(t, b, 0), uncleaned(t, b, 1)}
		return now[0] > before[0] && now[1] > before[1], fmt.Errorf("up to %v, then %v", before, now)
	})
	if err != nil {
		t.Fatal(err)
	}
	alterTopic(t, b, compactionTopic, "min.cleanable.dirty.ratio", "1")
	for i, h := range histories {
		if at := uncleaned(t, b, h.partition); at > h.open {
			t.Errorf("partition %d is compacted up to %d, its transaction is open at %d", h.partition, at, h.open)
		}
		_, offsets := readKeyed(t, b, h.partition, kgo.ReadUncommitted(), ends[i])
		from := slices.Index(offsets, h.open)
		if from < 0 || int64(len(offsets)-from) != ends[i]-h.open+1 {
			t.Errorf("partition %d: of %d to %d, of which none may go while the transaction is open, %v are there", h.partition, h.open, ends[i], offsets)
		}
	}
	again()
	for _, h := range histories {
		end(h, true)
	}
	for _, h := range histories { // the last c of the transaction is the newest
		last := ""
		lines, _ := readKeyed(t, b, h.partition, kgo.ReadCommitted(), ends[h.partition])
		for _, l := range lines {
			if strings.HasSuffix(l, "c=x") {
				last = l
			}
		}
		h.committed = []string{fmt.Sprintf("%d k=v3", h.open), last}
	}
	compacted("v3 is committed")
	again()
	compacted("after the last restart")

	// An idempotent producer whose records were all superseded is known still: what it sends again is a duplicate.
	init := kmsg.NewPtrInitProducerIDRequest()
	init.Version = 4
	c := dial(t, b)
	var who *kmsg.InitProducerIDResponse
	untilCode(t, "InitProducerId", func() int16 {
		who = do[*kmsg.InitProducerIDResponse](t, c, init)
		return who.ErrorCode
	}, 14)
	batch := raw.NewBatch(keyed("s", "old")).Idempotent(who.ProducerID, who.ProducerEpoch, 0).Bytes()
	at := mustProduce(t, c, compactionTopic, 0, batch)
	newest := mustProduce(t, c, compactionTopic, 0, raw.NewBatch(keyed("s", "new")).Bytes())
	h := histories[0]
	h.committed = append(h.committed, fmt.Sprintf("%d s=new", newest))
	compacted("the record of an idempotent producer is superseded")
	again()
	if got := mustProduce(t, dial(t, b), compactionTopic, 0, batch); got != at {
		t.Errorf("a batch at %d, sent again after its record was compacted away, is at %d", at, got)
	}
}
