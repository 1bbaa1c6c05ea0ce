package node

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
)

// KeepSysctls keeps agents of a cluster from changing the kernel's settings: this process, whose mount namespace has to be
// its own (mounttest.Run), and what it starts see files in their place that say what those agents want.
func (n *Node) KeepSysctls() {
	n.t.Helper()
	for _, f := range kernel.Wanted() {
		path, at := filepath.Join(n.Base, f.Name), "/proc/sys/"+strings.ReplaceAll(f.Name, ".", "/")
		if err := os.WriteFile(path, []byte(f.Want+"\n"), 0o600); err != nil {
			n.t.Fatal(err)
		}
		if err := unix.Mount(path, at, "", unix.MS_BIND, ""); err != nil {
			n.t.Fatalf("mount %s at %s: %v", path, at, err)
		}
		n.t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				n.t.Errorf("unmount %s: %v", at, err)
			}
		})
	}
}
