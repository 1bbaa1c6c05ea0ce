package plugins

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/killtest"
)

// TestKilledAnywhere: what is made has its mode from the beginning, so that none stays with less that an
// agent with a strict umask was about to give more.
func TestKilledAnywhere(t *testing.T) {
	for kind, want := range map[v1.HostPathType]fs.FileMode{v1.HostPathDirectoryOrCreate: fs.ModeDir | 0o755, v1.HostPathFileOrCreate: 0o644} {
		request := func(dir string) volume.Request {
			return volume.Request{Spec: hostPathSpec(filepath.Join(dir, "made"), &kind)}
		}
		killtest.Run(t, killtest.Case{
			Name:  string(kind),
			Fresh: func(*testing.T, string) {},
			Child: func(dir string) error {
				unix.Umask(0o077)
				_, err := HostPath{}.Mount(context.Background(), request(dir))
				return err
			},
			Check: func(t *testing.T, dir string, n int) {
				if _, err := (HostPath{}).Mount(t.Context(), request(dir)); err != nil {
					t.Fatal(err)
				}
				if st, err := os.Lstat(filepath.Join(dir, "made")); err != nil || st.Mode() != want {
					t.Errorf("step %d: %v, %v; want %v", n, st.Mode(), err, want)
				}
			},
		})
	}
}
