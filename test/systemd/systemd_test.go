// Package systemd tests deckhand in the kubelet's place on a node as kubeadm
// makes it, started by a real systemd that also makes the control groups. Host and
// systemd live in a virtual machine; the real host lends programs, read-only.
package systemd

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/test/cgroupv2/vm"
)

// machineTime is how long the machine may take from boot to power-off.
const machineTime = 10 * time.Minute

// want is what the guest has to tell. CPU limits are whole percents: 155m are 16.
var want = map[string]string{
	"slices left of the tests": "",

	"restarts":                   "0",
	"QoS cgroup cpu.weight":      "17",
	"pod cpu.max":                "16000 100000",
	"pod cpu.weight":             "17",
	"pod memory.max":             "50331648",
	"pod memory.swap.max":        "0",
	"pod pids.max":               "max",
	"container cpu.max":          "16000 100000",
	"container memory.max":       "50331648",
	"container processes":        "web",
	"pod's slice":                "50331648 active yes",
	"pod's answer":               "web is here",
	"kubelet is on the bus":      "true",
	"no groups beside systemd's": "true",
	"slices left":                "",
	"kubelet's end":              "success inactive",
	"deckhand.service later":     "0 active",
	"deckhand.service's end":     "success inactive",

	"deckhand.service at first":                   "activating",
	"deckhand.service's containers are systemd's": "true",
}

// journal is what a query for logs is answered with: from the journal, which has nothing of earlier boots here, and of services that it has nothing of from /var/log.
var journal = map[string]string{
	"the journal's lines of its start": `^200 \w{3} \d\d [\d:.]+ \S+ deckhand\[\d+\]: I[^\n]*\] "Starting agent" [^\n]*$`,
	"the journal's last line":          `^200 \w{3} \d\d [\d:.]+ \S+ deckhand\[\d+\]: [^\n]+$`,
	"the journal from tomorrow on":     `^200$`,
	"the journal of a boot before":     `^200$`,
	"the log of a service without one": `^200 time=[^\n]+$`,
	"the log of a service that isn't":  `^404 there are no logs of service "nobody"`,
}

// same is what stays as it is when systemd reads its units again, and when the unit restarts.
var same = []string{
	"pod uid", "container id", "restarts", "QoS cgroup cpu.weight", "pod cpu.max", "pod cpu.weight", "pod memory.max", "pod memory.swap.max",
	"pod pids.max", "container cpu.max", "container memory.max", "container processes", "pod's slice",
}

func TestKubeletUnitUnderSystemd(t *testing.T) {
	k, dir := stage(t)
	facts := k.Run(t, dir, machineTime).Facts
	vm.Check(t, facts, want)
	for fact, want := range journal {
		if !regexp.MustCompile(want).MatchString(facts[fact]) {
			t.Errorf("%s: %q doesn't match %s", fact, facts[fact], want)
		}
	}
	for _, when := range []string{" after daemon-reload", " after restart"} {
		for _, fact := range same {
			if before, after := facts[fact], facts[fact+when]; before == "" || before != after {
				t.Errorf("%s was %q and is %q%s", fact, before, after, when)
			}
		}
	}
	vm.LogIfFailed(t, facts)
}

// Limits by systemd's properties of cgroup v1 are other ones.
func TestSystemdOnCgroupV1(t *testing.T) {
	k, dir := stage(t)
	facts := k.Run(t, dir, machineTime, "CGROUPS=v1").Facts
	vm.Check(t, facts, map[string]string{"cgroups": "v1", "slices left of the tests": ""})
}

// stage fills a directory with what the guest needs.
func stage(t *testing.T) (k vm.Kernel, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test runs real containers and needs root")
	}
	for program, of := range map[string]string{"/usr/lib/systemd/systemd": "systemd", "/usr/bin/dbus-daemon": "dbus"} {
		if _, err := os.Stat(program); err != nil {
			t.Fatalf("%v: it is of the Debian package %s: run `make test-deps` (as root)", err, of)
		}
	}
	k = vm.Find(t)
	dir = k.Stage(t, "./guest")
	vm.Build(t, filepath.Join(dir, "resources.test"), "test", "../../internal/resources/cgroup", "systemd")
	root := filepath.Join(dir, "root")
	if err := os.CopyFS(root, os.DirFS("testdata/root")); err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile("../../packaging/deckhand.service")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/systemd/system/deckhand.service"), unit, 0o600); err != nil {
		t.Fatal(err)
	}
	return k, dir
}
