package raftctl

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ConfigOp says what an incremental change does with a config.
type ConfigOp int8

// Kafka's AlterConfigOp.
const (
	ConfigSet      ConfigOp = 0
	ConfigDelete   ConfigOp = 1
	ConfigAppend   ConfigOp = 2
	ConfigSubtract ConfigOp = 3
)

// ConfigChange is one change of one config; Value is nil for null.
type ConfigChange struct {
	Name  string
	Op    ConfigOp
	Value *string
}

// AlterConfigs asks for changes of one resource. Replace makes the resource's configs exactly those that Changes set
// (the legacy request); Changes are then all ConfigSet.
type AlterConfigs struct {
	Resource image.Resource
	Changes  []ConfigChange
	Replace  bool
}

// maxConfigValue is the longest value that a config record may hold, in bytes.
const maxConfigValue = 32767

func checkValueSizes(configs map[string]string) *Error {
	for _, name := range sortedNames(configs) {
		if len(configs[name]) > maxConfigValue {
			return refuse(kerr.InvalidConfig, "The configuration value cannot be added because it exceeds the maximum value size of %d bytes.", maxConfigValue)
		}
	}
	return nil
}

func sortedNames(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// alterConfigs decides each resource by itself; results are parallel to the request, nil for success.
func (d *decider) alterConfigs(img *image.Image, requests []AlterConfigs) ([]coordrec.MetadataRecord, []*Error, error) {
	var records []coordrec.MetadataRecord
	results := make([]*Error, len(requests))
	for i, req := range requests {
		changed, err := d.alterResource(img, req)
		if err != nil {
			results[i] = err
			continue
		}
		records = append(records, changed...)
	}
	return records, results, nil
}

func (d *decider) alterResource(img *image.Image, req AlterConfigs) ([]coordrec.MetadataRecord, *Error) {
	old := img.Config(req.Resource.Type, req.Resource.Name)
	next := maps.Clone(old)
	if next == nil || req.Replace {
		next = make(map[string]string)
	}
	touched := make(map[string]struct{})
	for _, ch := range req.Changes {
		if err := d.applyChange(req.Resource.Type, next, ch); err != nil {
			return nil, err
		}
		touched[ch.Name] = struct{}{}
	}
	if err := d.checkResource(img, req.Resource, old, next, touched); err != nil {
		return nil, err
	}
	for name := range old {
		if _, ok := next[name]; !ok {
			touched[name] = struct{}{}
		}
	}
	var records []coordrec.MetadataRecord
	for _, name := range slices.Sorted(maps.Keys(touched)) {
		value, set := next[name]
		before, was := old[name]
		if set == was && value == before && req.Resource.Type != image.ResourceBroker {
			continue
		}
		r := &coordrec.ConfigRecord{ResourceType: int8(req.Resource.Type), ResourceName: req.Resource.Name, Name: name}
		if set {
			r.Value = &value
		}
		records = append(records, r)
	}
	return append(records, d.clearELR(img, req.Resource, records)...), nil
}

// clearELR follows a change of min.insync.replicas: who was eligible under the old value need not be under the new one
// (KIP-966; Kafka: ConfigurationControlManager).
func (d *decider) clearELR(img *image.Image, res image.Resource, changes []coordrec.MetadataRecord) []coordrec.MetadataRecord {
	of := res.Type == image.ResourceTopic || res.Type == image.ResourceBroker && res.Name == ""
	if !of || !img.ELREnabled() || !slices.ContainsFunc(changes, func(r coordrec.MetadataRecord) bool {
		c, ok := r.(*coordrec.ConfigRecord)
		return ok && c.Name == "min.insync.replicas"
	}) {
		return nil
	}
	return []coordrec.MetadataRecord{&coordrec.ClearELRRecord{Topic: res.Name}}
}

func (d *decider) applyChange(t image.ResourceType, next map[string]string, ch ConfigChange) *Error {
	switch ch.Op {
	case ConfigSet:
		if ch.Value == nil {
			return refuse(kerr.InvalidRequest, "Null value not supported for : %s", ch.Name)
		}
		next[ch.Name] = *ch.Value
	case ConfigDelete:
		delete(next, ch.Name)
	case ConfigAppend, ConfigSubtract:
		def, isList := d.configs.ListDefault(t, ch.Name)
		if !isList {
			op := "APPEND"
			if ch.Op == ConfigSubtract {
				op = "SUBTRACT"
			}
			return refuse(kerr.InvalidConfig, "Can't %s to key %s because its type is not LIST.", op, ch.Name)
		}
		if ch.Value == nil {
			return refuse(kerr.InvalidRequest, "Null value not supported for : %s", ch.Name)
		}
		current, ok := next[ch.Name]
		if !ok {
			current = def
		}
		next[ch.Name] = changeList(current, *ch.Value, ch.Op == ConfigAppend)
	default:
		return refuse(kerr.InvalidRequest, "Unknown operation %d", ch.Op)
	}
	return nil
}

// changeList appends what is not there yet, or takes away what is.
func changeList(current, values string, add bool) string {
	var list []string
	for _, v := range strings.Split(current, ",") {
		if v != "" {
			list = append(list, v)
		}
	}
	for _, v := range strings.Split(values, ",") {
		i := slices.Index(list, v)
		switch {
		case add && i < 0:
			list = append(list, v)
		case !add && i >= 0:
			list = slices.Delete(list, i, i+1)
		}
	}
	return strings.Join(list, ",")
}

func (d *decider) checkResource(img *image.Image, res image.Resource, old, next map[string]string, touched map[string]struct{}) *Error {
	switch res.Type {
	case image.ResourceTopic:
		return d.checkTopicConfigs(img, res.Name, next)
	case image.ResourceBroker:
		return d.checkBrokerConfigs(img, res.Name, old, next, touched)
	case image.ResourceGroup, image.ResourceClientMetrics:
		return refuse(kerr.InvalidRequest, "kaja does not support configs of this resource type yet")
	}
	return refuse(kerr.InvalidRequest, "Unknown resource type %d", res.Type)
}

func (d *decider) checkTopicConfigs(img *image.Image, name string, next map[string]string) *Error {
	if name == "" {
		return refuse(kerr.InvalidRequest, "Default topic resources are not allowed.")
	}
	if reason := InvalidTopicName(name); reason != "" {
		return refuse(kerr.InvalidTopicException, "%s", reason)
	}
	if err := checkValueSizes(next); err != nil {
		return err
	}
	broker, cluster := d.layers(img)
	if err := d.configs.ValidateTopic(broker, cluster, next); err != nil {
		return refuse(kerr.InvalidConfig, "%s", err)
	}
	if _, ok := img.Topic(name); !ok {
		return refuse(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", name)
	}
	return nil
}

func (d *decider) checkBrokerConfigs(img *image.Image, name string, old, next map[string]string, touched map[string]struct{}) *Error {
	elsewhere := false
	if name != "" {
		id, err := strconv.ParseInt(name, 10, 32)
		if elsewhere = wire.BrokerID(id) != d.nodeID; err != nil {
			return refuse(kerr.InvalidRequest, "Unable to parse broker name as a base 10 number.")
		}
		if id < 0 {
			return refuse(kerr.InvalidRequest, "Invalid negative broker ID.")
		}
	}
	if err := checkValueSizes(next); err != nil {
		return err
	}
	const minISR = "min.insync.replicas"
	if _, ok := touched[minISR]; ok && img.ELREnabled() {
		if name != "" {
			return refuse(kerr.InvalidConfig, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
		}
	}
	if _, was := old[minISR]; was && name == "" && img.ELREnabled() {
		if _, is := next[minISR]; !is {
			return refuse(kerr.InvalidConfig, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
		}
	}
	var changed []string
	for n := range touched {
		if _, ok := next[n]; ok {
			changed = append(changed, n)
		}
	}
	slices.Sort(changed)
	var was Layers
	was.Broker, was.Cluster = d.layers(img)
	is := was
	if name == "" {
		was.Cluster, is.Cluster = old, next
	} else {
		was.Broker, is.Broker = old, next
	}
	if err := d.configs.ValidateBroker(was, is, name != "", elsewhere, changed); err != nil {
		return refuse(kerr.InvalidRequest, "%s", err)
	}
	return nil
}
