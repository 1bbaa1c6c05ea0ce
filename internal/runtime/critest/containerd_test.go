package critest_test

import (
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/deckhand-node/deckhand/internal/runtime/critest"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/embeddedtest"
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
