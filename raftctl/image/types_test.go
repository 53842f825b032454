package image

import "testing"

func TestEmptyImageHasNothing(t *testing.T) {
	img := Empty("c")
	if _, ok := img.Topic("t"); ok {
		t.Error("empty image has a topic")
	}
	for tp := range img.Topics() {
		t.Errorf("empty image yields topic %q", tp.Name)
	}
	if got := img.Config(ResourceTopic, "t"); got != nil {
		t.Errorf("config of unknown topic = %v, want nil", got)
	}
	if img.ELREnabled() {
		t.Error("empty image has ELR in force")
	}
}
