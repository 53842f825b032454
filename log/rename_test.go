package log

import (
	"fmt"
	"sync"
	"testing"

	"github.com/kajamq/kaja/wire"
)

// Readers of segments that are not open find their files while the directory gets another name, and another.
func TestReadsWhileRenamed(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.SegmentBytes = 1000 })
	for i := range 200 {
		b.put(nil, false, 0, kv{key: fmt.Sprint(i)})
	}
	b.must(b.log.Close())
	for round := range 50 {
		b.open(true, 200)
		var wg sync.WaitGroup
		start := make(chan struct{})
		for reader := range 4 {
			wg.Go(func() {
				<-start
				for i := range 200 {
					o := wire.Offset((i*37 + reader) % 200)
					r, err := b.log.Read(o, ReadOptions{Max: 100, End: 200, MinOne: true})
					if err != nil {
						t.Errorf("round %d: read %d: %v", round, o, err)
						return
					}
					wire.Release(r.Segments)
				}
			})
		}
		close(start)
		for i := range 6 {
			b.dir = fmt.Sprintf("/data/t-0.%d", i)
			b.must(b.log.Rename(b.dir))
		}
		wg.Wait()
		b.must(b.log.Close())
		if t.Failed() {
			return
		}
	}
}
