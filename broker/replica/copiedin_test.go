package replica

import (
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// Files of a partition that went on elsewhere, and that are put in the place of those of a stopped node, count whole, also beside the
// producer snapshot of that stop: it is no sign that the log ends there.
func TestCopiedInFilesCountWhole(t *testing.T) {
	own := "data/t-1/00000000000000000008.snapshot"
	for name, x := range map[string]struct {
		leaves string
		untold bool // how the stop left the log is not written down, as that of one with an open transaction is not
	}{
		"with the snapshot of their own stop": {},
		"without":                             {leaves: own},
		"without, of a log that is not told":  {leaves: own, untold: true},
	} {
		t.Run(name, func(t *testing.T) {
			k, mem, ends := stoppedKit(t)
			files := []string{"data/" + restingFile, "data/" + cleanShutdownFile, "data/" + recoveryPointFile, "data/" + hwFile,
				"data/t-1/00000000000000000003.snapshot"}
			var stop [][]byte
			for _, f := range files {
				data, err := vfs.ReadFile(mem, f)
				if err != nil {
					t.Fatal(err)
				}
				stop = append(stop, data)
			}
			if x.untold {
				r, err := decodeResting(stop[0])
				if err != nil {
					t.Fatal(err)
				}
				delete(r.logs, k.part("t", 1).TP)
				stop[0] = r.encode()
			}
			k = k.another(mem, 1) // it stands for the other node
			k.open()
			k.append(k.part("t", 1), idempotent(7, 3, 5), 1)
			k.close()
			for i, f := range files {
				if err := vfs.WriteAtomic(mem, f, stop[i]); err != nil {
					t.Fatal(err)
				}
			}
			if x.leaves != "" {
				if err := mem.Remove(x.leaves); err != nil {
					t.Fatal(err)
				}
			}
			ends[1] += 5
			k = k.another(mem, 1)
			k.open()
			defer k.close()
			if want := [togetherParts]bool{true, false, true, true}; k.resting() != want || k.ends() != ends {
				t.Fatalf("resting %v, ends %v, want %v", k.resting(), k.ends(), ends)
			}
			if a := k.append(k.part("t", 1), idempotent(7, 8, 1), 1); a.First != wire.Offset(8) {
				t.Fatalf("written on at %d", a.First)
			}
			if a := k.append(k.part("t", 1), idempotent(7, 3, 5), 1); !a.Duplicate || a.First != 3 {
				t.Fatalf("%+v", a)
			}
		})
	}
}
