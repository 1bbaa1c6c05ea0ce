package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// nobody is a user without any rights.
const nobody = 65534

// fixedSettings are shell commands after which the kernel's settings can't be changed: an
// agent that tried would change this very host. What mustn't be tried is checked first.
const fixedSettings = `mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
if [ -w /proc/sys/kernel/panic ]; then echo "/proc/sys can be written to" >&2; exit 99; fi
`

// in puts a file in place of one of the kernel's.
func in(place, file string) string { return fmt.Sprintf("mount --bind %s %s\n", file, place) }

// file writes a file of the node's and returns its path.
func file(t *testing.T, n *node.Node, name, text string) string {
	t.Helper()
	path := filepath.Join(n.Base, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// refusal is a start that has to end before anything is changed.
type refusal struct {
	config string
	life   node.Life
	code   int
	// lines are what is reported, each line by words that are in it.
	lines [][]string
}

func oneLine(words ...string) [][]string { return [][]string{words} }

// refusals are starts of an agent whose health port is taken already.
func refusals(t *testing.T, n *node.Node) map[string]refusal {
	t.Helper()
	swaps := in("/proc/swaps", file(t, n, "swaps", "Filename Type Size Used Priority\n/dev/zram0 partition 1024 0 -2\n"))
	panics := in("/proc/sys/kernel/panic", file(t, n, "panic", "77\n"))
	missing := filepath.Join(n.Base, "missing")
	link := filepath.Join(n.Base, "link")
	if err := os.Symlink(n.Base, link); err != nil {
		t.Fatal(err)
	}
	port := []string{"error: 127.0.0.1:" + fmt.Sprint(n.Port(0)) + " can't be listened on", "address already in use; stop what uses it or choose another port"}
	cases := map[string]refusal{
		"a port in use": {code: 1, lines: [][]string{port}},
		"swap, settings of the kernel and a port": {
			config: "failSwapOn: true\nprotectKernelDefaults: true",
			life:   node.Life{Host: fixedSettings + panics + swaps}, code: 1,
			lines: [][]string{
				{"error: protectKernelDefaults is set and the kernel isn't: ", "kernel.panic is 77, should be 10", "/etc/sysctl.d"},
				{"error: swap is on (/dev/zram0)", "swapoff -a", "or allow it with failSwapOn: false (--fail-swap-on=false)"},
				port,
			}},
		"all that is wrong with files and flags": {
			config: "maxPods: -1\npodsPerCore: -2\nmaxPod: 3",
			life:   node.Life{Flags: []string{"--eviction-hard=memory.available<101%", "--node-labels=kubernetes.io/mine=1"}}, code: 1,
			lines: [][]string{
				{"error: invalid configuration, 5 problems:"},
				{"config.yaml:11: maxPod: ", "maxPods?"},
				{"--node-labels: ", "kubernetes.io/mine"},
				{"--eviction-hard: ", "memory.available", "Invalid value", "101%"},
				{"config.yaml:9: maxPods: Invalid value: -1"},
				{"config.yaml:10: podsPerCore: Invalid value: -2"},
			}},
		"a configuration file that isn't there":    {life: withFlags("--config", missing), code: 1, lines: oneLine("error: --config: ", missing, "no such file")},
		"a directory of drop-ins that isn't there": {life: withFlags("--config-dir", missing), code: 1, lines: oneLine("error: --config-dir: ", missing, "no such file")},
		"an unknown flag":                          {life: withFlags("--max-pod=3"), code: 2, lines: oneLine("error: unknown flag: --max-pod", "deckhand agent --help")},
		"a flag that isn't what it should be":      {life: withFlags("--max-pods=many"), code: 2, lines: oneLine("error: ", "many", "--max-pods")},
		"an argument":                              {life: withFlags("directory"), code: 2, lines: oneLine("error: ", "directory", "deckhand agent --help")},
		"an unknown feature gate":                  {life: withFlags("--feature-gates=PodsApi=true"), code: 1, lines: oneLine("error: invalid configuration: --feature-gates", "PodsApi", "unknown feature gate")},
		"a locked feature gate":                    {config: "featureGates: {SidecarContainers: false}", code: 1, lines: oneLine("error: invalid configuration: ", "config.yaml:9: featureGates[SidecarContainers]: ")},
		"a lock file in no directory":              {life: withFlags("--lock-file", filepath.Join(missing, "lock")), code: 1, lines: oneLine("error: lock file "+missing, "create it")},
		"a lock file that is a directory":          {life: withFlags("--lock-file", n.Manifests), code: 1, lines: oneLine("error: lock file "+n.Manifests, "is a directory")},
		"a lock file that is a link":               {life: withFlags("--lock-file", link), code: 1, lines: oneLine("error: lock file "+link, "symbolic link")},
		"a lock to give away, and none":            {life: withFlags("--exit-on-lock-contention"), code: 1, lines: oneLine("--exit-on-lock-contention", "--lock-file")},
		"a root directory of the system":           {life: withFlags("--root-dir", "/etc"), code: 2, lines: oneLine("error: --root-dir /etc: that is a directory of the system")},
		"a root directory of somebody else":        {life: withFlags("--root-dir", n.Base), code: 2, lines: oneLine("error: --root-dir "+n.Base+": it isn't empty", "neither deckhand nor a kubelet")},
		"a user who isn't root":                    {life: node.Life{User: nobody, Flags: []string{"--config", ""}}, code: 1, lines: oneLine("error: must run as root")},
		"a node of a cluster at a loopback only":   {life: node.Life{Flags: []string{"--kubeconfig", missing}, Host: fixedSettings}, code: 1, lines: oneLine("--node-ip: 127.0.0.1 can't be")},
	}
	if onlyCgroupV1(t) {
		v1 := []string{"error: this host uses cgroup v1", "or allow it with failCgroupV1: false (--fail-cgroupv1=false)"}
		cases["cgroup v1"] = refusal{config: "failCgroupV1: true", code: 1, lines: [][]string{v1, port}}
		// Nobody says so, but in a cluster that is the default.
		cases["cgroup v1 and swap in a cluster"] = refusal{
			life: node.Life{Flags: []string{"--kubeconfig", missing, "--node-ip", "0.0.0.0"}, Host: fixedSettings + swaps}, code: 1,
			lines: [][]string{v1, {"error: swap is on"}, port}}
	}
	return cases
}

func withFlags(args ...string) node.Life { return node.Life{Flags: args} }

// onlyCgroupV1 reports whether the host has no cgroup v2 where it counts.
func onlyCgroupV1(t *testing.T) bool {
	t.Helper()
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return !regexp.MustCompile(`(?m)^\S+ /sys/fs/cgroup cgroup2 `).Match(mounts)
}

// An agent that can't run says why, a line for each reason, and has changed nothing.
func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{})
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n.Port(0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	fresh := filepath.Join(n.Base, "fresh")
	settings := kernelSettings(t)
	for name, c := range refusals(t, n) {
		n.Configure(c.config)
		c.life.Flags = append([]string{"--root-dir", fresh}, c.life.Flags...)
		end := n.Run(c.life)
		if problem := c.compare(end); problem != "" {
			t.Errorf("%s: %s, got %s", name, problem, end)
		}
		if _, err := os.Lstat(fresh); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s: the root directory was made: %v", name, err)
		}
	}
	if err := n.Untouched(); err != nil {
		t.Errorf("refused starts have left: %v", err)
	}
	if now := kernelSettings(t); now != settings {
		t.Errorf("settings of the kernel were %s and are %s", settings, now)
	}
}

func (c refusal) compare(end node.Ended) (problem string) {
	if end.Code != c.code || end.Stdout != "" {
		return fmt.Sprintf("want exit code %d and nothing on standard output", c.code)
	}
	lines := strings.Split(strings.TrimSuffix(end.Stderr, "\n"), "\n")
	if len(lines) != len(c.lines) {
		return fmt.Sprintf("want %d lines with %q", len(c.lines), c.lines)
	}
	for _, words := range c.lines {
		at := slices.IndexFunc(lines, func(line string) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
		})
		if at < 0 {
			return fmt.Sprintf("want a line with %q", words)
		}
		lines = slices.Delete(lines, at, at+1)
	}
	return ""
}

// kernelSettings are what the kubelet would set, as they are.
func kernelSettings(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, f := range kernel.Wanted() {
		value, err := os.ReadFile(settingPath(f.Name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s=%s ", f.Name, strings.TrimSpace(string(value)))
	}
	return b.String()
}

func settingPath(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

// Called as the kubelet, with a kubelet's command line, the program does as a kubelet does on a node
// of a cluster, as far as that goes without its API server; here before there is a runtime.
func TestInTheKubeletsPlace(t *testing.T) {
	t.Parallel()
	kubelet := filepath.Join(t.TempDir(), "kubelet")
	if err := os.Symlink(binary, kubelet); err != nil {
		t.Fatal(err)
	}
	prints(t, kubelet, "--version", `^Kubernetes v1\.36\.\d+\n$`)
	prints(t, kubelet, "--help", `(?s)--root-dir directory .*\(default /var/lib/kubelet\)`)

	n := node.New(t, kubelet, node.Options{})
	config := regexp.MustCompile("(?m)^readOnlyPort: .*\n").ReplaceAllString(n.ConfigText("failCgroupV1: false\nfailSwapOn: false\nport: "+strconv.Itoa(n.Port(2))), "")
	host, sysctls := changeableSettings(t, n)
	m := listenAsManager(t, filepath.Join(n.Base, "notify"))
	settings, defaults := kernelSettings(t), names("/var/lib/kubelet")
	n.Write("a.yaml", pod("a"))
	n.StartAs(node.Life{Host: host, Env: m.env(), Flags: []string{
		"--config", file(t, n, "kubelet.yaml", config), "--kubeconfig", filepath.Join(n.Base, "kubelet.conf"), "--node-ip", "0.0.0.0",
		"--container-runtime-endpoint", n.RuntimeEndpoint(), "--cert-dir", filepath.Join(n.RootDir, "pki"),
	}})
	n.Await("the pod waits for the runtime", node.Each([]string{"a"}, func(v local.PodView) error {
		if reasons := v.Waiting(); !strings.Contains(reasons, "runtime") {
			return errors.New(reasons)
		}
		return nil
	}))
	if len(m.reported) > 0 {
		t.Errorf("the service manager was reported %v already", <-m.reported)
	}
	n.StartRuntime()
	m.await(t, "READY")
	n.Await("the pod runs as soon as there is one", node.Ready("a"))

	log := n.Logged()
	for _, words := range []string{
		"no container runtime answers at " + n.RuntimeEndpoint() + ": there is no such socket", "the agent goes on asking",
		"The kubeconfig can't be used; the node isn't part of a cluster until it is corrected", "kubelet.conf: no such file or directory",
		"Joins a cluster",
	} {
		if !strings.Contains(log, words) {
			t.Errorf("the log doesn't say %q", words)
		}
	}
	if mayLower(t) {
		if score := oomScore(t, n.PID()); score != -999 {
			t.Errorf("the agent's OOM score is %d", score)
		}
	} else if !strings.Contains(log, "isn't kept from being killed when the host's memory runs out") {
		t.Error("the log doesn't say that the agent's OOM score can't be lowered")
	}
	sysctls.check(t, log)
	if now := kernelSettings(t); now != settings {
		t.Errorf("settings of this host were %s and are %s", settings, now)
	}
	if now := names("/var/lib/kubelet"); !slices.Equal(now, defaults) {
		t.Errorf("the kubelet's own root directory had %q and has %q", defaults, now)
	}
	if got, want := listens(t, n.PID()), []int{n.Port(0), n.Port(2)}; !slices.Equal(got, want) {
		t.Errorf("the agent listens on the ports %v, want %v: health and HTTPS", got, want)
	}
}

// prints runs a program with one argument. It has to end well, and say what the pattern wants.
func prints(t *testing.T, program, arg, pattern string) {
	t.Helper()
	out, err := exec.Command(program, arg).CombinedOutput()
	if err != nil || !regexp.MustCompile(pattern).Match(out) {
		t.Errorf("%s %s: %v, it says %q, want %s", filepath.Base(program), arg, err, out, pattern)
	}
}

// sysctls are files that an agent takes for settings of the kernel.
type sysctls map[string]string

// fixed is the one that can't be changed.
const fixed = "kernel.panic_on_oops"

// changeableSettings puts files in place of the settings that a kubelet changes, all to be changed,
// and lets the agent write to all but one.
func changeableSettings(t *testing.T, n *node.Node) (host string, files sysctls) {
	t.Helper()
	host, files = fixedSettings, sysctls{}
	for _, f := range kernel.Wanted() {
		files[f.Name] = file(t, n, f.Name, "7\n")
		host += in(settingPath(f.Name), files[f.Name])
	}
	return host + "mount -o remount,bind,ro " + settingPath(fixed), files
}

// check looks whether the agent has changed what it could, and has logged the rest.
func (s sysctls) check(t *testing.T, log string) {
	t.Helper()
	for _, f := range kernel.Wanted() {
		want := f.Want
		if f.Name == fixed {
			want = "7"
		}
		if text, err := os.ReadFile(s[f.Name]); err != nil || strings.TrimSpace(string(text)) != want {
			t.Errorf("%s is %q, want %s: %v", f.Name, text, want, err)
		}
	}
	if want := fixed + " can't be set to 1"; !strings.Contains(log, want) {
		t.Errorf("the log doesn't say %q", want)
	}
}

// names are those in a directory; none if it isn't there.
func names(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "*")) // fails for bad patterns only
	return found
}

// listens are the TCP ports that a process listens on.
func listens(t *testing.T, pid int) (ports []int) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	sockets := map[string]bool{}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil {
			sockets[target] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile("/proc/net/" + table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" || !sockets["socket:["+f[9]+"]"] { // TCP_LISTEN
				continue
			}
			_, port, _ := strings.Cut(f[1], ":")
			number, err := strconv.ParseUint(port, 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			ports = append(ports, int(number))
		}
	}
	slices.Sort(ports) // the kernel lists them by a hash
	return ports
}
