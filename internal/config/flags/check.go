package flags

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/kubelet/pkg/apis"
)

// Problem is one error of a flag.
type Problem struct {
	// Flag is the flag's name, without dashes.
	Flag string
	// Message describes the error and the valid values. It contains no secrets.
	Message string
}

// Check returns the errors of flags without a field in the configuration file, and the syntax errors that deferredValue
// has stored. The errors are sorted by flag. Check doesn't check --node-ip and --hostname-override; config.Load does.
func (s *Set) Check() []Problem {
	var c checker
	for name := range s.rows {
		if d, ok := s.flags.Lookup(name).Value.(*deferredValue); ok {
			for _, message := range d.Problems() {
				c.add(name, "%s", message)
			}
		}
	}
	v := &s.values
	c.process(v)
	c.nodeLabels(v.NodeLabels)
	c.credentialProviders(v)
	c.deckhands(v)
	if p := v.CloudProvider; p != "" && p != "external" {
		c.add("cloud-provider", "%q isn't a cloud provider: those built into the kubelet were removed; use external, "+
			"or leave it out", p)
	}
	if ttl := v.MinimumContainerTTL; ttl < 0 {
		c.add("minimum-container-ttl-duration", "%s is negative: it must be 0 or more", ttl)
	}
	if v.HoldPodsFor < 0 {
		c.add("hold-pods-for", "%s is negative: it must be 0 or more", v.HoldPodsFor)
	}
	if v.AwaitDevicePlugins < 0 {
		c.add("await-device-plugins", "%s is negative: it must be 0 or more", v.AwaitDevicePlugins)
	}
	slices.SortStableFunc(c.problems, func(a, b Problem) int { return cmp.Compare(a.Flag, b.Flag) })
	return c.problems
}

// checker collects problems.
type checker struct{ problems []Problem }

func (c *checker) add(flag, format string, args ...any) {
	c.problems = append(c.problems, Problem{flag, fmt.Sprintf(format, args...)})
}

func (c *checker) process(v *Values) {
	if v.RootDir == "" || filepath.Clean(v.RootDir) == "/" {
		c.add("root-dir", "%q can't hold the agent's state: it must be a directory of its own", v.RootDir)
	}
	if v.ExitOnLockContention && v.LockFile == "" {
		c.add("exit-on-lock-contention", "it needs --lock-file: without one there is no lock to give away")
	}
	if g := v.RuntimeCgroups; g != "" && path.Clean("/"+g) != "/"+strings.Trim(g, "/") {
		c.add("runtime-cgroups", "%q must be a cgroup name such as /system.slice/containerd.service, without \"..\"", g)
	}
}

// nodeLabels checks the restrictions of a kubelet's labels for its own node (KEP-279, Bounding Self-Labeling
// Kubelets), which prevent a node from attracting pods that are meant for other nodes.
func (c *checker) nodeLabels(given map[string]string) {
	const flag = "node-labels"
	var reserved []string
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !validKey(key) {
			c.add(flag, "the key %q must be %s", key, keyRule)
			continue
		}
		if !validValue(given[key]) {
			c.add(flag, "the value %q of %s must be %s", given[key], key, valueRule)
		}
		if ofKubernetes(key) && !apis.IsKubeletLabel(key) {
			reserved = append(reserved, key)
		}
	}
	if len(reserved) > 0 {
		c.add(flag, "a kubelet may not set %s: of the labels in kubernetes.io and k8s.io it may set those in %s, and %s",
			strings.Join(reserved, ", "), strings.Join(apis.KubeletLabelNamespaces(), " and "),
			strings.Join(apis.KubeletLabels(), ", "))
	}
}

// ofKubernetes reports whether the prefix of a label's key is reserved for Kubernetes.
func ofKubernetes(key string) bool {
	namespace, _, prefixed := strings.Cut(key, "/")
	for _, own := range []string{"kubernetes.io", "k8s.io"} {
		if prefixed && (namespace == own || strings.HasSuffix(namespace, "."+own)) {
			return true
		}
	}
	return false
}

func (c *checker) credentialProviders(v *Values) {
	const file, dir = "image-credential-provider-config", "image-credential-provider-bin-dir"
	switch config, bin := v.ImageCredentialProviderConfig, v.ImageCredentialProviderBinDir; {
	case config == "" && bin != "":
		c.add(file, "it is needed beside --%s: it says which of its programs are asked for which images", dir)
	case config != "" && bin == "":
		c.add(dir, "it is needed beside --%s: plugins are programs in that directory", file)
	}
}

// deckhands checks the flags that the kubelet doesn't have.
func (c *checker) deckhands(v *Values) {
	if n := v.JournalBytes; n != 0 && (n < MinJournalBytes || n > MaxJournalBytes) {
		c.add("journal-bytes", "%d is neither 0, for no journal, nor in the range from %d (4 KiB) to %d (64 MiB)", n,
			MinJournalBytes, MaxJournalBytes)
	}
	if !validInterface(v.EmbeddedBridge) {
		c.add("embedded-bridge",
			"%q isn't a valid name for a network interface: 1 to 15 visible ASCII letters without / and :",
			v.EmbeddedBridge)
	}
}

// validInterface checks the kernel's rules for interface names (dev_valid_name).
func validInterface(name string) bool {
	bad := func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == ':' }
	return name != "" && len(name) <= 15 && name != "." && name != ".." && !strings.ContainsFunc(name, bad)
}
