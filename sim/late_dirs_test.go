package sim

import (
	"testing"
	"time"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A broker's word of where a replica lies is read late, when the directory that it names has failed and the replica lies in
// another one. The only replica of a partition is taken for lost then; its broker says again where it lies, and leads it.
func TestLateWordOfAFailedDirectory(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, _, cl := threeBrokers(t, seed)
		time.Sleep(time.Second) // everybody's heartbeat has told where he is
		r := create("t", 1)
		if got := at(t, cl, 1, r).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(got.ErrorCode))
		}
		time.Sleep(5 * time.Second) // the controller knows the directories
		ctl := c.Controller(time.Minute).controller()
		for i := range wire.PartitionID(3) {
			p, ok := ctl.Image().Partition("t", i)
			if !ok {
				t.Fatal("the partition is gone")
			}
			id := p.Replicas[0]
			lies := p.Directory(id)
			b := c.registration(t, id)
			topic, _ := ctl.Image().Topic("t")
			refused, err := ctl.AssignDirs(t.Context(), id, b.Epoch, []raftctl.DirAssignment{{Directory: wire.UUID{0: 1, 15: 99}, TopicID: topic.ID, Partition: i}})
			if err != nil || refused[0] != nil {
				t.Fatal(err, refused)
			}
			began := time.Now()
			for {
				now, _ := ctl.Image().Partition("t", i)
				if now.Leader == id && now.Directory(id) == lies {
					if now.LeaderEpoch == p.LeaderEpoch {
						t.Error("the replica was not taken for lost: nothing is shown")
					}
					break
				}
				if time.Since(began) > time.Second {
					t.Fatalf("a second later the partition is %+v, it was %+v", now, p)
				}
				time.Sleep(time.Millisecond)
			}
		}
	})
}
