package image

import (
	"fmt"
	"slices"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// applyBroker applies the records that are about registrations.
func (e *editor) applyBroker(r coordrec.MetadataRecord) error {
	switch r := r.(type) {
	case *coordrec.RegisterBrokerRecord:
		e.registerBroker(r)
		return nil
	case *coordrec.UnregisterBrokerRecord:
		if _, err := e.broker(r.BrokerID, r.BrokerEpoch); err != nil {
			return err
		}
		e.noteBroker(r.BrokerID)
		e.img.brokers = e.img.brokers.Delete(int32(r.BrokerID))
		return nil
	case *coordrec.BrokerRegistrationChangeRecord:
		return e.changeBroker(r)
	case *coordrec.NodeRecord:
		n := &Node{ID: r.NodeID, DirectoryID: r.DirectoryID, Host: r.Host, Port: r.Port, Controller: r.Controller}
		e.img.nodes = e.img.nodes.Set(nodeKey(n.ID, n.DirectoryID), n)
		return nil
	case *coordrec.NodeRemovedRecord:
		e.img.nodes = e.img.nodes.Delete(nodeKey(r.NodeID, r.DirectoryID))
		return nil
	case *coordrec.FenceBrokerRecord:
		return e.changeBroker(&coordrec.BrokerRegistrationChangeRecord{BrokerID: r.ID, BrokerEpoch: r.Epoch, Fenced: 1})
	case *coordrec.UnfenceBrokerRecord:
		return e.changeBroker(&coordrec.BrokerRegistrationChangeRecord{BrokerID: r.ID, BrokerEpoch: r.Epoch, Fenced: -1})
	}
	return fmt.Errorf("record has no meaning here")
}

func (e *editor) broker(id wire.BrokerID, epoch wire.BrokerEpoch) (*Broker, error) {
	b, ok := e.img.Broker(id)
	if !ok {
		return nil, fmt.Errorf("broker %d is not registered", id)
	}
	if b.Epoch != epoch {
		return nil, fmt.Errorf("broker %d has epoch %d, not %d", id, b.Epoch, epoch)
	}
	return b, nil
}

func (e *editor) noteBroker(id wire.BrokerID) {
	if e.brokers == nil {
		e.brokers = make(map[wire.BrokerID]struct{})
	}
	e.brokers[id] = struct{}{}
}

func (e *editor) registerBroker(r *coordrec.RegisterBrokerRecord) {
	b := &Broker{
		ID: r.BrokerID, Epoch: r.BrokerEpoch, Incarnation: r.IncarnationID, Fenced: r.Fenced,
		InShutdown: r.InControlledShutdown, LogDirs: slices.Clone(r.LogDirs),
		CordonedLogDirs: slices.Clone(r.CordonedLogDirs),
		Features:        make(map[string]VersionRange, len(r.Features)),
	}
	for _, ep := range r.EndPoints {
		b.Endpoints = append(b.Endpoints, Endpoint{Listener: ep.Name, Host: ep.Host, Port: ep.Port, Protocol: ep.Protocol})
	}
	for _, f := range r.Features {
		b.Features[f.Name] = VersionRange{Min: f.Min, Max: f.Max}
	}
	if r.Rack != nil {
		b.Rack, b.HasRack = *r.Rack, true
	}
	e.noteBroker(b.ID)
	e.img.brokers = e.img.brokers.Set(int32(b.ID), b)
	e.img.nextEpoch = max(e.img.nextEpoch, b.Epoch+1)
}

func (e *editor) changeBroker(r *coordrec.BrokerRegistrationChangeRecord) error {
	old, err := e.broker(r.BrokerID, r.BrokerEpoch)
	if err != nil {
		return err
	}
	b := *old
	switch r.Fenced {
	case 1:
		b.Fenced = true
	case -1:
		b.Fenced = false
	}
	if r.InControlledShutdown == 1 {
		b.InShutdown = true
	}
	if len(r.LogDirs) > 0 {
		b.LogDirs = slices.Clone(r.LogDirs)
	}
	if r.CordonedLogDirs != nil {
		b.CordonedLogDirs = slices.Clone(r.CordonedLogDirs)
	}
	e.noteBroker(b.ID)
	e.img.brokers = e.img.brokers.Set(int32(b.ID), &b)
	return nil
}
