package vm

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/test/cgroupv2/report"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// PC is an emulated computer (QEMU, without KVM) with Debian's kernel. It has what User-mode Linux hasn't: NUMA nodes,
// CPUs with sibling threads, hot-plugged CPUs and memory, and pressure (PSI).
type PC struct {
	program string
	kernel  string
}

// FindPC fails the test if QEMU or the kernel are missing.
func FindPC(t *testing.T) PC {
	t.Helper()
	program, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Fatal("qemu-system-x86_64, of the Debian package qemu-system-x86, is missing: run `make test-deps` (as root)")
	}
	kernel := filepath.Join(embeddedtest.Bin(t), "test-kernel", "vmlinuz")
	if _, err := os.Stat(kernel); err != nil {
		t.Fatalf("%s is missing: run `make test-kernel`", kernel)
	}
	return PC{program, kernel}
}

// numa are two sockets, each a NUMA node of 512 MiB with two cores of two threads. The second core of the second one,
// and another GiB of memory, may be plugged in.
var numa = []string{
	"-smp", "6,maxcpus=8,sockets=2,cores=2,threads=2", "-m", "1024M,maxmem=2G,slots=2",
	"-object", "memory-backend-ram,id=m0,size=512M", "-object", "memory-backend-ram,id=m1,size=512M",
	"-numa", "node,nodeid=0,memdev=m0", "-numa", "node,nodeid=1,memdev=m1", "-numa", "dist,src=0,dst=1,val=21",
	"-numa", "cpu,node-id=0,socket-id=0", "-numa", "cpu,node-id=1,socket-id=1",
}

// Run boots the computer with a file system in memory of these files of the host, by their paths there. Its first
// process is /init. Run returns what the guest reported until it powered off. The test fails if that takes longer than
// the limit, or the guest failed.
func (p PC) Run(t *testing.T, files map[string]string, limit time.Duration) report.Result {
	t.Helper()
	dir := t.TempDir()
	initramfs := filepath.Join(dir, "initramfs")
	if err := os.WriteFile(initramfs, archive(t, files), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program, append([]string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", "max,vendor=GenuineIntel",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-kernel", p.kernel, "-initrd", initramfs,
		"-append", "console=ttyS0 quiet loglevel=1 panic=-1 psi=1"}, numa...)...)
	cmd.Dir = dir
	began := time.Now()
	return results(t, console(t, ctx, cmd), began)
}

// archive is a file system as the kernel unpacks it: a cpio archive of the format newc
// (Documentation/driver-api/early-userspace/buffer-format.rst).
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	number := 0
	add := func(name string, mode int, content []byte) {
		number++
		fmt.Fprintf(&out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
			number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
		pad(&out)
		out.Write(content)
		pad(&out)
	}
	made := map[string]bool{"/": true}
	var parents func(dir string)
	parents = func(dir string) {
		if !made[dir] {
			made[dir] = true
			parents(path.Dir(dir))
			add(dir[1:], 0o040755, nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		parents(path.Dir(name))
		content, err := os.ReadFile(files[name])
		if err != nil {
			t.Fatal(err)
		}
		add(name[1:], 0o100755, content)
	}
	add("TRAILER!!!", 0, nil)
	return out.Bytes()
}

// pad fills up to a multiple of four bytes.
func pad(out *bytes.Buffer) { out.Write(make([]byte, -out.Len()&3)) }
