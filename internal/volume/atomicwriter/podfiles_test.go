package atomicwriter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func newFiles(t *testing.T) (f *Files, podDir string) {
	pods := t.TempDir()
	podDir = filepath.Join(pods, "uid-1")
	must(t, os.Mkdir(podDir, 0o750))
	hosts := filepath.Join(t.TempDir(), "node-hosts")
	must(t, os.WriteFile(hosts, []byte("127.0.0.1 localhost\n10.0.0.1 the-node"), 0o600))
	return New(pods, "cluster.local", hosts), podDir
}

func newPod() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid-1"}}
}

func TestHosts(t *testing.T) {
	const standard = `# Kubernetes-managed hosts file.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`
	for name, c := range map[string]struct {
		change func(*v1.PodSpec)
		ips    []string
		want   string
	}{
		"pod network": {func(*v1.PodSpec) {}, []string{"10.88.0.2", "fd00::2"}, standard + "10.88.0.2\tweb\nfd00::2\tweb\n"},
		"own names": {
			func(s *v1.PodSpec) { s.Hostname, s.Subdomain = "h", "sub" },
			[]string{"10.88.0.2"}, standard + "10.88.0.2\th.sub.default.svc.cluster.local\th\n",
		},
		"override": {
			func(s *v1.PodSpec) { s.Subdomain, s.HostnameOverride = "sub", ptr.To("over.ride") },
			[]string{"10.88.0.2"}, standard + "10.88.0.2\tover.ride\n",
		},
		"long name": {
			func(s *v1.PodSpec) { s.Hostname = strings.Repeat("a", 61) + "-." + "b" },
			[]string{"10.88.0.2"}, standard + "10.88.0.2\t" + strings.Repeat("a", 61) + "\n",
		},
		"aliases": {
			func(s *v1.PodSpec) {
				s.HostAliases = []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "b"}}, {IP: "::9", Hostnames: []string{"c"}}}
			},
			[]string{"10.88.0.2"},
			standard + "10.88.0.2\tweb\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n::9\tc\n",
		},
		"host network": {
			func(s *v1.PodSpec) {
				s.HostNetwork = true
				s.HostAliases = []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a"}}}
			},
			nil,
			"# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n10.0.0.1 the-node\n\n# Entries added by HostAliases.\n1.2.3.4\ta\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, dir := newFiles(t)
			p := newPod()
			c.change(&p.Spec)
			file, err := f.Hosts(p, c.ips)
			must(t, err)
			if want := filepath.Join(dir, "etc-hosts"); file != want {
				t.Errorf("file %s, want %s", file, want)
			}
			got, err := os.ReadFile(file)
			must(t, err)
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A subdomain makes a full name without a cluster domain as well (Hostname of Pod, in Kubernetes' node suite).
func TestHostsWithoutClusterDomain(t *testing.T) {
	f, _ := newFiles(t)
	f.clusterDomain = ""
	p := newPod()
	p.Spec.Subdomain = "sub"
	file, err := f.Hosts(p, []string{"10.88.0.2", "fd00::2"})
	must(t, err)
	got, err := os.ReadFile(file)
	must(t, err)
	if want := "\n10.88.0.2\tweb.sub.default.svc.\tweb\nfd00::2\tweb.sub.default.svc.\tweb\n"; !strings.HasSuffix(string(got), want) {
		t.Errorf("%q doesn't end with %q", got, want)
	}
}

func TestHostsFileIsReplacedOnlyWhenItDiffers(t *testing.T) {
	f, _ := newFiles(t)
	write := func(ip string) os.FileInfo {
		t.Helper()
		file, err := f.Hosts(newPod(), []string{ip})
		must(t, err)
		st, err := os.Lstat(file)
		must(t, err)
		return st
	}
	first := write("10.88.0.2")
	if !os.SameFile(first, write("10.88.0.2")) {
		t.Error("the same content made a new file")
	}
	if os.SameFile(first, write("10.88.0.3")) {
		t.Error("a file that running containers have mounted was changed")
	}
}

// A container can make its hosts file as large as it likes; the next one gets a good one all the same.
func TestHostsFileThatAContainerMadeHuge(t *testing.T) {
	f, _ := newFiles(t)
	ips := []string{"10.88.0.2"}
	file, err := f.Hosts(newPod(), ips)
	must(t, err)
	want, err := os.ReadFile(file)
	must(t, err)
	must(t, os.Truncate(file, 1<<42)) // sparse: it takes no room
	_, err = f.Hosts(newPod(), ips)
	must(t, err)
	st, err := os.Stat(file)
	must(t, err)
	if st.Size() != int64(len(want)) {
		t.Fatalf("the hosts file has %d bytes, want %d", st.Size(), len(want))
	}
}

// A link in the file's place is none of the agent's making.
func TestHostsFileIsNoLink(t *testing.T) {
	f, dir := newFiles(t)
	file, err := f.Hosts(newPod(), []string{"10.88.0.2"})
	must(t, err)
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.Rename(file, victim)) // it has the right content even
	must(t, os.Symlink(victim, filepath.Join(dir, "etc-hosts")))
	file, err = f.Hosts(newPod(), []string{"10.88.0.2"})
	must(t, err)
	if st, err := os.Lstat(file); err != nil || !st.Mode().IsRegular() {
		t.Errorf("%s: %v, %v", file, st, err)
	}
}

func TestMessageFiles(t *testing.T) {
	f, podDir := newFiles(t)
	dir := filepath.Join(podDir, "containers", "main")
	for attempt := range 4 {
		for range 2 { // creating an instance again finds the same, empty file
			message, err := f.Message(newPod(), "main", attempt)
			must(t, err)
			if st, err := os.Lstat(message); err != nil || st.Size() != 0 || st.Mode() != 0o666 || filepath.Dir(message) != dir {
				t.Fatalf("%s: %v, %v", message, st, err)
			}
			must(t, os.WriteFile(message, []byte("last words"), 0))
		}
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"00000002", "00000003"}, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestMessageFileOfABadName(t *testing.T) {
	f, _ := newFiles(t)
	for _, bad := range []string{"", ".", "..", "../x", "a/b", "/etc"} {
		if file, err := f.Message(newPod(), bad, 0); err == nil {
			t.Errorf("container %q: %s", bad, file)
		}
	}
}

// A link in the file's place is none of the agent's making.
func TestMessageFileIsNoLink(t *testing.T) {
	f, podDir := newFiles(t)
	dir, victim := filepath.Join(podDir, "containers", "main"), filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("precious"), 0o600))
	must(t, os.MkdirAll(dir, 0o750))
	must(t, os.Symlink(victim, filepath.Join(dir, "00000000")))
	if _, err := f.Message(newPod(), "main", 0); err == nil {
		t.Error("a link was followed")
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("%q, %v", text, err)
	}
}
