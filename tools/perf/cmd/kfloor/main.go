// kfloor: the machine's own limit, as a server that speaks just enough Kafka for rawproduce and rawfetch.
// Modes: echo (reply only), crc (check the batch CRC), write (CRC + base offset + pwrite to a 1 GiB-rolled file; Fetch v12 by sendfile).
// One topic, one partition, one batch shape (the first seen). Not a broker: no index, no recovery, no validation.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/kajamq/kaja/tools/perf/kw"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

var (
	mode, addr, dir *string
	limit           *int64
	mu              sync.Mutex
	fd              = -1
	off, base       int64
	blen, nrec      int64
	id              = [16]byte{1}
)

func roll() {
	if fd >= 0 {
		unix.Close(fd)
	}
	p := filepath.Join(*dir, fmt.Sprintf("kfloor.%d", os.Getpid()))
	var e error
	if fd, e = unix.Open(p, unix.O_CREAT|unix.O_RDWR|unix.O_TRUNC, 0o644); e != nil {
		panic(e)
	}
	os.Remove(p)
	off, base = 0, 0
}

func main() {
	mode = flag.String("mode", "write", "echo, crc, write")
	addr = flag.String("addr", "127.0.0.1:21990", "listen address")
	dir = flag.String("dir", ".", "data directory")
	limit = flag.Int64("roll", 1<<30, "roll the file at this size")
	flag.Parse()
	roll()
	l, e := net.Listen("tcp", *addr)
	if e != nil {
		panic(e)
	}
	for {
		c, e := l.Accept()
		if e != nil {
			return
		}
		go serve(c)
	}
}

func serve(c net.Conn) {
	defer c.Close()
	be := binary.BigEndian
	buf := make([]byte, 2<<20)
	have := 0
	var out []byte
	for {
		n, e := c.Read(buf[have:])
		if e != nil {
			return
		}
		have += n
		p := 0
		out = out[:0]
		for have-p >= 4 {
			sz := int(be.Uint32(buf[p:]))
			if have-p < 4+sz {
				if sz+4 > len(buf) {
					return
				}
				break
			}
			f := buf[p+4 : p+4+sz]
			p += 4 + sz
			key, ver, corr := int16(be.Uint16(f)), int16(be.Uint16(f[2:])), be.Uint32(f[4:])
			if key == 0 && ver >= 9 && ver <= 12 {
				out = produce(out, f, corr)
				continue
			}
			if key == 1 && ver == 12 {
				if len(out) > 0 {
					c.Write(out)
					out = out[:0]
				}
				if !fetch(c, f, corr) {
					return
				}
				continue
			}
			out = other(out, f, key, ver, corr)
		}
		if p > 0 {
			copy(buf, buf[p:have])
			have -= p
			if len(out) > 0 {
				if _, e := c.Write(out); e != nil {
					return
				}
			}
		}
	}
}

func produce(out, f []byte, corr uint32) []byte {
	be := binary.BigEndian
	o := 8
	o += 2 + int(int16(be.Uint16(f[o:]))) // client id
	o++                                   // header tags
	_, k := binary.Uvarint(f[o:])         // transactional id (null)
	o += k
	acks := int16(be.Uint16(f[o:]))
	o += 6
	_, k = binary.Uvarint(f[o:])
	o += k
	l, k := binary.Uvarint(f[o:])
	o += k
	name := f[o : o+int(l)-1]
	o += int(l) - 1
	_, k = binary.Uvarint(f[o:])
	o += k
	part := be.Uint32(f[o:])
	o += 4
	l, k = binary.Uvarint(f[o:])
	o += k
	b := f[o : o+int(l)-1]
	var at int64
	if *mode != "echo" {
		if crc32.Checksum(b[21:], kw.Castagnoli) != be.Uint32(b[17:]) {
			panic("crc")
		}
		if *mode == "write" {
			mu.Lock()
			n := int64(be.Uint32(b[57:]))
			blen, nrec = int64(len(b)), n
			at = base
			be.PutUint64(b, uint64(at))
			be.PutUint32(b[12:], 7)
			if _, e := unix.Pwrite(fd, b, off); e != nil {
				panic(e)
			}
			base += n
			off += int64(len(b))
			if off > *limit {
				roll()
			}
			mu.Unlock()
		}
	}
	if acks == 0 {
		return out
	}
	s := len(out)
	out = append(out, 0, 0, 0, 0)
	out = be.AppendUint32(out, corr)
	out = append(out, 0, 2)
	out = binary.AppendUvarint(out, uint64(len(name)+1))
	out = append(out, name...)
	out = append(out, 2)
	out = be.AppendUint32(out, part)
	out = append(out, 0, 0)
	out = be.AppendUint64(out, uint64(at))
	out = be.AppendUint64(out, ^uint64(0))
	out = be.AppendUint64(out, 0)
	out = append(out, 1, 0, 0, 0) // no record errors, null message, tags of partition and topic
	out = be.AppendUint32(out, 0)
	out = append(out, 0)
	be.PutUint32(out[s:], uint32(len(out)-s-4))
	return out
}

// fetch answers with whole batches from the file: header by write, body by sendfile.
func fetch(c net.Conn, f []byte, corr uint32) bool {
	be := binary.BigEndian
	r := kmsg.NewPtrFetchRequest()
	r.SetVersion(12)
	o := 10 + int(int16(be.Uint16(f[8:]))) + 1
	if r.ReadFrom(f[o:]) != nil || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return false
	}
	p := r.Topics[0].Partitions[0]
	mu.Lock()
	pos, n, hwm := int64(0), int64(0), base
	if nrec > 0 && p.FetchOffset < base {
		pos = p.FetchOffset / nrec * blen
		n = min(int64(p.PartitionMaxBytes)/blen*blen, off-pos)
	}
	mu.Unlock()
	name := r.Topics[0].Topic
	out := make([]byte, 4, 128)
	out = be.AppendUint32(out, corr)
	out = append(out, 0)
	out = be.AppendUint32(out, 0) // throttle
	out = append(out, 0, 0)
	out = be.AppendUint32(out, 0) // session
	out = append(out, 2)
	out = binary.AppendUvarint(out, uint64(len(name)+1))
	out = append(out, name...)
	out = append(out, 2)
	out = be.AppendUint32(out, uint32(p.Partition))
	out = append(out, 0, 0)
	out = be.AppendUint64(out, uint64(hwm))
	out = be.AppendUint64(out, uint64(hwm))
	out = be.AppendUint64(out, 0)
	out = append(out, 0)
	out = be.AppendUint32(out, ^uint32(0))
	out = binary.AppendUvarint(out, uint64(n+1))
	be.PutUint32(out, uint32(int64(len(out)-4)+n+3))
	if _, e := c.Write(out); e != nil {
		return false
	}
	rc, _ := c.(*net.TCPConn).SyscallConn()
	ok := true
	rc.Write(func(s uintptr) bool {
		for n > 0 {
			k, e := unix.Sendfile(int(s), fd, &pos, int(n))
			if e == unix.EAGAIN {
				return false
			}
			if e == unix.EINTR {
				continue
			}
			if e != nil || k == 0 {
				ok = false
				return true
			}
			n -= int64(k)
		}
		return true
	})
	if !ok {
		return false
	}
	_, e := c.Write([]byte{0, 0, 0})
	return e == nil
}

func other(out, f []byte, key, ver int16, corr uint32) []byte {
	var resp kmsg.Response
	switch key {
	case 3:
		r := kmsg.NewPtrMetadataResponse()
		b := kmsg.NewMetadataResponseBroker()
		h, p, _ := net.SplitHostPort(*addr)
		n, _ := strconv.Atoi(p)
		b.NodeID, b.Host, b.Port = 1, h, int32(n)
		r.Brokers = append(r.Brokers, b)
		req := kmsg.NewPtrMetadataRequest()
		req.SetVersion(ver)
		o := 10 + int(int16(binary.BigEndian.Uint16(f[8:])))
		if req.IsFlexible() {
			o++
		}
		if req.ReadFrom(f[o:]) == nil {
			for _, t := range req.Topics {
				x := kmsg.NewMetadataResponseTopic()
				x.Topic, x.TopicID = t.Topic, id
				q := kmsg.NewMetadataResponseTopicPartition()
				q.Leader, q.Replicas, q.ISR = 1, []int32{1}, []int32{1}
				x.Partitions = append(x.Partitions, q)
				r.Topics = append(r.Topics, x)
			}
		}
		resp = r
	case 19:
		resp = kmsg.NewPtrCreateTopicsResponse()
	default:
		panic(fmt.Sprint("request key ", key))
	}
	resp.SetVersion(ver)
	s := len(out)
	out = append(out, 0, 0, 0, 0)
	out = binary.BigEndian.AppendUint32(out, corr)
	if resp.IsFlexible() {
		out = append(out, 0)
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out[s:], uint32(len(out)-s-4))
	return out
}
