package raftctl

import (
	"testing"

	"github.com/kajamq/kaja/raftctl/image"
)

// Whoever checks a broker's configs is told whether that broker's file is this node's.
func TestBrokerConfigsOfAnotherBroker(t *testing.T) {
	d := decider{nodeID: 1, configs: testConfigs{}}
	for name, refused := range map[string]bool{"": false, "1": false, "2": true} {
		res := image.Resource{Type: image.ResourceBroker, Name: name}
		err := d.checkResource(image.Empty("c"), res, nil, map[string]string{"known.here": "1"}, map[string]struct{}{"known.here": {}})
		if (err != nil) != refused {
			t.Errorf("broker %q: %v", name, err)
		}
	}
}
