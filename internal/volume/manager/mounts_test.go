package volume_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func TestMountsOfAContainer(t *testing.T) {
	m, root := newManager(t)
	p := newPod(emptyDir("data", ""), hostPath("node", "/srv"))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "data", MountPath: "/data", ReadOnly: true},
		{Name: "node", MountPath: "srv/", MountPropagation: ptr.To(v1.MountPropagationHostToContainer)},
		{Name: "node", MountPath: "/both", MountPropagation: ptr.To(v1.MountPropagationBidirectional), RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyIfPossible)},
	}
	must(t, m.Prepare(t.Context(), p))
	mounts, message, err := m.Mounts(p, "main", []string{"10.88.0.2"}, 3)
	must(t, err)
	dir := filepath.Join(root, "pods", "uid-1")
	want := []string{
		dir + "/volumes/kubernetes.io~empty-dir/data -> /data ro PROPAGATION_PRIVATE",
		"/srv -> /srv rw PROPAGATION_HOST_TO_CONTAINER",
		"/srv -> /both rw PROPAGATION_BIDIRECTIONAL",
		dir + "/etc-hosts -> /etc/hosts rw PROPAGATION_PRIVATE",
		dir + "/containers/main/00000003 -> /dev/termination-log rw PROPAGATION_PRIVATE",
	}
	if diff := cmp.Diff(want, describe(mounts)); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if message != dir+"/containers/main/00000003" {
		t.Errorf("termination message file %s", message)
	}
}

func describe(mounts []*runtimeapi.Mount) []string {
	var out []string
	for _, m := range mounts {
		mode := " rw "
		if m.Readonly {
			mode = " ro "
		}
		out = append(out, m.HostPath+" -> "+m.ContainerPath+mode+m.Propagation.String())
	}
	return out
}

func TestMountsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.Container)
		want   string
	}{
		"subPath": {func(c *v1.Container) { c.VolumeMounts[0].SubPath = "a" }, "subPath of volume \"data\""},
		"subPathExpr": {
			func(c *v1.Container) { c.VolumeMounts[0].SubPathExpr = "$(A)" }, "subPath of volume \"data\"",
		},
		"recursiveReadOnly": {
			func(c *v1.Container) { c.VolumeMounts[0].RecursiveReadOnly = ptr.To(v1.RecursiveReadOnlyEnabled) }, "recursiveReadOnly",
		},
		"missing volume":      {func(c *v1.Container) { c.VolumeMounts[0].Name = "other" }, `no volume "other"`},
		"unknown propagation": {func(c *v1.Container) { c.VolumeMounts[0].MountPropagation = ptr.To(v1.MountPropagationMode("Up")) }, `"Up"`},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := newManager(t)
			p := newPod(emptyDir("data", ""))
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
			c.change(&p.Spec.Containers[0])
			must(t, m.Prepare(t.Context(), p))
			_, _, err := m.Mounts(p, "main", nil, 0)
			f := failure(t, err)
			if !f.Permanent || f.Reason != "CreateContainerConfigError" || !strings.Contains(f.Message, c.want) || !strings.Contains(f.Message, `"main"`) {
				t.Errorf("got %+v", f)
			}
		})
	}
}

func TestHostsFile(t *testing.T) {
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
			m, root := newManager(t)
			p := newPod()
			c.change(&p.Spec)
			must(t, m.Prepare(t.Context(), p))
			_, _, err := m.Mounts(p, "main", c.ips, 0)
			must(t, err)
			got, err := os.ReadFile(filepath.Join(root, "pods", "uid-1", "etc-hosts"))
			must(t, err)
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoManagedHostsFile(t *testing.T) {
	for name, c := range map[string]struct {
		mounts []v1.VolumeMount
		ips    []string
	}{
		"the container has its own": {[]v1.VolumeMount{{Name: "node", MountPath: "/etc/hosts"}}, []string{"10.88.0.2"}},
		"the pod has no address":    {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m, root := newManager(t)
			p := newPod(hostPath("node", "/srv/hosts"))
			p.Spec.Containers[0].VolumeMounts = c.mounts
			must(t, m.Prepare(t.Context(), p))
			_, _, err := m.Mounts(p, "main", c.ips, 0)
			must(t, err)
			if _, err := os.Lstat(filepath.Join(root, "pods", "uid-1", "etc-hosts")); err == nil {
				t.Error("a hosts file was made")
			}
		})
	}
}

func TestHostsFileIsReplacedOnlyWhenItDiffers(t *testing.T) {
	m, root := newManager(t)
	p := newPod()
	must(t, m.Prepare(t.Context(), p))
	file := filepath.Join(root, "pods", "uid-1", "etc-hosts")
	write := func(ip string) os.FileInfo {
		t.Helper()
		_, _, err := m.Mounts(p, "main", []string{ip}, 0)
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

func TestTerminationMessageFiles(t *testing.T) {
	m, root := newManager(t)
	p := newPod()
	must(t, m.Prepare(t.Context(), p))
	dir := filepath.Join(root, "pods", "uid-1", "containers", "main")
	for attempt := range 4 {
		for range 2 { // creating an instance again finds the same, empty file
			_, message, err := m.Mounts(p, "main", nil, attempt)
			must(t, err)
			if st, err := os.Lstat(message); err != nil || st.Size() != 0 || filepath.Dir(message) != dir {
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
	p.Spec.Containers[0].TerminationMessagePath = ""
	if mounts, message, err := m.Mounts(p, "main", nil, 4); err != nil || message != "" || len(mounts) != 0 {
		t.Errorf("without a path: %v, %q, %v", mounts, message, err)
	}
}

// A container can make its hosts file as large as it likes; the next one gets a good one all the same.
func TestHostsFileThatAContainerMadeHuge(t *testing.T) {
	m, root := newManager(t)
	p := newPod()
	must(t, m.Prepare(t.Context(), p))
	ips := []string{"10.88.0.2"}
	_, _, err := m.Mounts(p, "main", ips, 0)
	must(t, err)
	file := filepath.Join(root, "pods", "uid-1", "etc-hosts")
	want, err := os.ReadFile(file)
	must(t, err)
	must(t, os.Truncate(file, 1<<42)) // sparse: it takes no room
	_, _, err = m.Mounts(p, "main", ips, 1)
	must(t, err)
	st, err := os.Stat(file)
	must(t, err)
	if st.Size() != int64(len(want)) {
		t.Fatalf("the hosts file has %d bytes, want %d", st.Size(), len(want))
	}
}

func TestBlockVolumesAreRefused(t *testing.T) {
	m, _ := newManager(t)
	c := &v1.Container{Name: "main"}
	if volumes, err := m.BlockVolumes(newPod(), c); err != nil || len(volumes) > 0 {
		t.Errorf("none asked for: %v, %v", volumes, err)
	}
	c.VolumeDevices = []v1.VolumeDevice{{Name: "data"}}
	_, err := m.BlockVolumes(newPod(), c)
	if f := failure(t, err); !strings.Contains(f.Message, "volumeDevices") || !f.Permanent {
		t.Errorf("got %+v", f)
	}
}
