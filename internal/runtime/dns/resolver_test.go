package dns

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// servers is a file's part with so many servers.
func servers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "nameserver 10.0.0.%d\n", i+1)
	}
	return b.String()
}

// search is a file's line with n domains of length characters each.
func search(n, length int) string {
	return "search " + strings.Join(longDomains(n, length), " ") + "\n"
}

func longDomains(n, length int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("d%02d", i) + strings.Repeat("x", length-3)
	}
	return out
}

func forming(message string) pod.Event {
	return pod.Event{Type: v1.EventTypeWarning, Reason: "DNSConfigForming", Message: message}
}

func TestLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		in       resolver
		servers  int
		searches int
		events   []pod.Event
	}{
		"nothing":         {resolver{}, 0, 0, nil},
		"just fits":       {resolver{servers: []string{"a", "b", "c"}, searches: longDomains(32, 63)}, 3, 32, nil}, // 32*63 + 31 = 2047
		"2048 characters": {resolver{searches: append(longDomains(31, 63), strings.Repeat("y", 64))}, 0, 32, nil},
		"2049 characters": {resolver{searches: append(longDomains(31, 63), strings.Repeat("y", 65))}, 0, 31,
			[]pod.Event{forming("Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(longDomains(31, 63), " "))}},
		"33 domains": {resolver{searches: longDomains(33, 4)}, 0, 32,
			[]pod.Event{forming("Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(longDomains(32, 4), " "))}},
		"a domain as long as a list": {resolver{searches: []string{strings.Repeat("y", 2049)}}, 0, 0,
			[]pod.Event{forming("Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ")}},
		"too much of both": {resolver{servers: []string{"a", "b", "c", "d"}, searches: longDomains(33, 4)}, 3, 32, []pod.Event{
			forming("Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: a b c"),
			forming("Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(longDomains(32, 4), " "))}},
	} {
		t.Run(name, func(t *testing.T) {
			got, events := limit(tt.in)
			if !slices.Equal(got.servers, tt.in.servers[:tt.servers]) || !slices.Equal(got.searches, tt.in.searches[:tt.searches]) {
				t.Errorf("got %v", got)
			}
			if !reflect.DeepEqual(events, tt.events) {
				t.Errorf("got  %v\nwant %v", events, tt.events)
			}
		})
	}
}

// The limits are of the whole: the node's, the cluster's and the pod's together.
func TestLimitsOfAll(t *testing.T) {
	r := newRig(t, servers(2)+search(28, 5), withCluster)
	own := &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1", "2.2.2.2"}, Searches: []string{"own.example", "other.example"}}
	got, events, err := r.For(podWith(v1.DNSDefault, own))
	if err != nil || !slices.Equal(got.Servers, []string{"10.0.0.1", "10.0.0.2", "1.1.1.1"}) || len(got.Searches) != 30 || reasons(events) != "DNSConfigForming" {
		t.Errorf("got %v, %v, %v", got, events, err)
	}
	got, events, err = r.For(podWith(v1.DNSClusterFirst, own))
	if err != nil || len(got.Servers) != 3 || len(got.Searches) != 32 || got.Searches[31] != "own.example" || reasons(events) != "DNSConfigForming" ||
		!strings.HasPrefix(events[0].Message, "Search Line") {
		t.Errorf("got %v, %v, %v", got, events, err)
	}
}
