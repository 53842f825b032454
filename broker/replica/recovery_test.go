package replica

import (
	"bytes"
	"log/slog"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// After a crash logs are recovered side by side, and a start that takes long says how far it is and how much it has read again.
func TestRecoveryIsParallelAndTellsHowFarItIs(t *testing.T) {
	const partitions = 6
	mem := memfs.New(ticking())
	k := newKit(t, mem)
	k.open()
	k.topic("t", topicID("t"), partitions)
	for i := range partitions {
		k.append(k.part("t", wire.PartitionID(i)), records(5, 100), 1)
	}
	crashed := faultfs.New(mem.Crash(memfs.Keep, 1))
	k.close()

	var mu sync.Mutex
	var once sync.Once
	met, at := make(chan struct{}), map[string]bool{}
	crashed.Before(func(_ faultfs.Op, name string) {
		dir := path.Base(path.Dir(name))
		if !strings.HasPrefix(dir, "t-") {
			return
		}
		mu.Lock()
		if at[dir] = true; len(at) == 2 {
			once.Do(func() { close(met) })
		}
		mu.Unlock()
		select {
		case <-met:
		case <-time.After(20 * time.Second):
			t.Error("one log is recovered after the other")
		}
	})
	n := k.another(crashed, 1)
	var out bytes.Buffer
	now := time.Now()
	n.o.Logger = slog.New(slog.NewTextHandler(&out, nil))
	n.o.Now = func() time.Time { // each look at it is a second later
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
	n.open()
	crashed.Before(nil)
	defer n.close()
	text := out.String()
	if !strings.Contains(text, `msg="recovering partitions" done=`) || !strings.Contains(text, " of=6 bytes_recovered=") {
		t.Errorf("how far it is is not told:\n%s", text)
	}
	if !strings.Contains(text, `msg="partitions opened" partitions=6 logs=6 resting=0 bytes_recovered=`) || strings.Contains(text, "resting=0 bytes_recovered=0 ") {
		t.Errorf("what it has read again is not told:\n%s", text)
	}
}
