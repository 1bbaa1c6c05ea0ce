package gates

import (
	"strings"
	"testing"
)

// A gate in two places of a table would be one by chance, and a name that is no gate's
// would be lost.
func TestEachGateIsInEachTableOnce(t *testing.T) {
	kubelets := map[string]int{}
	for _, group := range kubelet() {
		for name := range strings.FieldsSeq(group.names) {
			kubelets[name]++
		}
	}
	here := map[string]int{}
	for _, group := range effects() {
		for name := range strings.FieldsSeq(group.names) {
			here[name]++
		}
	}
	for name, n := range kubelets {
		if n != 1 || here[name] != 1 {
			t.Errorf("%s is %d times among the kubelet's and has %d effects", name, n, here[name])
		}
	}
	for name := range here {
		if kubelets[name] == 0 {
			t.Errorf("%s has an effect, but is no gate of the kubelet", name)
		}
	}
	for name, needed := range needs() {
		for _, name := range append(strings.Fields(needed), name) {
			if kubelets[name] == 0 {
				t.Errorf("%s is in what gates need, but is no gate of the kubelet", name)
			}
		}
	}
}
