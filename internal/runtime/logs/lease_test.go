package logs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// Without the capability to lease other users' files the kernel reports those as little
// as file systems do that know no leases.
func TestCopyWhereTheKernelDoesNotReportWriters(t *testing.T) {
	r, dir := newLog(t)
	write(t, dir, older, line("1"))
	write(t, dir, "0.log", line("2"))
	if err := os.Chown(filepath.Join(dir, older), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	name, _ := layout.ParseName(older)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	type outcome struct {
		text         string
		unknown, err error
	}
	done := make(chan outcome)
	go func() {
		var o outcome
		defer func() { done <- o }()
		runtime.LockOSThread() // never unlocked: the thread ends with what it lost
		if o.unknown = dropLease(); o.unknown != nil {
			return
		}
		directory, err := layout.Open(r.root, web.dir())
		if err != nil {
			o.unknown = err
			return
		}
		defer directory.Close()
		f, err := directory.Open(name)
		if err != nil {
			o.unknown = err
			return
		}
		defer f.Close()
		_, o.unknown = filewatch.HasWriter(f)
		var text bytes.Buffer
		o.err = r.Copy(ctx, &text, Request{Log: web, Options: Options{Tail: -1}}, nil)
		o.text = text.String()
	}()
	o := <-done
	if !errors.Is(o.unknown, filewatch.ErrUnknown) {
		t.Fatalf("the kernel can tell after all: %v", o.unknown)
	}
	if o.err != nil || o.text != "1\n2\n" {
		t.Errorf("got %q, %v", o.text, o.err)
	}
}

// dropLease takes CAP_LEASE from the calling thread.
func dropLease() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return err
	}
	caps[0].Effective &^= 1 << unix.CAP_LEASE
	return unix.Capset(&head, &caps[0])
}
