package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// layers are the configuration of one case, the weaker first.
type layers struct {
	file string
	// dropIns by name, in the directory of --config-dir.
	dropIns map[string]string
	args    []string
}

// load makes the files and loads the configuration; DIR stands for where they are.
func (l layers) load(t *testing.T) (c *Config, dir string) {
	t.Helper()
	dir = t.TempDir()
	args := l.args
	if l.file != "" {
		path := filepath.Join(dir, "kubelet.yaml")
		put(t, path, head+l.file)
		args = append(args, "--config", path)
	}
	if l.dropIns != nil {
		for name, text := range l.dropIns {
			put(t, filepath.Join(dir, "conf.d", name), head+text)
		}
		args = append(args, "--config-dir", filepath.Join(dir, "conf.d"))
	}
	return mustLoad(t, parse(t, args...)), dir
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPrecedence: defaults, the file, drop-ins by name, flags; field by field.
func TestPrecedence(t *testing.T) {
	const (
		low  = "10-low.conf"
		high = "90-high.conf"
	)
	for name, c := range map[string]struct {
		layers
		// want are fields of the effective configuration, in YAML; from says where
		// paths come from.
		want string
		from map[string]string
	}{
		"nothing": {layers{}, "maxPods: 110", nil},
		"a file":  {layers{file: "maxPods: 1"}, "maxPods: 1", map[string]string{"maxPods": "DIR/kubelet.yaml:3"}},
		"a drop-in over the file": {layers{file: "maxPods: 1\nmaxOpenFiles: 1", dropIns: map[string]string{low: "maxPods: 2"}},
			"maxPods: 2\nmaxOpenFiles: 1", map[string]string{"maxPods": "DIR/conf.d/10-low.conf:3", "maxOpenFiles": "DIR/kubelet.yaml:4"}},
		"the last drop-in by name": {layers{dropIns: map[string]string{high: "maxPods: 3", low: "maxPods: 2\nmaxOpenFiles: 2"}},
			"maxPods: 3\nmaxOpenFiles: 2", map[string]string{"maxPods": "DIR/conf.d/90-high.conf:3", "maxOpenFiles": "DIR/conf.d/10-low.conf:4"}},
		"only .conf counts": {layers{dropIns: map[string]string{"a.yaml": "maxPods: 7", "b.conf.bak": "maxPods: 8", low: "maxPods: 2"}}, "maxPods: 2", nil},
		"a flag over all": {layers{file: "maxPods: 1", dropIns: map[string]string{high: "maxPods: 3"}, args: []string{"--max-pods=4"}},
			"maxPods: 4", map[string]string{"maxPods": "--max-pods"}},
		"a flag that says the default": {layers{file: "maxPods: 1", args: []string{"--max_pods=110"}}, "maxPods: 110", map[string]string{"maxPods": "--max-pods"}},
		// Of file and drop-ins 0 asks for the default, of a flag for 0.
		"a flag that says 0": {layers{file: "maxPods: 0\nevictionPressureTransitionPeriod: 0s\nauthorization: {webhook: {cacheAuthorizedTTL: 0s}}",
			args: []string{"--max-pods=0", "--eviction-pressure-transition-period=0s", "--authorization-webhook-cache-authorized-ttl=0s", "--minimum-image-ttl-duration=0s"}},
			"evictionPressureTransitionPeriod: 0s\nimageMinimumGCAge: 0s\nauthorization: {webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 30s}}",
			map[string]string{"maxPods": "--max-pods"}},
		"a flag without a text where there has to be one": {layers{file: "cgroupDriver: systemd", args: []string{"--cgroup-driver="}}, "cgroupDriver: systemd",
			map[string]string{"cgroupDriver": "DIR/kubelet.yaml:3"}},
		"a flag's map isn't merged with the defaults": {layers{file: "mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Mi}", args: []string{"--eviction-hard=pid.available<1%"}},
			"evictionHard: {pid.available: 1%}", nil},
		"structs by field": {layers{file: "authentication: {webhook: {enabled: false, cacheTTL: 7s}}", dropIns: map[string]string{low: "authentication: {webhook: {cacheTTL: 9s}}"}},
			"authentication: {webhook: {enabled: false, cacheTTL: 9s}, anonymous: {enabled: false}}",
			map[string]string{"authentication.webhook.enabled": "DIR/kubelet.yaml:3", "authentication.webhook.cacheTTL": "DIR/conf.d/10-low.conf:3"}},
		"lists as a whole": {layers{file: "clusterDNS: [192.0.2.1, 192.0.2.2]", dropIns: map[string]string{low: "clusterDNS: [192.0.2.3]"}},
			"clusterDNS: [192.0.2.3]", map[string]string{"clusterDNS": "DIR/conf.d/10-low.conf:3"}},
		"a list by a flag": {layers{file: "clusterDNS: [192.0.2.1]", args: []string{"--cluster-dns=192.0.2.9"}}, "clusterDNS: [192.0.2.9]", map[string]string{"clusterDNS": "--cluster-dns"}},
		"maps by key": {layers{file: "featureGates: {MemoryQoS: true, AllAlpha: false}", dropIns: map[string]string{low: "featureGates: {MemoryQoS: false}"}},
			"featureGates: {MemoryQoS: false, AllAlpha: false}", map[string]string{"featureGates[MemoryQoS]": "DIR/conf.d/10-low.conf:3", "featureGates[AllAlpha]": "DIR/kubelet.yaml:3"}},
		"gates by flag, key by key": {layers{file: "featureGates: {MemoryQoS: false, AllAlpha: false}", args: []string{"--feature-gates=MemoryQoS=true"}},
			"featureGates: {MemoryQoS: true, AllAlpha: false}", map[string]string{"featureGates[MemoryQoS]": "--feature-gates"}},
		"a map by another flag": {layers{file: "evictionHard: {memory.available: 1Mi, nodefs.available: 2Mi}", args: []string{"--eviction-hard=memory.available<3Mi"}},
			"evictionHard: {memory.available: 3Mi}", map[string]string{"evictionHard[memory.available]": "--eviction-hard"}},
		"the file's map in place of the default": {layers{file: "evictionHard: {memory.available: 1Mi}"}, "evictionHard: {memory.available: 1Mi}", nil},
		"a drop-in into the default map": {layers{dropIns: map[string]string{low: "evictionHard: {memory.available: 1Mi}"}},
			"evictionHard: {memory.available: 1Mi, nodefs.available: 2%, nodefs.inodesFree: 1%, imagefs.available: 2%, imagefs.inodesFree: 1%}",
			map[string]string{"evictionHard[memory.available]": "DIR/conf.d/10-low.conf:3"}},
		"false and 0 over something": {layers{file: "seccompDefault: true\npodsPerCore: 3", dropIns: map[string]string{low: "seccompDefault: false\npodsPerCore: 0"}}, "seccompDefault: false", nil},
		"a gate's default":           {layers{args: []string{"--feature-gates=ReduceDefaultCrashLoopBackOffDecay=true"}}, "crashLoopBackOff: {maxContainerRestartPeriod: 1m0s}", nil},
		"and what is said all the same": {layers{file: "featureGates: {ReduceDefaultCrashLoopBackOffDecay: true}\ncrashLoopBackOff: {maxContainerRestartPeriod: 7s}"},
			"crashLoopBackOff: {maxContainerRestartPeriod: 7s}", nil},
		"standalone": {layers{}, "readOnlyPort: 10255\naddress: 127.0.0.1\nfailSwapOn: false\nfailCgroupV1: false\n" +
			"evictionHard: {memory.available: 100Mi, nodefs.available: 2%, nodefs.inodesFree: 1%, imagefs.available: 2%, imagefs.inodesFree: 1%}", nil},
		"standalone, with a default threshold that is set": {layers{file: "mergeDefaultEvictionSettings: true\nevictionHard: {nodefs.available: 10%}"},
			"evictionHard: {memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 1%, imagefs.available: 2%, imagefs.inodesFree: 1%}", nil},
		"standalone, set otherwise": {layers{file: "failSwapOn: true\nreadOnlyPort: 7"}, "readOnlyPort: 7\naddress: 127.0.0.1\nfailSwapOn: true\nfailCgroupV1: false", nil},
		"in a cluster": {layers{file: "maxPods: 1", args: []string{"--kubeconfig=/k"}}, "address: 0.0.0.0\nfailSwapOn: true\nfailCgroupV1: true\n" +
			"evictionHard: {memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 15%, imagefs.inodesFree: 5%}", nil},
		"in a cluster without a file": {layers{args: []string{"--kubeconfig=/k"}},
			"address: 0.0.0.0\nauthorization: {mode: Webhook}\nauthentication: {anonymous: {enabled: false}, webhook: {enabled: true}}", nil},
		"the kubelet's defaults of flags, in a cluster without a file": {layers{args: []string{"--kubeconfig=/k", "--read-only-port=10255", "--authorization-mode=AlwaysAllow", "--anonymous-auth", "--authentication-token-webhook=false"}},
			"readOnlyPort: 10255\naddress: 0.0.0.0\nauthorization: {mode: AlwaysAllow}\nauthentication: {anonymous: {enabled: true}, webhook: {enabled: false}}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, dir := c.load(t)
			if diff := cmp.Diff(asMap(t, []byte(c.want)), pick(asMap(t, marshal(t, got)), asMap(t, []byte(c.want)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			origins := got.Origins()
			for path, want := range c.from {
				if want = strings.ReplaceAll(want, "DIR", dir); origins[path] != want {
					t.Errorf("%s comes from %q, not %q", path, origins[path], want)
				}
			}
		})
	}
}

func marshal(t *testing.T, c *Config) []byte {
	t.Helper()
	text, err := yaml.Marshal(&c.Kubelet)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func asMap(t *testing.T, text []byte) map[string]any {
	t.Helper()
	m := map[string]any{}
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	// Durations in one form.
	if a, ok := m["authentication"].(map[string]any); ok {
		if w, ok := a["webhook"].(map[string]any); ok && w["cacheTTL"] != nil {
			w["cacheTTL"] = strings.TrimPrefix(w["cacheTTL"].(string), "0")
		}
	}
	return m
}

// pick keeps of m what want names, at any depth; maps of settings by name as a whole.
func pick(m, want map[string]any) map[string]any {
	out := map[string]any{}
	for key, wanted := range want {
		value, there := m[key]
		if !there {
			continue
		}
		inner, isMap := value.(map[string]any)
		wantedInner, wantsMap := wanted.(map[string]any)
		if isMap && wantsMap && key != "evictionHard" && key != "featureGates" {
			value = pick(inner, wantedInner)
		}
		out[key] = value
	}
	return out
}

// TestPathsCountFromTheirFile, and those in flags from the working directory.
func TestPathsCountFromTheirFile(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c, dir := layers{
		file:    "staticPodPath: pods\nresolvConf: resolv.conf\ntlsCertFile: tls/../c.pem\ntlsPrivateKeyFile: k.pem",
		dropIns: map[string]string{"a.conf": "authentication: {x509: {clientCAFile: ca.pem}}\ntlsPrivateKeyFile: k2.pem"},
		args:    []string{"--resolv-conf=here.conf"},
	}.load(t)
	k := &c.Kubelet
	got := []string{k.StaticPodPath, *k.ResolverConfig, k.TLSCertFile, k.TLSPrivateKeyFile, k.Authentication.X509.ClientCAFile}
	want := []string{dir + "/pods", wd + "/here.conf", dir + "/c.pem", dir + "/conf.d/k2.pem", dir + "/conf.d/ca.pem"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A reload keeps what was found out at start, and reads all else anew.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	put(t, path, head+"maxPods: 1")
	set := parse(t, "--config", path, "--max-open-files=7")
	old := mustLoad(t, set)
	put(t, path, head+"maxPods: 2\nhealthzPort: 5\nqosReserved: {memory: 50%}")
	next, err := old.Reload(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	if next.Kubelet.MaxPods != 2 || next.Kubelet.MaxOpenFiles != 7 || next.NodeName != "node-1" || next.Healthz != old.Healthz || len(next.NotActedOn) == 0 ||
		next.Origins()["maxPods"] != path+":3" {
		t.Errorf("it became %+v", next)
	}
	if old.Kubelet.MaxPods != 1 {
		t.Error("the one before has changed")
	}
	put(t, path, head+"maxPods: x")
	if _, err := old.Reload(t.Context(), set); err == nil {
		t.Error("a bad file was taken in")
	}
}
