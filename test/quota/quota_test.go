// Package quota holds one test: what directories hold is measured by the project quotas of real file systems, and an
// agent whose root directory has used up such a quota goes on. It needs a kernel that has them, whatever the host's
// has, so it runs in a virtual machine.
package quota

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/test/cgroupv2/vm"
)

// limit is how long the machine may take from boot to power-off.
const limit = 3 * time.Minute

// want is what the guest has to tell of each file system.
var want = map[string]string{
	"project of the first directory":                 "1048577", // the one before is somebody else's
	"project of the second directory":                "1048578",
	"a directory with files":                         "it isn't empty",
	"project of the directory with files":            "0",
	"a full directory, by quota and by walk":         "the same",
	"another directory meanwhile":                    "the same",
	"a deleted file that is open":                    "by quota alone",
	"a directory of an agent before":                 "assigned, and the same",
	"project of a directory after the first is gone": "one of its own",
	"another project, set by the host":               "set",
	"another project, set in a user namespace":       "refused",
	"tests of room":                                  "ok",
	"tests of agent":                                 "ok",
	"verdict":                                        `Usage of EmptyDir volume "data" exceeds the limit "1Mi". `,
}

func TestProjectQuotas(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test boots a machine with disks and needs root")
	}
	k := vm.Find(t)
	dir := k.Stage(t, "./guest")
	for _, pkg := range []string{"host/room", "agent"} {
		vm.Build(t, filepath.Join(dir, filepath.Base(pkg)+".test"), "test", "../../internal/"+pkg, "quota")
	}
	disks := []string{
		disk(t, dir, 0, "mkfs.ext4", "-q", "-O", "quota,project"),
		disk(t, dir, 1, "mkfs.xfs", "-q"),
	}
	result := k.Run(t, dir, limit, disks...)
	all := map[string]string{}
	for _, kind := range []string{"ext4", "xfs"} {
		for fact, value := range want {
			all[kind+": "+fact] = value
		}
	}
	vm.Check(t, result.Facts, all)
	vm.LogIfFailed(t, result.Facts)
}

// disk makes a disk of the machine, with a file system, and returns the kernel's arguments for it.
func disk(t *testing.T, dir string, number int, mkfs ...string) string {
	t.Helper()
	const size = 320 << 20 // the least that XFS takes, with room; hardly any of it is written
	image := filepath.Join(dir, mkfs[0]+".img")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), mkfs[0], append(mkfs[1:], image)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s(run `make test-deps` as root if it is missing)", mkfs[0], err, out)
	}
	return "ubd" + strconv.Itoa(number) + "=" + image
}
