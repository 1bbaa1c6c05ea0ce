package critest_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/deckhand-node/deckhand/internal/runtime/critest"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

func TestContainerd(t *testing.T) {
	in := embeddedtest.Start(t)
	critest.Run(t, func(*testing.T) critest.Harness {
		return critest.Harness{
			Connect: func() (*grpc.ClientConn, error) {
				return grpc.NewClient(in.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
			},
			Image:        embeddedtest.WebImage,
			Program:      []string{"/web"},
			CgroupParent: func(uid string) string { return in.CgroupRoot + "/kubepods/pod" + uid },
			RunsPrograms: true,
			Limits:       func(t *testing.T, uid, id string) (int64, int64, int64) { return limits(t, in.CgroupRoot, uid, id) },
			Crash: func(t *testing.T) {
				in.StopRun(t) // or containerd would be started again at once
				if err := syscall.Kill(in.Runtime.PID(), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			},
			Restart: func(t *testing.T) { in.Launch(t) },
		}
	})
}

// limits reads a container's control group, of version 1.
func limits(t *testing.T, root, uid, id string) (cpuShares, cpuQuota, memory int64) {
	t.Helper()
	number := func(controller, file string) int64 {
		path := filepath.Join("/sys/fs/cgroup", controller, root, "kubepods/pod"+uid, id, file)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return n
	}
	return number("cpu", "cpu.shares"), number("cpu", "cpu.cfs_quota_us"), number("memory", "memory.limit_in_bytes")
}
