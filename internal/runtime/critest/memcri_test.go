package critest_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/deckhand-node/deckhand/internal/runtime/critest"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemCRI(t *testing.T) {
	critest.Run(t, func(t *testing.T) critest.Harness {
		const image = "deckhand.local/web:1"
		s, err := memcri.New(memcri.Options{Images: []string{image}, WriteLogs: true})
		if err != nil {
			t.Fatal(err)
		}
		s.Behave("/critest-no-such-program", memcri.Behaviour{StartError: "no such file or directory"})
		if err := s.Start(filepath.Join(t.TempDir(), "cri.sock")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return critest.Harness{
			Connect: func() (*grpc.ClientConn, error) { return s.Connect() },
			Image:   image,
			Program: []string{"/web"},
			Crash:   func(*testing.T) { s.Crash() },
			Restart: func(t *testing.T) {
				if err := s.Restart(); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
