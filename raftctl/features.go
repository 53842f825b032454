package raftctl

import (
	"fmt"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kerr"
)

// UpgradeType says what an update of a feature may do.
type UpgradeType int8

// Kafka's FeatureUpdate.UpgradeType.
const (
	Upgrade         UpgradeType = 1
	SafeDowngrade   UpgradeType = 2
	UnsafeDowngrade UpgradeType = 3
)

// FeatureUpdate asks for another finalised level of a feature; 0 is none.
type FeatureUpdate struct {
	Name  string
	Level int16
	Type  UpgradeType
}

// updateFeatures decides all updates or none (Kafka: FeatureControlManager.updateFeatures).
func (d *decider) updateFeatures(img *image.Image, updates []FeatureUpdate) ([]coordrec.MetadataRecord, error) {
	var records []coordrec.MetadataRecord
	for _, u := range updates {
		if reason := d.refusedLevel(img, u); reason != "" {
			return nil, refuse(kerr.InvalidUpdateVersion, "The update failed for all features since the following feature had an error: "+
				"Invalid update version %d for feature %s. %s", u.Level, u.Name, reason)
		}
		records = append(records, &coordrec.FeatureLevelRecord{Name: u.Name, Level: u.Level})
	}
	return records, nil
}

// refusedLevel gives the reason why a level cannot be finalised, in Kafka's words, or "".
func (d *decider) refusedLevel(img *image.Image, u FeatureUpdate) string {
	if u.Type < Upgrade || u.Type > UnsafeDowngrade {
		return "The controller does not support the given upgrade type."
	}
	if u.Level < 0 {
		return "A feature version cannot be less than 0."
	}
	if why := outside(d.features, u); why != "" {
		return fmt.Sprintf("Local controller %d %s", d.nodeID, why)
	}
	for b := range img.Brokers() {
		if why := outside(b.Features, u); why != "" {
			return fmt.Sprintf("Broker %d %s", b.ID, why)
		}
	}
	if _, ok := d.features[u.Name]; !ok {
		return fmt.Sprintf("Feature %s not found.", u.Name)
	}
	current, _ := img.Feature(u.Name)
	switch {
	case u.Level < current && u.Type == Upgrade:
		return "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
	case u.Level > current && u.Type != Upgrade:
		return "Can't downgrade to a newer version."
	}
	return ""
}

// outside says why a node that supports these levels does not support one, or "".
func outside(supported map[string]image.VersionRange, u FeatureUpdate) string {
	r, ok := supported[u.Name]
	switch {
	case !ok && u.Level == 0:
		return ""
	case !ok:
		return "does not support this feature."
	case u.Level < r.Min || u.Level > r.Max:
		return fmt.Sprintf("only supports versions %d-%d", r.Min, r.Max)
	}
	return ""
}
