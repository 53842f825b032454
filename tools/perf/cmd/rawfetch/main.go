// rawfetch: reads a topic with raw Fetch requests and discards it (mode read), or measures produce -> consumer latency (mode tail). One JSON line on stdout.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func must(e error) {
	if e != nil {
		fmt.Fprintln(os.Stderr, "rawfetch:", e)
		os.Exit(1)
	}
}

type fetcher struct {
	c     net.Conn
	br    *bufio.Reader
	ver   int16
	frame []byte
	offAt int // where the fetch offset is in the frame
	buf   []byte
	corr  int32
}

func newFetcher(addr, topic string, id [16]byte, part int32, ver int16, max, minb, wait int32) *fetcher {
	c, e := net.DialTimeout("tcp", addr, 2*time.Second)
	must(e)
	r := kmsg.NewPtrFetchRequest()
	r.SetVersion(ver)
	r.ReplicaID, r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.SessionEpoch = -1, wait, minb, max, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, id
	p := kmsg.NewFetchRequestTopicPartition()
	const mark = 0x7A6B5C4D3E2F1A0B
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LogStartOffset = part, mark, max, -1, -1
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	f := &fetcher{c: c, br: bufio.NewReaderSize(c, 256), ver: ver, buf: make([]byte, max+64<<10)}
	f.frame = kmsg.NewRequestFormatter(kmsg.FormatterClientID("kw")).AppendRequest(nil, r, 0)
	for i := 0; i+8 <= len(f.frame); i++ {
		if binary.BigEndian.Uint64(f.frame[i:]) == mark {
			f.offAt = i
		}
	}
	return f
}

// one does one Fetch at off and returns the record bytes, the high watermark.
func (f *fetcher) one(off int64) (recs []byte, hwm int64, err error) {
	be := binary.BigEndian
	f.corr++
	be.PutUint32(f.frame[8:], uint32(f.corr))
	be.PutUint64(f.frame[f.offAt:], uint64(off))
	f.c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err = f.c.Write(f.frame); err != nil {
		return
	}
	var h [4]byte
	if _, err = io.ReadFull(f.br, h[:]); err != nil {
		return
	}
	n := int(be.Uint32(h[:]))
	if n > len(f.buf) {
		f.buf = make([]byte, n)
	}
	b := f.buf[:n]
	if _, err = io.ReadFull(f.br, b); err != nil {
		return
	}
	if int32(be.Uint32(b)) != f.corr {
		return nil, 0, fmt.Errorf("correlation id")
	}
	o := 5 + 4
	if c := int16(be.Uint16(b[o:])); c != 0 {
		return nil, 0, fmt.Errorf("fetch error code %d", c)
	}
	o += 6
	nt, k := binary.Uvarint(b[o:])
	o += k
	if nt < 2 {
		return nil, off, nil
	}
	if f.ver >= 13 {
		o += 16
	} else {
		l, k := binary.Uvarint(b[o:])
		o += k + int(l) - 1
	}
	_, k = binary.Uvarint(b[o:])
	o += k + 4
	if c := int16(be.Uint16(b[o:])); c != 0 {
		return nil, 0, fmt.Errorf("partition error code %d", c)
	}
	hwm = int64(be.Uint64(b[o+2:]))
	o += 2 + 24
	na, k := binary.Uvarint(b[o:])
	o += k
	for i := 1; i < int(na); i++ {
		o += 17
	}
	o += 4
	l, k := binary.Uvarint(b[o:])
	o += k
	if l > 0 {
		recs = b[o : o+int(l)-1]
	}
	return
}

// next walks the batches and returns the offset after the last whole one.
func next(r []byte, off int64) (int64, int64) {
	var n int64
	for len(r) >= 61 {
		l := int(binary.BigEndian.Uint32(r[8:])) + 12
		if l > len(r) {
			break
		}
		off = int64(binary.BigEndian.Uint64(r)) + int64(binary.BigEndian.Uint32(r[23:])) + 1
		n += int64(binary.BigEndian.Uint32(r[57:]))
		r = r[l:]
	}
	return off, n
}

func main() {
	addr := flag.String("addr", "127.0.0.1:9092", "a broker")
	topic := flag.String("topic", "raw", "topic")
	part := flag.Int("partition", 0, "partition")
	mode := flag.String("mode", "read", "read or tail")
	ver := flag.Int("version", 12, "Fetch version, 12 (names) or 13+ (ids)")
	max := flag.Int("max", 1<<20, "max bytes per response")
	gb := flag.Float64("gb", 4, "read: stop after this many 10^9 bytes; re-reads from the start at the end of the topic")
	dur := flag.Duration("time", 20*time.Second, "bound")
	rate := flag.Float64("rate", 1000, "tail: records/s")
	rec := flag.Int("record", 1000, "tail: record size")
	acks := flag.Int("acks", 1, "tail: acks of the producer")
	rf := flag.Int("rf", 1, "tail: replication factor when the topic is created")
	pid := flag.String("pid", "", "broker pids or pid files")
	label := flag.String("label", "", "copied to the output")
	flag.Parse()
	pids := kw.Pids(*pid)
	out := map[string]any{"label": *label, "mode": *mode}
	if *mode == "tail" {
		c, e := kw.Dial(*addr, 2*time.Second)
		must(e)
		must(c.CreateTopic(*topic, 1, int16(*rf), nil))
	}
	leaders, id, e := kw.WaitTopic(*addr, *topic, 20*time.Second)
	must(e)
	lead := leaders[*part]
	s0, o0, m0 := kw.Take(pids), kw.OwnCPU(), kw.BusyCPU()
	t0 := kw.Now()
	var bytes, recs, reqs int64
	if *mode == "read" {
		f := newFetcher(lead, *topic, id, int32(*part), int16(*ver), int32(*max), 1, 500)
		var off, hwm int64
		for float64(bytes) < *gb*1e9 && kw.Now()-t0 < int64(*dur) {
			var r []byte
			r, hwm, e = f.one(off)
			must(e)
			n, k := next(r, off)
			if n == off && len(r) > 0 {
				must(fmt.Errorf("response of %d bytes holds no whole batch", len(r)))
			}
			bytes, recs, reqs, off = bytes+int64(len(r)), recs+k, reqs+1, n
			if off >= hwm {
				off = 0
				if bytes == 0 {
					must(fmt.Errorf("empty topic"))
				}
			}
		}
	} else {
		// the consumer starts at the end of the log
		lo := kmsg.NewPtrListOffsetsRequest()
		lo.SetVersion(4)
		lo.ReplicaID = -1
		lt := kmsg.NewListOffsetsRequestTopic()
		lt.Topic = *topic
		lp := kmsg.NewListOffsetsRequestTopicPartition()
		lp.Partition, lp.Timestamp, lp.CurrentLeaderEpoch = int32(*part), -1, -1
		lt.Partitions = append(lt.Partitions, lp)
		lo.Topics = append(lo.Topics, lt)
		c, e := kw.Dial(lead, 2*time.Second)
		must(e)
		rr, e := c.Do(lo, 5*time.Second)
		must(e)
		off := rr.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset
		N := int64(*rate * dur.Seconds())
		warm := int64(*rate) // the first second is not counted
		hi, hs := kw.NewHist(), kw.NewHist()
		go func() {
			b, _ := kw.Batch(1, *rec)
			f, at := kw.ProduceFrame(9, *topic, id, int32(*part), int16(*acks), b)
			pb := f[at : at+len(b)]
			pc, e := net.DialTimeout("tcp", lead, 2*time.Second)
			must(e)
			go io.Copy(io.Discard, pc)
			p := kw.NewPacer()
			st := kw.Now() + 300e6
			for i := int64(0); i < N; i++ {
				t := st + int64(float64(i)*1e9 / *rate)
				p.Until(t)
				// stamp: value bytes sit just before the one-byte header count
				v := pb[len(pb)-1-*rec:]
				binary.BigEndian.PutUint64(v, uint64(t))
				binary.BigEndian.PutUint64(v[8:], uint64(kw.Now()))
				binary.BigEndian.PutUint32(pb[17:], crc32.Checksum(pb[21:], kw.Castagnoli))
				binary.BigEndian.PutUint32(f[8:], uint32(i))
				_, e := pc.Write(f)
				must(e)
			}
		}()
		f := newFetcher(lead, *topic, id, int32(*part), int16(*ver), int32(*max), 1, 500)
		for recs < N && kw.Now()-t0 < int64(*dur)+10e9 {
			r, _, e := f.one(off)
			must(e)
			now := kw.Now()
			reqs++
			for len(r) >= 61 {
				l := int(binary.BigEndian.Uint32(r[8:])) + 12
				if l > len(r) {
					break
				}
				v := r[l-1-*rec:]
				if recs++; recs > warm {
					hi.RecordValue(now - int64(binary.BigEndian.Uint64(v)))
					hs.RecordValue(now - int64(binary.BigEndian.Uint64(v[8:])))
				}
				off = int64(binary.BigEndian.Uint64(r)) + 1
				bytes += int64(l)
				r = r[l:]
			}
		}
		out["lost"] = N - recs
		out["rate"], out["acks"] = *rate, *acks
		out["e2e_intended"], out["e2e_from_send"] = kw.Lat(hi), kw.Lat(hs)
	}
	w := float64(kw.Now()-t0) / 1e9
	s1, o1, m1 := kw.Take(pids), kw.OwnCPU(), kw.BusyCPU()
	g := float64(bytes) / 1e9
	out["seconds"], out["gb"], out["gb_s"], out["records_s"], out["responses"], out["bytes_per_response"] = w, g, g/w, float64(recs)/w, reqs, bytes/reqs
	out["own_cpu_s_gb"] = (o1 - o0) / g
	if len(pids) > 0 {
		c := s1.CPU - s0.CPU
		out["broker_cpu_s"], out["broker_cpu_s_gb"], out["broker_rss_mb"], out["foreign_s"] = c, c/g, float64(s1.RSS)/1e6, m1-m0-c-(o1-o0)
	}
	j, _ := json.Marshal(out)
	fmt.Println(string(j))
}
