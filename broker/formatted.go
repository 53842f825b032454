package broker

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kajamq/kaja/broker/api"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/kajamq/kaja/wire/coordrec"
)

// Formatted is what kafka-storage format wrote for the metadata of a new cluster, beside the ids.
type Formatted struct {
	// Features is the levels that the cluster is to begin with, of those features that kaja has.
	Features map[string]int16
	// Missing is features, as name=level, that kaja does not have; the cluster begins without them.
	Missing []string
	// Voters is the quorum that was written down, nil if none was (static voters, or a node that is to join).
	Voters []coordrec.KRaftVoter
	// Joins: it was formatted with --no-initial-controllers, to join a quorum that exists.
	Joins bool
}

// scramRecord is the type of Kafka's UserScramCredentialRecord.
const scramRecord = 11

// readFormatted reads the checkpoints that the format left, and refuses by name what would get lost. nil where there are none.
func readFormatted(fs vfs.FS, files []string) (*Formatted, error) {
	if len(files) == 0 {
		return nil, nil
	}
	f := &Formatted{Features: map[string]int16{}}
	dynamic := false
	for _, name := range files {
		data, err := vfs.ReadFile(fs, name)
		if err != nil {
			return nil, dirError("read "+name, path.Dir(name), err)
		}
		d, err := f.read(data)
		if err != nil {
			return nil, refuseFormatted(name, err)
		}
		dynamic = dynamic || d
	}
	f.Joins = dynamic && len(f.Voters) == 0
	slices.Sort(f.Missing)
	f.Missing = slices.Compact(f.Missing)
	if level, ok := f.Features[image.FeatureMetadataVersion]; !ok {
		return nil, refuseFormatted(files[0], errors.New("it says no metadata.version"))
	} else if has := supportedFeatures()[image.FeatureMetadataVersion]; level < has.Min || level > has.Max {
		return nil, &StartError{What: "use the formatted directory of " + files[0],
			Err:  fmt.Errorf("it was formatted for metadata.version %d, and kaja has %d to %d", level, has.Min, has.Max),
			Todo: "Nothing was changed. Format an empty directory with kafka-storage of Kafka 4.4 and without --release-version, or start with an empty one."}
	}
	return f, nil
}

func refuseFormatted(name string, err error) error {
	return &StartError{What: "use the formatted directory of " + name, Err: err,
		Todo: "Nothing was changed. Format an empty directory without this, or start with an empty one."}
}

func supportedFeatures() map[string]image.VersionRange { return api.BrokerFeatures() }

// read takes in one checkpoint. dynamic: it is of a quorum whose voters are kept in the metadata (kraft.version 1).
func (f *Formatted) read(data []byte) (dynamic bool, err error) {
	codecs := compress.New()
	for len(data) > 0 {
		b, rest, err := batch.Next(data)
		if err != nil {
			return false, err
		}
		data = rest
		if err := b.CheckCRC(); err != nil {
			return false, err
		}
		payload, err := b.Records(codecs, nil, int64(len(data))+1<<20)
		if err != nil {
			return false, err
		}
		it := batch.Iterate(payload, b.Count())
		for it.Next() {
			if b.Control() {
				d, err := f.control(&it.Record)
				if err != nil {
					return false, err
				}
				dynamic = dynamic || d
				continue
			}
			if err := f.record(it.Record.Value); err != nil {
				return false, err
			}
		}
		if err := it.Err(); err != nil {
			return false, err
		}
	}
	return dynamic, nil
}

func (f *Formatted) control(r *batch.Record) (dynamic bool, err error) {
	_, kind, err := batch.ParseControlKey(r.Key)
	switch {
	case err != nil:
		return false, err
	case kind == batch.ControlKRaftVersion: // version of the schema, then the level
		return len(r.Value) >= 4 && r.Value[3] > 0, nil
	case kind == batch.ControlKRaftVoters:
		voters, err := coordrec.ParseKRaftVoters(r.Value)
		f.Voters = voters
		return true, err
	}
	return false, nil
}

// record takes in one metadata record: a new cluster's are levels of features and, if asked for, SCRAM credentials.
func (f *Formatted) record(value []byte) error {
	rec, err := coordrec.DecodeMetadata(value)
	if unknown, ok := errors.AsType[*coordrec.UnknownRecordError](err); ok && unknown.Type == scramRecord {
		return errors.New("it holds SCRAM credentials (--add-scram), which kaja does not have yet")
	}
	if err != nil {
		return err
	}
	level, ok := rec.(*coordrec.FeatureLevelRecord)
	if !ok {
		return fmt.Errorf("it holds a %s, which does not belong into the metadata of a new cluster", strings.TrimPrefix(fmt.Sprintf("%T", rec), "*coordrec."))
	}
	has, known := supportedFeatures()[level.Name]
	switch {
	case !known && level.Level > 0:
		f.Missing = append(f.Missing, fmt.Sprintf("%s=%d", level.Name, level.Level))
	case !known:
	case level.Name != image.FeatureMetadataVersion && (level.Level < has.Min || level.Level > has.Max):
		return fmt.Errorf("it asks for %s=%d, and kaja has %d to %d", level.Name, level.Level, has.Min, has.Max)
	default:
		if other, twice := f.Features[level.Name]; twice && other != level.Level {
			return fmt.Errorf("two checkpoints disagree about %s: %d and %d", level.Name, other, level.Level)
		}
		f.Features[level.Name] = level.Level
	}
	return nil
}

// alone refuses, for a node that is to be its cluster's only controller, a quorum that is not this node alone.
func (f *Formatted) alone(file string, node wire.BrokerID, dir wire.UUID) error {
	var err error
	todo := "Nothing was changed. Format an empty directory with --standalone, or start with an empty one."
	switch {
	case f.Joins:
		err = errors.New("it was formatted with --no-initial-controllers, to join a quorum, and the configuration names no other controller")
	case len(f.Voters) > 1:
		err = fmt.Errorf("its quorum has %d controllers, and the configuration names no other than this node", len(f.Voters))
	case len(f.Voters) == 1 && (f.Voters[0].ID != node || f.Voters[0].DirectoryID != dir):
		err = fmt.Errorf("its quorum is node %d with directory %s, and this is node %d with directory %s", f.Voters[0].ID, f.Voters[0].DirectoryID, node, dir)
	}
	if err == nil {
		return nil
	}
	return &StartError{What: "use the formatted directory of " + file, Err: err, Todo: todo}
}

// quorum is the voters that were written down, by node id.
func (f *Formatted) quorum() []peer.ID {
	var out []peer.ID
	for _, v := range f.Voters {
		out = append(out, peer.ID{NodeID: v.ID, DirectoryID: v.DirectoryID})
	}
	slices.SortFunc(out, func(a, b peer.ID) int { return int(a.NodeID) - int(b.NodeID) })
	return out
}

// levels is the levels of features that the format asks for, nil for kaja's own choice.
func (id *Identity) levels() map[string]int16 {
	if id.Formatted == nil {
		return nil
	}
	return id.Formatted.Features
}
