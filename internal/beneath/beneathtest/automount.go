package beneathtest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Automount makes dir a folder on which something is to be mounted when it is used, as systemd and
// automount(8) do. Here nobody does it: for the first who uses dir it isn't there. It goes with the test.
func Automount(t testing.TB, dir string) {
	t.Helper()
	asks, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// The process group is of those for whom nothing is mounted: one that this process, which leads none (mounttest.Run
	// starts it), isn't in. In a container, that of PID 1 may be everybody's.
	options := fmt.Sprintf("fd=%d,pgrp=%d,minproto=5,maxproto=5,direct", tell.Fd(), os.Getpid())
	if err := errors.Join(unix.Mount("test", dir, "autofs", 0, options), tell.Close(), asks.Close()); err != nil {
		t.Fatalf("have something mounted on %s when it is used, for which the kernel needs autofs: %v", dir, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}
