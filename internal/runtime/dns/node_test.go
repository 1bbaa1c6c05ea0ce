package dns

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestUnreachableServers(t *testing.T) {
	const stub = "nameserver 127.0.0.53\nsearch .\noptions edns0 trust-ad\n"
	own := &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}}
	for name, tt := range map[string]struct {
		file   string
		pod    *v1.Pod
		change func(*Config)
		want   string
	}{
		"stub":                    {stub, podWith(v1.DNSDefault, nil), nil, "names only servers on a loopback address (127.0.0.53)"},
		"stub, ClusterFirst":      {stub, podWith(v1.DNSClusterFirst, nil), nil, "names only servers on a loopback address (127.0.0.53)"},
		"IPv6":                    {"nameserver ::1\nnameserver ::ffff:127.0.0.1\n", podWith(v1.DNSDefault, nil), nil, "(::1 ::ffff:127.0.0.1)"},
		"no server":               {"# nothing\n", podWith(v1.DNSDefault, nil), nil, "names no server"},
		"one of two is reachable": {stub + "nameserver 10.0.0.1\n", podWith(v1.DNSDefault, nil), nil, ""},
		"the pod has its own":     {stub, podWith(v1.DNSDefault, own), nil, ""},
		"on the host":             {stub, onHost(podWith(v1.DNSDefault, nil)), nil, ""},
		"the cluster's":           {stub, podWith(v1.DNSClusterFirst, nil), withCluster, ""},
		"disabled":                {stub, podWith(v1.DNSDefault, nil), func(c *Config) { c.ResolvConf = "" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tt.file, tt.change)
			for range 2 {
				if _, events, err := r.For(tt.pod); err != nil || len(events) > 0 {
					t.Fatal(events, err)
				}
			}
			if tt.want == "" {
				if len(r.told) > 0 {
					t.Errorf("told %v", r.told)
				}
				return
			}
			if len(r.told) != 1 || r.told[0].Type != "Warning" || r.told[0].Reason != "UnreachableNameservers" ||
				!strings.Contains(r.told[0].Message, tt.want) || !strings.HasPrefix(r.told[0].Message, r.file) {
				t.Errorf("told %v, want once %q", r.told, tt.want)
			}
		})
	}
}

// What was fixed and breaks again is told again.
func TestReportedAgain(t *testing.T) {
	const bad, good = "nameserver 127.0.0.1\n", "nameserver 10.0.0.1\n"
	r := newRig(t, bad, nil)
	for _, file := range []string{bad, bad, good, good, bad} {
		r.write(t, file)
		if _, _, err := r.For(podWith(v1.DNSDefault, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.told) != 2 {
		t.Errorf("told %v, want 2", r.told)
	}
}

func TestNodeBeyondLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		file   string
		change func(*Config)
		want   string
	}{
		"4 servers":                     {servers(4), nil, "has 4 name servers, of which pods get the first 3"},
		"33 domains":                    {servers(3) + search(33, 5), nil, "has 33 search domains, of which pods get the first 32"},
		"32 domains":                    {servers(3) + search(32, 5), nil, ""},
		"30 domains beside a cluster's": {servers(1) + search(30, 5), withCluster, "has 30 search domains, of which pods get the first 29"},
		"29 domains beside a cluster's": {servers(1) + search(29, 5), withCluster, ""},
		"2049 characters":               {servers(1) + search(10, 204), nil, "has a search list of 2049 characters (with the cluster's domains, if any), of which pods get at most 2048"},
		"too much of two":               {servers(5) + search(33, 5), nil, "has 5 name servers, of which pods get the first 3, and 33 search domains, of which pods get the first 32"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tt.file, tt.change)
			for range 2 {
				if _, _, err := r.For(podWith(v1.DNSDefault, nil)); err != nil {
					t.Fatal(err)
				}
			}
			switch {
			case tt.want == "" && len(r.told) > 0:
				t.Errorf("told %v", r.told)
			case tt.want != "" && (len(r.told) != 1 || r.told[0].Reason != "CheckLimitsForResolvConf" || r.told[0].Message != r.file+" "+tt.want):
				t.Errorf("told %v\nwant once %s", r.told, tt.want)
			}
		})
	}
}
