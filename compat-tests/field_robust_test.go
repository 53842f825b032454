package compattests_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cases from the field that concern load, strangers on the port, kills and idle connections.

// B10: handshakes never wait behind data: many readers that start together each get a first record soon.
func TestFieldB10ManyReadersStart(t *testing.T) {
	need(t, "kcat")
	b := ownBroker(t, nil)
	const readers = 32
	makeTopic(t, b, "b10", readers, nil)
	client := newClient(t, b, kgo.DefaultProduceTopic("b10"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(900_000))
	value := []byte(strings.Repeat("0123456789abcdef", 1024))
	perPartition := 640 // 16 KiB each: 10 MiB per partition, 320 MiB in all
	if long() {
		perPartition = 4096 // 2 GiB in all
	}
	for i := range readers * perPartition {
		client.Produce(t.Context(), &kgo.Record{Partition: int32(i % readers), Value: value}, nil)
	}
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	processes := make([]*process, readers)
	began := time.Now()
	for i := range processes {
		processes[i] = startProcess(t, "kcat", "-b", b.Addr, "-C", "-t", "b10", "-p", strconv.Itoa(i), "-o", "beginning", "-e", "-q", "-f", "%o\n")
	}
	// While they read, handshakes on new connections are answered.
	var slowest time.Duration
	for range 40 {
		at := time.Now()
		c := dial(t, b)
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version = 0
		do[*kmsg.ApiVersionsResponse](t, c, req)
		slowest = max(slowest, time.Since(at))
		_ = c.Close()
	}
	for i, p := range processes {
		select {
		case <-p.done:
		case <-time.After(120 * time.Second):
			t.Fatalf("reader %d not done after %v", i, time.Since(began))
		}
		if n := strings.Count(p.out.String(), "\n"); n != perPartition {
			t.Errorf("reader %d read %d records (%s), want %d", i, n, p.err.String(), perPartition)
		}
		if strings.Contains(p.err.String(), "ApiVersion") {
			t.Errorf("reader %d had trouble with ApiVersions: %s", i, p.err.String())
		}
	}
	t.Logf("%d readers done after %v; slowest handshake beside them %v", readers, time.Since(began), slowest)
	if slowest > 2*time.Second {
		t.Errorf("slowest handshake took %v", slowest)
	}
}

// B16: strangers on the port are cut off and nobody else notices.
func TestFieldB16Strangers(t *testing.T) {
	t.Parallel() // it waits, beside a broker of its own
	need(t, "kcat")
	b := ownBroker(t, nil)
	makeTopic(t, b, "b16", 1, nil)
	frames := map[string][]byte{
		"HTTP":                  []byte("GET / HTTP/1.1\r\n\r\n"),
		"TLS hello":             {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03},
		"length -1":             {0xff, 0xff, 0xff, 0xff, 0, 0},
		"length 100 MB and one": {0x06, 0x40, 0x00, 0x01, 0, 0},
		"length 0":              {0, 0, 0, 0},
	}
	stranger := func(frame []byte) error {
		conn, err := net.DialTimeout("tcp", b.Addr, 10*time.Second)
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.Write(frame); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			return fmt.Errorf("write: %w", err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(15 * time.Second)); err != nil {
			return fmt.Errorf("set deadline: %w", err)
		}
		if n, err := io.Copy(io.Discard, conn); n != 0 || (err != nil && !errors.Is(err, syscall.ECONNRESET)) {
			return fmt.Errorf("read %d bytes, then %w; want the connection closed", n, err)
		}
		return nil
	}
	for name, frame := range frames {
		t.Run(name, func(t *testing.T) {
			if err := stranger(frame); err != nil {
				t.Error(err)
			}
		})
	}
	before := residentBytes(t, b)
	var wg sync.WaitGroup
	kinds := [][]byte{frames["HTTP"], frames["TLS hello"], frames["length -1"], frames["length 100 MB and one"]}
	for i := range 500 {
		wg.Go(func() {
			if err := stranger(kinds[i%len(kinds)]); err != nil {
				t.Errorf("stranger %d: %v", i, err)
			}
		})
	}
	half := make([]net.Conn, 50) // these send three bytes and wait
	for i := range half {
		conn, err := net.Dial("tcp", b.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := conn.Write([]byte{0, 0, 0}); err != nil {
			t.Fatal(err)
		}
		half[i] = conn
	}
	kcat(t, b, numbers(1, 1000), "-P", "-t", "b16", "-p", "0")
	wg.Wait()
	wantLines(t, "kcat beside strangers", lines(kcat(t, b, "", "-C", "-t", "b16", "-p", "0", "-o", "beginning", "-e", "-q")), lines(numbers(1, 1000)))
	if grown := residentBytes(t, b) - before; grown > 200<<20 {
		t.Errorf("the broker grew by %d MiB", grown>>20)
	}
	if b.Kind == target.Kafka {
		return // it waits for as long as it does for any idle connection
	}
	for i, conn := range half { // ten seconds after they came
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Fatalf("half-open connection %d: read %d bytes, %v; want end of file", i, n, err)
		}
	}
}

// residentBytes reads the resident memory of the broker's process.
func residentBytes(t *testing.T, b *target.Broker) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.PID()))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// B59: idle connections are cut by FIN, clients go on, and a polite stop answers what waits.
func TestFieldB59IdleConnections(t *testing.T) {
	t.Parallel() // it waits, beside a broker of its own
	need(t, "kcat")
	b := ownBroker(t, map[string]string{"connections.max.idle.ms": "3000"})
	makeTopic(t, b, "b59", 1, nil)
	c := dial(t, b)
	metadata(t, c, 8, false, "b59")
	c.Timeout = 20 * time.Second
	began := time.Now()
	n, err := c.Net().Read(make([]byte, 1))
	if n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("idle connection: read %d bytes, %v; want end of file", n, err)
	}
	if took := time.Since(began); took < 2500*time.Millisecond {
		t.Errorf("idle connection was cut after %v, the limit is 3s", took)
	}
	// A client that pauses longer than the limit goes on.
	client := newClient(t, b, kgo.DefaultProduceTopic("b59"))
	if err := client.ProduceSync(t.Context(), kgo.StringRecord("a")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	watch := dial(t, b)
	metadata(t, watch, 8, false, "b59")
	watch.Timeout = 20 * time.Second
	if closed, err := watch.AtEOF(); !closed || err != nil { // now the client's connection is idle for as long as this one
		t.Fatalf("idle connection: closed %v, %v", closed, err)
	}
	if err := client.ProduceSync(t.Context(), kgo.StringRecord("b")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	wantLines(t, "records", lines(kcat(t, b, "", "-C", "-t", "b59", "-o", "beginning", "-e", "-q")), []string{"a", "b"})

	waiting := dial(t, b)
	req := fetchRequest("b59", 0, 2)
	req.MaxWaitMillis, req.MinBytes = 2500, 1
	corr, err := waiting.Send(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := waiting.Receive(req, corr); err != nil && !errors.Is(err, raw.ErrClosed) {
		t.Errorf("request that waited at the stop: %v", err)
	}
}

var errNoProgress = errors.New("too few records")

// await waits until so many records of a load are acknowledged.
func (l *load) await(t *testing.T, records int) {
	t.Helper()
	err := poll.Until(t.Context(), 60*time.Second, fmt.Sprint(records, " acknowledged records"), func() (bool, error) {
		if l.count() >= records {
			return true, nil
		}
		return false, errNoProgress
	})
	if err != nil {
		t.Fatal(err)
	}
}
