package replica

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs/memfs"
)

// Files of deleted segments go after file.delete.delay.ms also when retention deletes more often than that, and the last
// ones go when nothing is deleted any more.
func TestDeletedFilesGoUnderSteadyRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newKit(t, mem)
		c := log.DefaultConfig()
		c.SegmentBytes, c.RetentionBytes, c.FileDeleteDelay = 1000, 1500, 12*time.Minute
		k.config["t"] = c
		k.open()
		k.topic("t", topicID("t"), 1)
		p := k.part("t", 0)
		deleted := func() int {
			names, err := mem.List("data/t-0")
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, name := range names {
				if strings.HasSuffix(name, ".log.deleted") {
					n++
				}
			}
			return n
		}
		for range 24 { // two hours: one segment more, and one too many, in every round of retention
			k.committed(p, records(1, 900))
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if n := deleted(); n > 3 {
				t.Fatalf("%d deleted segments wait, of one every 5 minutes for 12 minutes", n)
			}
		}
		if deleted() == 0 {
			t.Fatal("nothing was deleted")
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := deleted(); n != 0 {
			t.Fatalf("%d deleted segments are left", n)
		}
		k.close()
	})
}
