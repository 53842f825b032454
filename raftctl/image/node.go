package image

import (
	"encoding/binary"
	"iter"
	"strconv"
	"strings"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// Node is where a member of the metadata quorum, voter or not, accepts the connections of other nodes. A node whose disk
// was wiped is another one, with another directory id. Immutable.
type Node struct {
	ID          wire.BrokerID
	DirectoryID wire.UUID // of the metadata directory
	Host        string
	Port        uint16 // 0: lost when the quorum was recovered by force; it is not taken back under this directory
	Controller  bool   // its roles let it vote
}

// Address is host:port.
func (n *Node) Address() string {
	host := n.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(n.Port))
}

// Record is the node as the record that makes it.
func (n *Node) Record() *coordrec.NodeRecord {
	return &coordrec.NodeRecord{NodeID: n.ID, DirectoryID: n.DirectoryID, Host: n.Host, Port: n.Port, Controller: n.Controller}
}

// nodeKey orders nodes by their id.
func nodeKey(id wire.BrokerID, dir wire.UUID) string {
	return string(append(binary.BigEndian.AppendUint32(nil, uint32(id)), dir[:]...))
}

// Node finds a node by its id and its metadata directory.
func (i *Image) Node(id wire.BrokerID, dir wire.UUID) (*Node, bool) {
	return i.nodes.Get(nodeKey(id, dir))
}

// Nodes yields the members of the metadata quorum that have said where they are, in the order of their ids. A cluster of
// one node that nobody has joined has none.
func (i *Image) Nodes() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for it := i.nodes.Iterator(); !it.Done(); {
			_, n, _ := it.Next()
			if !yield(n) {
				return
			}
		}
	}
}

// SameNodes reports whether nothing was said of nodes between two images.
func (i *Image) SameNodes(o *Image) bool { return i.nodes == o.nodes }
