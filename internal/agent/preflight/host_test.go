package preflight

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
)

// files is a host's kernel files by their paths.
type files map[string]string

func (f files) read(path string) ([]byte, error) {
	text, ok := f[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return []byte(text), nil
}

func unreadable(path string) ([]byte, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
}

// expect wants exactly one problem in one line with all of want, or none if want is empty.
func expect(t *testing.T, problems []Problem, isFatal bool, want ...string) {
	t.Helper()
	if len(want) == 0 {
		if len(problems) > 0 {
			t.Errorf("problems are %q", problems)
		}
		return
	}
	if len(problems) != 1 || problems[0].Fatal != isFatal || strings.Contains(problems[0].Message, "\n") {
		t.Fatalf("problems are %+v, want one that is fatal: %v", problems, isFatal)
	}
	for _, w := range want {
		if !strings.Contains(problems[0].Message, w) {
			t.Errorf("%q doesn't say %q", problems[0].Message, w)
		}
	}
}

func TestSwap(t *testing.T) {
	const header = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	for name, c := range map[string]struct {
		swaps    string
		attitude Attitude
		want     []string
	}{
		"off":              {header, Refuse, nil},
		"off, blank lines": {header + "\n\n", Refuse, nil},
		"empty file":       {"", Refuse, nil},
		"accepted":         {header + "/dev/sda2 partition 100 0 -2\n", Accept, nil},
		"partition":        {header + "/dev/sda2 partition 100 0 -2\n", Refuse, []string{"swap is on (/dev/sda2)", "swapoff -a", "failSwapOn: false"}},
		"warned of":        {header + "/dev/sda2 partition 100 0 -2\n", Warn, []string{"swap is on (/dev/sda2)", "zram-generator)"}},
		"several":          {header + "/dev/zram0 partition 9 0 100\n/swapfile file 9 0 -2\n", Refuse, []string{"(/dev/zram0, /swapfile)"}},
		"deleted file":     {header + "/swap\\040(deleted) file 9 0 -2\n", Refuse, []string{"(/swap\\040(deleted))"}},
	} {
		t.Run(name, func(t *testing.T) {
			problems := checkSwap(c.attitude, files{"/proc/swaps": c.swaps}.read)
			expect(t, problems, c.attitude == Refuse, c.want...)
			if len(problems) > 0 && strings.Contains(problems[0].Message, "allow") != (c.attitude == Refuse) {
				t.Errorf("%q says how to allow it, or doesn't", problems[0])
			}
		})
	}
	expect(t, checkSwap(Refuse, files{}.read), false) // no swap in the kernel
	expect(t, checkSwap(Warn, unreadable), true, "swap: ", "permission denied")
}

func TestCgroupVersion(t *testing.T) {
	const (
		v1     = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n"
		beside = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
		v2     = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
		stray  = "cgroup /mnt/net cgroup rw,net_cls 0 0\n"
	)
	host := files{"/sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n", "/sys/fs/cgroup/unified/cgroup.controllers": ""}
	for name, c := range map[string]struct {
		mounts   string
		attitude Attitude
		want     []string
	}{
		"v2":             {v2, Refuse, nil},
		"v2, a stray v1": {stray + v2, Refuse, nil},
		"v1 accepted":    {v1, Accept, nil},
		"v1 warned of":   {v1, Warn, []string{"cgroup v1", "systemd.unified_cgroup_hierarchy=1)"}},
		"v1 refused":     {v1, Refuse, []string{"cgroup v1", "allow it with failCgroupV1: false"}},
		"hybrid refused": {v1 + beside, Refuse, []string{"cgroup v1"}},
		"none":           {"proc /proc proc rw 0 0\n", Refuse, []string{"no controller cpu, memory, pids"}},
	} {
		t.Run(name, func(t *testing.T) {
			host["/proc/mounts"] = c.mounts
			expect(t, checkCgroups(c.attitude, host.read), c.attitude == Refuse, c.want...)
		})
	}
	expect(t, checkCgroups(Accept, unreadable), true, "cgroups: ")
}

func TestKernelSettings(t *testing.T) {
	dir := t.TempDir()
	for _, f := range kernel.Wanted() {
		path := filepath.Join(dir, strings.ReplaceAll(f.Name, ".", "/"))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f.Want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, checkKernelSettings(kernel.Sysctls(dir)), true)
	if err := os.WriteFile(filepath.Join(dir, "kernel/panic"), []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, checkKernelSettings(kernel.Sysctls(dir)), true, "kernel.panic is 0, should be 10: ", "/etc/sysctl.d")
}

func TestClock(t *testing.T) {
	built := time.Date(2027, time.March, 4, 5, 6, 7, 0, time.UTC)
	for name, c := range map[string]struct {
		now, built time.Time
		want       []string
	}{
		"no battery":             {time.Unix(7, 0), built, []string{"1970-01-01T00:00:07Z", "NTP"}},
		"no battery, unknown":    {time.Unix(7, 0), time.Time{}, []string{"1970-01-01T00:00:07Z"}},
		"long before":            {built.AddDate(0, -1, 0), built, []string{"2027-02-04"}},
		"a bit before":           {built.Add(-time.Hour), built, nil},
		"after":                  {built.AddDate(20, 0, 0), built, nil},
		"after, unknown":         {firstRelease, time.Time{}, nil},
		"built by a wrong clock": {firstRelease.Add(-time.Second), time.Unix(0, 0), []string{"2025-12-31"}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, checkClock(c.now, c.built), false, c.want...) })
	}
}

// The real files of this host are understood, whatever is in them.
func TestThisHost(t *testing.T) {
	for name, problems := range map[string][]Problem{
		"swap":    checkSwap(Warn, os.ReadFile),
		"cgroups": checkCgroups(Warn, os.ReadFile),
		"clock":   checkClock(time.Now(), time.Time{}),
	} {
		if f := fatals(problems); len(f) > 0 {
			t.Errorf("%s: %q", name, f)
		}
	}
	for _, p := range checkKernelSettings("/proc/sys") {
		if strings.Contains(p.Message, "can't be read") {
			t.Error(p)
		}
	}
}
