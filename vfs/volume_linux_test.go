package vfs

import "testing"

func TestReleaseAtLeast(t *testing.T) {
	for release, want := range map[string]bool{
		"5.8.0-arch1": true, "5.10.0-28-amd64": true, "6.1.0": true, "6": false, "5.7.19": false, "4.19.0-26-amd64": false, "": false, "x.y": false,
	} {
		if got := releaseAtLeast(release, 5, 8); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}
