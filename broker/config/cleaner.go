package config

import "time"

// Cleaner is what compaction runs with on this node: the same for all topics. It is an immutable value.
type Cleaner struct {
	Threads           int     // 0: nothing is compacted
	DedupeBufferBytes int64   // of all threads together
	BufferLoad        float64 // how full the dedupe buffer may get
	IOBufferBytes     int     // of all threads together
	BytesPerSecond    float64 // read and written by all threads together
	Backoff           time.Duration
}

// cleanerNames are the settings of a Cleaner that may be altered while the node runs.
var cleanerNames = []string{
	"log.cleaner.threads", "log.cleaner.dedupe.buffer.size", "log.cleaner.io.buffer.load.factor",
	"log.cleaner.io.buffer.size", "log.cleaner.io.max.bytes.per.second", "log.cleaner.backoff.ms",
}

// EffectiveCleaner is what this node's cleaner runs with under some altered settings.
func EffectiveCleaner(c *Config, dyn Dynamic) Cleaner {
	num := func(name string) int64 { n, _ := c.described(dyn, mustDef(name)).(int64); return n }
	real := func(name string) float64 { f, _ := c.described(dyn, mustDef(name)).(float64); return f }
	out := Cleaner{
		Threads:           cleanerThreads(c, dyn),
		DedupeBufferBytes: num("log.cleaner.dedupe.buffer.size"),
		BufferLoad:        real("log.cleaner.io.buffer.load.factor"),
		IOBufferBytes:     int(num("log.cleaner.io.buffer.size")),
		BytesPerSecond:    real("log.cleaner.io.max.bytes.per.second"),
		Backoff:           millis(num("log.cleaner.backoff.ms")),
	}
	if !c.Bool("log.cleaner.enable") {
		out.Threads = 0
	}
	return out
}

const cleanerThreadsName = "log.cleaner.threads"

// cleanerThreads is the number that is set, whether or not there is a cleaner.
func cleanerThreads(c *Config, dyn Dynamic) int {
	n, _ := c.described(dyn, mustDef(cleanerThreadsName)).(int64)
	return int(n)
}
