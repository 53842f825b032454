package replica

import (
	"bytes"
	"maps"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
)

// FuzzCheckpoint: a checkpoint of any content is refused whole, or read and written again with the same meaning.
func FuzzCheckpoint(f *testing.F) {
	for _, seed := range []string{"0\n0\n", "0\n2\na 0 5\nb.c-d 17 9223372036854775807\n", "0\n1\na 0 5", "1\n0\n", "0\n-1\n", "0\n1\na 0 -5\n", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		offsets, err := decodeCheckpoint(data)
		if err != nil {
			return
		}
		again, err := decodeCheckpoint(encodeCheckpoint(offsets))
		if err != nil || !maps.Equal(again, offsets) {
			t.Fatalf("%v after writing and reading, want %v: %v", again, offsets, err)
		}
		for tp, o := range offsets {
			if o < 0 || tp.Partition < 0 {
				t.Fatalf("%s at %d", tp, o)
			}
		}
	})
}

// FuzzCleanShutdown: a clean-shutdown file of any content counts as one of some epoch, or as none.
func FuzzCleanShutdown(f *testing.F) {
	f.Add([]byte(`{"version":0,"brokerEpoch":5}`))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte("0"))
	f.Fuzz(func(t *testing.T, data []byte) {
		fs := memfs.New(nil)
		if err := vfs.WriteAtomic(fs, "/"+cleanShutdownFile, data); err != nil {
			t.Fatal(err)
		}
		c, ok := readCleanShutdown(fs, "/")
		if ok && (c.Version != 0 || !bytes.Contains(data, []byte("{")) && !bytes.Equal(bytes.TrimSpace(data), []byte("null"))) {
			t.Fatalf("%q was taken for %+v", data, c)
		}
	})
}
