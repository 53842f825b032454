package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"sync"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// bookName is the file, in the raft directory, that holds what the metadata last said of the nodes' addresses: after a
// start the members must find each other before any of them knows what of its log is committed.
const bookName = "nodes.json"

// nodeBook says where nodes accept the connections of others: what the metadata say, what they said before this start, who
// answered while the cluster formed, and what the settings say. Safe for concurrent use.
type nodeBook struct {
	fs     vfs.FS
	file   string // "" before the raft store exists
	voters []config.Voter

	mu     sync.Mutex
	img    *image.Image
	before map[peer.ID]string // from the file
	formed map[peer.ID]string
}

// bookEntry is a line of the file.
type bookEntry struct{ Node, Address string }

func newNodeBook(fs vfs.FS, raftDir string, voters []config.Voter) (*nodeBook, error) {
	b := &nodeBook{fs: fs, file: path.Join(raftDir, bookName), voters: voters, img: image.Empty(""), before: map[peer.ID]string{}}
	data, err := vfs.ReadFile(fs, b.file)
	if errors.Is(err, os.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the nodes' addresses: %w", err)
	}
	var entries []bookEntry
	if err := json.Unmarshal(data, &entries); err != nil {
		return b, nil //nolint:nilerr // a hint that cannot be read is none; the metadata and the settings say it again
	}
	for _, e := range entries {
		if id, err := peer.ParseID(e.Node); err == nil {
			b.before[id] = e.Address
		}
	}
	return b, nil
}

// formedBy notes who answered while the cluster formed.
func (b *nodeBook) formedBy(addresses map[peer.ID]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.formed = addresses
}

// learn takes the newest metadata, and writes down what changed.
func (b *nodeBook) learn(img *image.Image) error {
	b.mu.Lock()
	same := b.img.SameNodes(img)
	b.img = img
	b.mu.Unlock()
	if same {
		return nil
	}
	var entries []bookEntry
	for n := range img.Nodes() {
		if n.Port == 0 {
			continue // lost
		}
		entries = append(entries, bookEntry{peer.ID{NodeID: n.ID, DirectoryID: n.DirectoryID}.String(), n.Address()})
	}
	data, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	if err := vfs.WriteAtomic(b.fs, b.file, data); err != nil {
		return fmt.Errorf("write the nodes' addresses: %w", err)
	}
	return nil
}

// image is the newest metadata.
func (b *nodeBook) image() *image.Image {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.img
}

// addresses is where a node may be, the likeliest first.
func (b *nodeBook) addresses(id peer.ID) []string {
	id.ClusterID = ""
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	add := func(addr string) {
		if addr != "" && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	if n, ok := b.img.Node(id.NodeID, id.DirectoryID); ok && n.Port != 0 {
		add(n.Address())
	}
	add(b.formed[id])
	add(b.before[id])
	for _, v := range b.voters {
		if v.ID == id.NodeID {
			add(v.String())
		}
	}
	return out
}

// everybody is every address that is known.
func (b *nodeBook) everybody() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for n := range b.img.Nodes() {
		if n.Port == 0 {
			continue
		}
		out = append(out, n.Address())
	}
	for _, of := range []map[peer.ID]string{b.formed, b.before} {
		for _, addr := range of {
			out = append(out, addr)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// broker is where a broker takes requests of other brokers: where it has registered its inter-broker listener.
func (b *nodeBook) broker(node wire.BrokerID, interBroker string) (string, peer.ID, error) {
	b.mu.Lock()
	img := b.img
	b.mu.Unlock()
	if r, ok := img.Broker(node); ok {
		if e, ok := r.Endpoint(interBroker); ok {
			return config.HostPort{Host: e.Host, Port: int(e.Port)}.String(), peer.ID{NodeID: node}, nil
		}
	}
	return "", peer.ID{}, fmt.Errorf("the metadata do not say where broker %d is", node)
}

// resolve finds a node by its id alone: of two lives of a node the one whose disk its broker has.
func (b *nodeBook) resolve(node wire.BrokerID, interBroker string) (string, peer.ID, error) {
	img := b.image()
	broker, registered := img.Broker(node)
	var found *image.Node
	for n := range img.Nodes() {
		if n.ID == node && n.Port != 0 && (found == nil || registered && slices.Contains(broker.LogDirs, n.DirectoryID)) {
			found = n
		}
	}
	if found != nil {
		return found.Address(), peer.ID{NodeID: node, DirectoryID: found.DirectoryID}, nil
	}
	if registered {
		if e, ok := broker.Endpoint(interBroker); ok {
			return config.HostPort{Host: e.Host, Port: int(e.Port)}.String(), peer.ID{NodeID: node}, nil
		}
	}
	return "", peer.ID{}, fmt.Errorf("the metadata do not say where node %d is", node)
}
