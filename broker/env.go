package broker

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Env is the world as a broker sees it: the only way in for disk, network, wall clock, randomness, log lines and metrics,
// so that many brokers can live in one process of a test.
type Env struct {
	FS     vfs.FS
	Listen func(network, addr string) (net.Listener, error)
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	// Wall is the wall clock: record timestamps, retention. Deadlines use the monotonic clock of package time.
	Wall func() time.Time
	// Seed makes the ids that the broker draws repeatable; 0 draws them from the operating system.
	Seed uint64
	// Hostname is this machine's name; nil is os.Hostname.
	Hostname func() (string, error)
	Logger   *slog.Logger
	// LogLevel is the level from which on Logger logs; nil: it cannot be altered while the node runs.
	LogLevel   *slog.LevelVar
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer // what /metrics shows; nil: an empty page
}

// OSEnv is the real world. Its metrics begin with those of the process (process_*) and of the Go runtime (go_*).
func OSEnv(logger *slog.Logger) Env {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	var d net.Dialer
	return Env{
		FS: vfs.OS{}, Listen: net.Listen, Dial: d.DialContext, Wall: planted.Wall, Hostname: os.Hostname,
		Logger: logger, Registerer: reg, Gatherer: reg,
	}
}

// ids draws random ids. Safe for concurrent use.
type ids struct {
	mu  sync.Mutex
	pcg *rand.Rand // nil: the operating system's randomness
}

func newIDs(seed uint64) *ids {
	if seed == 0 {
		return &ids{}
	}
	return &ids{pcg: rand.New(rand.NewPCG(seed, 0x6b616a61))}
}

func (r *ids) read(b []byte) {
	if r.pcg == nil {
		_, _ = crand.Read(b) // never fails: it ends the process instead
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(b) > 0 {
		var w [8]byte
		binary.BigEndian.PutUint64(w[:], r.pcg.Uint64())
		b = b[copy(b, w[:]):]
	}
}

// uuid draws a version 4 UUID, never a reserved one, and never one whose text begins with a dash, which command lines
// would take for an option (Kafka: Uuid.randomUuid).
func (r *ids) uuid() wire.UUID {
	for {
		var u wire.UUID
		r.read(u[:])
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		if u.String()[0] != '-' {
			return u
		}
	}
}

// memberUUID is the random part of a member id, in the usual text form of a UUID.
func (r *ids) memberUUID() string {
	u := r.uuid()
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// sessionID is a fetch session id: greater than 0.
func (r *ids) sessionID() int32 {
	for {
		var b [4]byte
		r.read(b[:])
		if id := int32(binary.BigEndian.Uint32(b[:]) &^ (1 << 31)); id > 0 {
			return id
		}
	}
}
