package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// The files of a log directory that belong to no single partition, by Kafka's names.
const (
	recoveryPointFile = "recovery-point-offset-checkpoint"
	logStartFile      = "log-start-offset-checkpoint"
	hwFile            = "replication-offset-checkpoint"
	cleanerFile       = "cleaner-offset-checkpoint"
	cleanShutdownFile = ".kafka_cleanshutdown"
)

// encodeCheckpoint writes Kafka's text form of an offset checkpoint: the version 0, the number of entries, one entry a
// line, ordered so that equal content gives equal bytes.
func encodeCheckpoint(offsets map[wire.TopicPartition]wire.Offset) []byte {
	tps := make([]wire.TopicPartition, 0, len(offsets))
	for tp := range offsets {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, compareTP)
	b := fmt.Appendf(nil, "0\n%d\n", len(tps))
	for _, tp := range tps {
		b = fmt.Appendf(b, "%s %d %d\n", tp.Topic, tp.Partition, offsets[tp])
	}
	return b
}

func compareTP(a, b wire.TopicPartition) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return int(a.Partition) - int(b.Partition)
}

// decodeCheckpoint reads what encodeCheckpoint or Kafka wrote. Anything else is an error: a wrong offset is worse than
// none.
func decodeCheckpoint(data []byte) (map[wire.TopicPartition]wire.Offset, error) {
	lines := strings.Split(string(data), "\n")
	if n := len(lines); n < 3 || lines[n-1] != "" || lines[0] != "0" {
		return nil, errors.New("not an offset checkpoint of version 0")
	}
	want, err := strconv.Atoi(lines[1])
	if err != nil || want != len(lines)-3 {
		return nil, fmt.Errorf("checkpoint says %q entries and holds %d", lines[1], len(lines)-3)
	}
	offsets := make(map[wire.TopicPartition]wire.Offset, want)
	for _, line := range lines[2 : len(lines)-1] {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("malformed checkpoint line %q", line)
		}
		p, errP := strconv.ParseInt(f[1], 10, 32)
		o, errO := strconv.ParseInt(f[2], 10, 64)
		if errP != nil || errO != nil || p < 0 || o < 0 {
			return nil, fmt.Errorf("malformed checkpoint line %q", line)
		}
		offsets[wire.TopicPartition{Topic: f[0], Partition: wire.PartitionID(p)}] = wire.Offset(o)
	}
	return offsets, nil
}

// readCheckpoint gives nothing for a file that is missing, or empty because its content never reached the disk: as in Kafka.
func readCheckpoint(fs vfs.FS, name string) (map[wire.TopicPartition]wire.Offset, error) {
	data, err := vfs.ReadFile(fs, name)
	if errors.Is(err, os.ErrNotExist) || (err == nil && len(data) == 0) {
		return map[wire.TopicPartition]wire.Offset{}, nil
	}
	if err != nil {
		return nil, err
	}
	offsets, err := decodeCheckpoint(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return offsets, nil
}

// cleanShutdown is the content of the clean-shutdown file.
type cleanShutdown struct {
	Version     int              `json:"version"`
	BrokerEpoch wire.BrokerEpoch `json:"brokerEpoch"`
}

// PreviousBrokerEpoch is the broker epoch under which the node that owns the log directories was last stopped cleanly,
// or NoBrokerEpoch if the last stop was not clean for every one of them. It is what a registration tells the controller
// (KIP-966). It changes nothing; Manager.Open removes the files.
func PreviousBrokerEpoch(fs vfs.FS, dirs []Dir) wire.BrokerEpoch {
	epoch := wire.NoBrokerEpoch
	for i, d := range dirs {
		c, ok := readCleanShutdown(fs, d.Path)
		if !ok || (i > 0 && c.BrokerEpoch != epoch) {
			return wire.NoBrokerEpoch
		}
		epoch = c.BrokerEpoch
	}
	return epoch
}

func readCleanShutdown(fs vfs.FS, dir string) (cleanShutdown, bool) {
	var c cleanShutdown
	data, err := vfs.ReadFile(fs, path.Join(dir, cleanShutdownFile))
	if err != nil || json.Unmarshal(data, &c) != nil || c.Version != 0 {
		return cleanShutdown{BrokerEpoch: wire.NoBrokerEpoch}, false
	}
	return c, true
}

// writeCleanShutdown is the last thing that a clean stop does in a directory.
func writeCleanShutdown(fs vfs.FS, dir string, epoch wire.BrokerEpoch) error {
	data, err := json.Marshal(cleanShutdown{BrokerEpoch: epoch})
	if err != nil {
		return err
	}
	return vfs.WriteAtomic(fs, path.Join(dir, cleanShutdownFile), data)
}

// removeCleanShutdown removes what a clean stop has left, and makes that durable: from here on a crash is seen as one.
func removeCleanShutdown(fs vfs.FS, dir string) error {
	there := false
	for _, name := range []string{restingFile, cleanShutdownFile} {
		err := fs.Remove(path.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		there = true
	}
	if !there {
		return nil
	}
	return fs.SyncDir(dir)
}

// parseDirName reads the name of a partition's directory. kind is what a suffix says: "", "delete", "future" or
// "stray"; ok is false for anything that is no partition's directory.
func parseDirName(name string) (tp wire.TopicPartition, kind string, ok bool) {
	base := name
	for _, k := range []string{"delete", "future", "stray"} {
		if rest, found := strings.CutSuffix(name, "-"+k); found {
			if len(rest) < 34 || rest[len(rest)-33] != '.' {
				continue
			}
			base, kind = rest[:len(rest)-33], k
			break
		}
	}
	i := strings.LastIndexByte(base, '-')
	if i <= 0 {
		return tp, kind, false
	}
	p, err := strconv.ParseInt(base[i+1:], 10, 32)
	if err != nil || p < 0 || strconv.FormatInt(p, 10) != base[i+1:] {
		return tp, kind, false
	}
	return wire.TopicPartition{Topic: base[:i], Partition: wire.PartitionID(p)}, kind, true
}

// deletedDirName is where a partition's directory goes before it is removed: <topic>-<p>.<32 hex>-delete, with the topic
// cut so that the whole fits the 255 bytes of a file name.
func deletedDirName(tp wire.TopicPartition, id wire.UUID) string {
	const suffix = "-delete"
	tail := fmt.Sprintf("-%d.%s%s", tp.Partition, id.Hex(), suffix)
	topic := tp.Topic
	if n := 255 - len(tail); len(topic) > n {
		topic = topic[:n]
	}
	return topic + tail
}

// ParsePartitionDir tells which partition a directory of this name belongs to, one that waits for its removal included.
func ParsePartitionDir(name string) (wire.TopicPartition, bool) {
	tp, _, ok := parseDirName(name)
	return tp, ok
}
