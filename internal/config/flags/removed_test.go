package flags

import "testing"

// A flag that there is isn't said to be removed; what takes the place of one that was is said.
func TestRemoved(t *testing.T) {
	s := New(t.TempDir())
	for name := range s.rows {
		if _, ok := Removed(name); ok {
			t.Errorf("--%s is there", name)
		}
	}
	if instead, ok := Removed("docker-endpoint"); !ok || instead == "" {
		t.Error("nothing is said of --docker-endpoint")
	}
	if _, ok := Removed("docker-end"); ok {
		t.Error("a flag that never was is said to be removed")
	}
}
