package node

import (
	"testing"
)

func TestPool(t *testing.T) {
	p, err := newAddressPool("10.0.0.9/29") // .8 is the network's, .9 the gateway's
	if err != nil {
		t.Fatal(err)
	}
	take := func(want string) {
		t.Helper()
		if got, err := p.Allocate(); err != nil || got != want {
			t.Errorf("took %q (%v), want %q", got, err, want)
		}
	}
	for _, want := range []string{"10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14"} {
		take(want)
	}
	p.Release("10.0.0.11")
	p.Release("nonsense")
	take("10.0.0.15")
	take("10.0.0.11")
	if got, err := p.Allocate(); err == nil {
		t.Errorf("took %q from an empty pool", got)
	}
	p.Release("10.0.0.11")
	take("10.0.0.11")
}
