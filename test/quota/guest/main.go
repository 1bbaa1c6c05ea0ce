// Command guest is the first process of the virtual machine that the test boots: it mounts
// file systems with project quotas, measures directories in them, and tells the test what comes out.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/test/cgroupv2/machine"
)

// patience is how long all of it may take. The host waits longer.
const patience = 2 * time.Minute

// etc is where the guest tells of other people's project IDs.
const etc = "/etc/others"

func main() {
	if err := run(); err != nil {
		machine.Fail(err)
	}
	machine.PowerOff()
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := machine.SetUp(map[string]string{etc[1:] + "/projects": "1048576:/somebody/else\n"}); err != nil {
		return err
	}
	if err := machine.LoadModules("quota_v2"); err != nil { // ext4's format
		return err
	}
	disks, ctx := errgroup.WithContext(ctx)
	for device, kind := range map[string]string{"/dev/ubda": "ext4", "/dev/ubdb": "xfs"} {
		disks.Go(func() error {
			top := "/mnt/" + kind
			if err := os.MkdirAll(top, 0o755); err != nil {
				return err
			}
			if err := unix.Mount(device, top, kind, 0, "prjquota"); err != nil {
				return fmt.Errorf("mount %s with project quotas: %w", kind, err)
			}
			if err := (&disk{kind: kind, top: top}).check(ctx); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			runTests(ctx, kind, top)
			return nil
		})
	}
	return disks.Wait()
}

// runTests runs the tests of internal packages that need project quotas, below a directory, and reports their outcome.
// They run without CAP_SYS_RESOURCE, with which a process may exceed the quotas of ext4.
func runTests(ctx context.Context, kind, top string) {
	for _, pkg := range []string{"room", "agent"} {
		cmd := exec.CommandContext(ctx, "setpriv", "--bounding-set", "-sys_resource", machine.Dir+"/"+pkg+".test",
			"-test.run", "^Test(WatchProjectQuota|QuotaMoments)$", "-test.v")
		cmd.Dir, cmd.Env = "/tmp", append(os.Environ(), "TMPDIR="+top)
		out, err := cmd.CombinedOutput()
		outcome := "ok"
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			outcome = fmt.Sprintf("%v\n%s", err, out)
		}
		machine.Tell(outcome, "%s: tests of %s", kind, pkg)
	}
}
