package replica

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// A directory that was left half made at a partition's first record, at any file call, stands in nobody's way once the partition lies in
// another log directory: not when it moves back, nor when its name is taken by another topic, nor at a start, which would find it twice.
func TestHalfMadeDirectoryOfAPartitionThatMoves(t *testing.T) {
	left := 0
	for _, then := range []string{"moved back", "made again", "restarted"} {
		for n := 1; n < 30; n++ {
			t.Run(fmt.Sprintf("%s, call %d", then, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mem := memfs.New(time.Now)
					faults := faultfs.New(mem)
					k := newMoveKit(t, faults, "one", "two")
					p := k.start(0)
					_, err := k.recordWithoutDescriptors(faults, p, n)
					if there, _ := vfs.Exists(mem, "one/t-0"); err == nil || !there || !log.Passing(err) {
						k.close()
						return
					}
					left++
					k.move("two")
					k.settle()
					if p.dir().path != "two" {
						t.Fatalf("it lies in %s", p.dir().path)
					}
					switch then {
					case "moved back":
						k.move("one")
						k.settle()
					case "made again":
						k.apply(remove("t"))
						synctest.Wait()
						k.topic("t", topicID("again"), 1)
						p = k.part("t", 0)
					case "restarted":
						k.committed(p, records(1, 10))
						k.close()
						k = k.restart(faults)
						p = k.part("t", 0)
					}
					if _, err := p.AppendAsLeader(k.validate(p, records(1, 10)), wire.NoLeaderEpoch, 1); err != nil {
						t.Errorf("in %s: %v", p.dir().path, err)
					}
					k.close()
				})
			})
		}
	}
	if left < 10 {
		t.Errorf("only %d directories were left half made", left)
	}
}
