package api

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterReplicaLogDirs, all versions: what is moved, what each refusal is answered with, and that of a partition that is named
// twice the last directory counts.
func TestAlterReplicaLogDirs(t *testing.T) {
	for version := int16(1); version <= 2; version++ {
		synctest.Test(t, func(t *testing.T) {
			k := newDataKit(t)
			k.close()
			k.dirs = []replica.Dir{{Path: "/data", ID: wire.UUID{9}}, {Path: "/more", ID: wire.UUID{10}}}
			k.open()
			defer k.close()
			k.topic("t", 2)
			k.topic("far", 1, 2)
			long := strings.Repeat("l", 214)
			h := &alterReplicaLogDirs{dirs: k.m}
			msg := kmsg.NewPtrAlterReplicaLogDirsRequest()
			for _, d := range []struct {
				dir, topic string
				partitions []int32
			}{{"/more", "t", []int32{0, 1}}, {"/more", "far", []int32{0}}, {"/nowhere", "t", []int32{7}}, {"/more", "nope", []int32{0}},
				{"/more", long, []int32{0}}, {"/data", "t", []int32{1}}} {
				rd, rt := kmsg.NewAlterReplicaLogDirsRequestDir(), kmsg.NewAlterReplicaLogDirsRequestDirTopic()
				rd.Dir, rt.Topic, rt.Partitions = d.dir, d.topic, d.partitions
				rd.Topics = append(rd.Topics, rt)
				msg.Dirs = append(msg.Dirs, rd)
			}
			got := ""
			for _, topic := range ask[*kmsg.AlterReplicaLogDirsResponse](k, h.handle, msg, version).Topics {
				for _, p := range topic.Partitions {
					got += fmt.Sprintf("%s/%d:%d ", strings.ReplaceAll(topic.Topic, long, "long"), p.Partition, p.ErrorCode)
				}
			}
			if want := "t/0:0 t/1:0 t/7:57 far/0:9 nope/0:3 long/0:17 "; got != want {
				t.Errorf("v%d: %s, want %s", version, got, want)
			}
			synctest.Wait()
			where := map[string]string{}
			for _, d := range k.m.LogDirs() {
				for _, p := range d.Partitions {
					where[p.TP.String()] += d.Path
				}
			}
			if where["t-0"] != "/more" || where["t-1"] != "/data" {
				t.Errorf("v%d: %v", version, where)
			}
		})
	}
}
