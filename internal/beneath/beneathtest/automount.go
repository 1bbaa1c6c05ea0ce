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
	// The group is of those for whom nothing is mounted: one that this process isn't in.
	options := fmt.Sprintf("fd=%d,pgrp=1,minproto=5,maxproto=5,direct", tell.Fd())
	if err := errors.Join(unix.Mount("test", dir, "autofs", 0, options), tell.Close(), asks.Close()); err != nil {
		t.Fatalf("have something mounted on %s when it is used: %v", dir, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}
