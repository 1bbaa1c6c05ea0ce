package validation

import (
	"strings"
	"testing"
)

func TestForms(t *testing.T) {
	for name, c := range map[string]struct {
		is       func(string) bool
		yes, not []string
	}{
		"list of CPUs": {isCPUList, []string{"0", "0,2-3", "1-1", "8191", "3,1"}, []string{"", ",", "0-", "-1", "3-1", "1-2-3", " 1", "+1", "8192", "0-999999999", "0x1"}},
		"cgroup":       {isCgroup, []string{"/", "/a", "/a/", "a/b.slice", "/a/..b"}, []string{"..", "/a/../b", "a//b", "/./a", "a/.", "a\x00"}},
		"domain": {isDomain, []string{"cluster.local", "A_b.c-", "1", strings.Repeat("a", 63)},
			[]string{"", ".", "a..b", "a.", "-a", "a b", "ä", strings.Repeat("a", 64), strings.Repeat("a.", 127)}},
		"sysctl":    {isSysctl, []string{"net.core.somaxconn", "kernel.shm_rmid_forced", "net."}, []string{"", "*", "NET", "a b", strings.Repeat("a", 253)}},
		"collector": {isCollector, []string{"localhost:4317", "dns:///host", "unix:///run/x", "unix-abstract://x", ""}, []string{"http://host", "dn%2s://a", "://"}},
		"quantity": {func(text string) bool { _, err := parseQuantity(text); return err == nil },
			[]string{"0", "-1", "1Gi", "1.5Mi", "500m", "1e9", "1E", "1Ei", "12e-3"},
			[]string{"", "x", "1e", "1e19", "1e99", "1e100", "1e999999999", "1e-999999999", "1E+999", strings.Repeat("1", 33), "1EiEi"}},
		"networks": {func(text string) bool { _, err := networks(text); return err == nil },
			[]string{"10.72.0.0/16", "10.72.0.0/16, fd00:72::/64", "fd00::/64,10.0.0.0/29"},
			[]string{"", "10.72.0.0", "10.72.0.1/16", "127.0.0.0/8", "ff00::/8", "::ffff:10.0.0.0/104", "10.0.0.0/30", "10.0.0.0/16,10.1.0.0/16", "10.0.0.0/16,fd00::/64,fd01::/64"}},
	} {
		for _, text := range c.yes {
			if !c.is(text) {
				t.Errorf("%q is no %s", text, name)
			}
		}
		for _, text := range c.not {
			if c.is(text) {
				t.Errorf("%q is a %s", text, name)
			}
		}
	}
}

func TestIsNamespaced(t *testing.T) {
	for name, want := range map[string]bool{"net.ipv4.ip_forward": true, "kernel.shmmax": true, "kernel.msgmax": true, "kernel.sem": true, "fs.mqueue.msg_max": true, "kernel.semx": false, "net": false, "vm.swappiness": false} {
		if isNamespaced(name, false) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
	for prefix, want := range map[string]bool{"net.": true, "kernel.sem": true, "kernel.msg": true, "net": false, "kernel.s": false, "": false} {
		if isNamespaced(prefix, true) != want {
			t.Errorf("%s*: want %v", prefix, want)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"10.0.0.1", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.2", false},
		{"0.0.0.0", "10.0.0.1", true},
		{"0.0.0.0", "::1", false}, // listens on IPv4 only
		{"::", "10.0.0.1", true},  // listens on both
		{"::", "0.0.0.0", true},
		{"::1", "127.0.0.1", false},
		{"", "", false},
	} {
		if overlap(c.a, c.b) != c.want || overlap(c.b, c.a) != c.want {
			t.Errorf("%s and %s: want %v", c.a, c.b, c.want)
		}
	}
}
