package sim

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
)

// SlowDisk makes every sync of a partition's log take up to d, by the seed, from the node's next start on. Without that a
// disk takes no time, and no crash falls between two steps of which each waits for the one before to be durable. It needs
// the tag sim, whose locks may be waited for in a bubble; without the tag it does nothing.
func (n *Node) SlowDisk(d time.Duration) {
	if locksMayWait {
		n.slow = d
	}
}

// FaultyDisk has every further start of the node see its disk through a layer of faults, which plant is given before the
// broker runs. A hook that takes time needs the tag sim.
func (n *Node) FaultyDisk(plant func(fs *faultfs.FS)) { n.faults = plant }

// diskOf is the disk as the broker of this start sees it.
func (n *Node) diskOf() vfs.FS {
	if n.faults != nil {
		fs := faultfs.New(n.disk)
		n.faults(fs)
		return fs
	}
	if n.slow == 0 {
		return n.disk
	}
	fs, seed := faultfs.New(n.disk), mix(n.cluster.seed, n.host.seed(), n.starts)
	var syncs atomic.Uint64
	fs.Before(func(op faultfs.Op, name string) {
		if op == faultfs.OpSync && strings.HasSuffix(name, ".log") {
			time.Sleep(time.Duration(mix(seed, syncs.Add(1), 0) % uint64(n.slow)))
		}
	})
	return fs
}
