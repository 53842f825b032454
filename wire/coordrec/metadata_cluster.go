package coordrec

import "github.com/kajamq/kaja/wire"

// RegisterControllerRecord (type 27) replaces whatever controller was registered under the id.
type RegisterControllerRecord struct {
	ControllerID     wire.BrokerID
	IncarnationID    wire.UUID
	ZkMigrationReady bool
	EndPoints        []BrokerEndpoint
	Features         []BrokerFeature
}

func (*RegisterControllerRecord) metadataType() (int16, int16) { return 27, 0 }

func (r *RegisterControllerRecord) fields(c *coder) {
	i32(c, &r.ControllerID)
	c.uuid(&r.IncarnationID)
	c.bool(&r.ZkMigrationReady)
	endpoints(c, &r.EndPoints)
	features(c, &r.Features)
	c.tags()
}

// ClearELRRecord (type 28) forgets the eligible leader replicas, also the last known ones, of a topic; of every topic
// if Topic is empty. Kafka writes it when min.insync.replicas changes.
type ClearELRRecord struct {
	Topic string
}

func (*ClearELRRecord) metadataType() (int16, int16) { return 28, 0 }

func (r *ClearELRRecord) fields(c *coder) {
	c.string(&r.Topic)
	c.tags()
}

func endpoints(c *coder, v *[]BrokerEndpoint) {
	array(c, v, func(e *BrokerEndpoint) {
		c.string(&e.Name)
		c.string(&e.Host)
		c.uint16(&e.Port)
		c.int16(&e.Protocol)
		c.tags()
	})
}

func features(c *coder, v *[]BrokerFeature) {
	array(c, v, func(f *BrokerFeature) {
		c.string(&f.Name)
		c.int16(&f.Min)
		c.int16(&f.Max)
		c.tags()
	})
}

// NodeRecord (kaja, type 1004) says where a member of the metadata quorum, voter or not, accepts the connections of other
// nodes. It replaces what was said of the same node and directory.
type NodeRecord struct {
	NodeID      wire.BrokerID
	DirectoryID wire.UUID // of the metadata directory
	Host        string
	Port        uint16
	Controller  bool // its roles let it vote
}

func (*NodeRecord) metadataType() (int16, int16) { return typeNode, 0 }

func (r *NodeRecord) fields(c *coder) {
	i32(c, &r.NodeID)
	c.uuid(&r.DirectoryID)
	c.string(&r.Host)
	c.uint16(&r.Port)
	c.bool(&r.Controller)
	c.tags()
}

// NodeRemovedRecord (kaja, type 1005) forgets a NodeRecord.
type NodeRemovedRecord struct {
	NodeID      wire.BrokerID
	DirectoryID wire.UUID
}

func (*NodeRemovedRecord) metadataType() (int16, int16) { return typeNodeRemoved, 0 }

func (r *NodeRemovedRecord) fields(c *coder) {
	i32(c, &r.NodeID)
	c.uuid(&r.DirectoryID)
	c.tags()
}
