package config

import (
	"net/netip"
	"slices"
	"testing"
)

func TestDefaultNodeIP(t *testing.T) {
	for _, tc := range []struct {
		name       string
		host       fakeHost
		preferIPv6 bool
		want       string
	}{
		{"default route", fakeHost{source: map[bool]string{false: "192.0.2.7", true: "2001:db8::7"}, lookup: []string{"192.0.2.9"}}, false, "192.0.2.7"},
		{"IPv6 preferred", fakeHost{source: map[bool]string{false: "192.0.2.7", true: "2001:db8::7"}}, true, "2001:db8::7"},
		{"only IPv6 route", fakeHost{source: map[bool]string{true: "2001:db8::7"}}, false, "2001:db8::7"},
		{"IPv6 preferred, only IPv4 route", fakeHost{source: map[bool]string{false: "192.0.2.7"}}, true, "192.0.2.7"},
		{"name service", fakeHost{lookup: []string{"127.0.1.1", "fe80::1", "2001:db8::9", "::ffff:192.0.2.9"}}, false, "192.0.2.9"},
		{"name service, other family", fakeHost{lookup: []string{"2001:db8::9"}}, false, "2001:db8::9"},
		{"nothing of use", fakeHost{lookup: []string{"127.0.1.1"}}, false, "127.0.0.1"},
		{"nothing at all, IPv6", fakeHost{}, true, "::1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := defaultNodeIP(t.Context(), tc.host, "node", tc.preferIPv6).String(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestNodeIPFlag(t *testing.T) {
	for flag, want := range map[string][]string{
		"192.0.2.1":              {"192.0.2.1"},
		"2001:db8::1, 192.0.2.1": {"2001:db8::1", "192.0.2.1"},
		"127.0.0.1":              {"127.0.0.1"},
		"0.0.0.0":                {"192.0.2.7"},
		"::":                     {"2001:db8::7"},
	} {
		h := fakeHost{name: "n", source: map[bool]string{false: "192.0.2.7", true: "2001:db8::7"}}
		c, err := load(t.Context(), parse(t, "--node-ip", flag), h)
		if err != nil {
			t.Errorf("%s: %v", flag, err)
			continue
		}
		var expected []netip.Addr
		for _, s := range want {
			expected = append(expected, netip.MustParseAddr(s))
		}
		if !slices.Equal(c.NodeIPs, expected) {
			t.Errorf("%s: got %v, want %v", flag, c.NodeIPs, expected)
		}
	}
	for _, flag := range []string{"x", "192.0.2.1,", "192.0.2.1,192.0.2.2", "192.0.2.1,::,::1", "0.0.0.0,::1", "224.0.0.1", "fe80::1", "fe80::1%eth0"} {
		if _, err := parseNodeIPs(flag, true); err == nil {
			t.Errorf("%s was taken", flag)
		}
	}
	for _, flag := range []string{"127.0.0.1", "192.0.2.1,::1"} {
		if _, err := parseNodeIPs(flag, false); err == nil {
			t.Errorf("%s was taken in a cluster", flag)
		}
	}
}

func TestNodeName(t *testing.T) {
	for _, tc := range []struct{ override, hostname, want string }{
		{"", "Host.Example", "host.example"},
		{" OTHER ", "host", "other"},
		{"", "under_score", ""},
		{"", "", ""},
	} {
		got, err := nodeName(tc.override, fakeHost{name: tc.hostname})
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q over %q: got %q, %v", tc.override, tc.hostname, got, err)
		}
	}
}
