package csi

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/deckhand-node/deckhand/internal/host/pluginwatch"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// The kubelet reads the record, and the agent the kubelet's.
func TestRecord(t *testing.T) {
	p := inline()
	s, err := sourceOf(p, volume.Spec{Volume: &p.Spec.Volumes[0]})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "volumes", "data")
	if _, err := readRecord(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if err := s.record(p.Spec.NodeName).create(dir, "this"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "vol_data.json"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	const handle = "csi-7a075fb358279980b660d575168af6c25ee140b5f3a73a8a16e21f8e4f1e9ad8"
	for key, want := range map[string]string{"driverName": driverName, "volumeHandle": handle, "specVolID": "data",
		"nodeName": "node1", "volumeLifecycleMode": "Ephemeral", keyUncertain: "true", keyBoot: "this",
		// sha256 of the handle, the driver and the node
		"attachmentID": "csi-b97a4b216d30e21101e3c80c0446d448f2e1c11b8ce8798def92c461e4387f6b"} {
		if got[key] != want {
			t.Errorf("%s is %q", key, got[key])
		}
		delete(got, key)
	}
	if len(got) > 0 {
		t.Errorf("more: %v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "vol_data.json"), // of a kubelet, with a key of a later version
		[]byte(`{"driverName":"d","volumeHandle":"h","seLinuxMountContext":""}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if r, err := readRecord(dir); err != nil || r[keyDriver] != "d" || r[keyHandle] != "h" {
		t.Errorf("read %v, %v", r, err)
	}
	for range 2 {
		if err := removeRecord(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// A change of the state leaves the file, which is there after a crash, and any part of the change is no success.
func TestStateOfRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	r := record{keyDriver: "d", keyHandle: "h", keyVolume: "v"}
	path := filepath.Join(dir, recordName)
	read := func() (record, os.FileInfo) {
		t.Helper()
		got, err := readRecord(dir)
		st, err2 := os.Stat(path)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return got, st
	}
	if err := r.create(dir, "boot-1"); err != nil {
		t.Fatal(err)
	}
	made, first := read()
	if made.certain() {
		t.Error("it is certain before the call has ended")
	}
	for _, done := range []bool{true, true, false, true} {
		change := made.release
		if done {
			change = func(dir string) error { return r.succeed(dir, "boot-1") }
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		got, st := read()
		if got.certain() != done || got[keyBoot] != "boot-1" || got[keyVolume] != "v" || !os.SameFile(first, st) {
			t.Errorf("after a success: %t: %v, the same file: %t", done, got, os.SameFile(first, st))
		}
	}
	if err := overwrite(dir, []byte("t"), int64(strings.Index(string(text(t, path)), certain))); err != nil {
		t.Fatal(err)
	}
	if got, _ := read(); got.certain() {
		t.Errorf("a torn state is certain: %v", got)
	}
	// Other records are replaced: those of a kubelet, and of another boot.
	if err := os.WriteFile(path, []byte(`{"driverName":"d","volumeHandle":"h"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	kubelets, _ := read()
	if err := kubelets.release(dir); err != nil {
		t.Fatal(err)
	}
	if got, _ := read(); got.certain() {
		t.Errorf("released: %v", got)
	}
	if err := r.succeed(dir, "boot-2"); err != nil {
		t.Fatal(err)
	}
	if got, _ := read(); !got.certain() || got[keyBoot] != "boot-2" {
		t.Errorf("in the next boot: %v", got)
	}
}

func text(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A record that can't be used is an error that names it, and is never one that doesn't exist: its volume would be
// forgotten.
func TestBadRecords(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"empty":     {func(p string) error { return os.WriteFile(p, nil, 0o600) }, "unexpected end"},
		"cut":       {func(p string) error { return os.WriteFile(p, []byte(`{"driverName":"d`), 0o600) }, "unexpected end"},
		"foreign":   {func(p string) error { return os.WriteFile(p, []byte(`{"a":"b"}`), 0o600) }, "is missing"},
		"a list":    {func(p string) error { return os.WriteFile(p, []byte(`[]`), 0o600) }, "cannot unmarshal"},
		"too large": {func(p string) error { return os.WriteFile(p, make([]byte, 10<<20), 0o600) }, "more than 65536 bytes"},
		"a link": {func(p string) error {
			other := p + ".other"
			return errors.Join(os.WriteFile(other, []byte(`{"driverName":"d","volumeHandle":"h"}`), 0o600), os.Symlink(other, p))
		}, "link"},
		"a directory": {func(p string) error { return os.Mkdir(p, 0o700) }, "is a directory"},
		"a pipe":      {func(p string) error { return unix.Mkfifo(p, 0o600) }, "neither a file nor a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := c.make(filepath.Join(dir, recordName)); err != nil {
				t.Fatal(err)
			}
			r, err := readRecord(dir)
			if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), filepath.Join(dir, recordName)) {
				t.Errorf("read %v, error %v", r, err)
			}
		})
	}
}

// The table of codes of the law of calls.
func TestFinal(t *testing.T) {
	unknown := map[codes.Code]bool{codes.Canceled: true, codes.DeadlineExceeded: true, codes.Unavailable: true,
		codes.ResourceExhausted: true, codes.Aborted: true}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if got := isFinal(status.Error(code, "")); got == unknown[code] {
			t.Errorf("%s: final %v", code, got)
		}
	}
	if isFinal(errors.New("not of gRPC")) {
		t.Error("an error that isn't the driver's is final")
	}
}

func TestHide(t *testing.T) {
	const text = "hunter2 hunter e (x)"
	if got := hide(text, []string{"hunter", "e", "", "hunter2"}); got != "(secret) (secret) e (x)" {
		t.Errorf("%q", got)
	}
}

// Texts of drivers go to events and logs.
func TestBounded(t *testing.T) {
	if got := bounded("a\n\tb\x1b[31m\xff"); got != "a b [31m?" {
		t.Errorf("%q", got)
	}
	if got := bounded(strings.Repeat("x", 1<<20)); len(got) > maxText+3 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestCheckRegistration(t *testing.T) {
	for _, c := range []struct {
		name     string
		versions []string
		wrong    string
	}{
		{"csi.example.com", []string{"1.0.0"}, ""},
		{"CSI.Example.com", []string{"0.3.0", "1.13.0"}, ""},
		{"csi.example.com", nil, "version 1 is needed"},
		{"csi.example.com", []string{"2.0.0", "x"}, "version 1 is needed"},
		{"../x", []string{"1.0.0"}, "domain name"},
		{strings.Repeat("a", 64), []string{"1.0.0"}, "domain name"},
		{"", []string{"1.0.0"}, "domain name"},
	} {
		err := check(pluginwatch.Registration{Name: c.name, Versions: c.versions})
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%q %q: %v", c.name, c.versions, err)
		}
	}
}

func TestFacts(t *testing.T) {
	many := map[string]string{}
	for i := range 300 {
		many["example.com/k"+strings.Repeat("x", i%50)+string(rune('a'+i%26))+string(rune('a'+i/26))] = "v"
	}
	topology := func(s map[string]string) *spec.Topology { return &spec.Topology{Segments: s} }
	for name, c := range map[string]struct {
		info  *spec.NodeGetInfoResponse
		wrong string
		limit int32
	}{
		"least":            {&spec.NodeGetInfoResponse{NodeId: "n"}, "", 0},
		"a limit":          {&spec.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: 7}, "", 7},
		"a huge limit":     {&spec.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: 1 << 40}, "", 1<<31 - 1},
		"a negative limit": {&spec.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: -1}, "negative", 0},
		"no node":          {&spec.NodeGetInfoResponse{}, "node_id", 0},
		"a long node":      {&spec.NodeGetInfoResponse{NodeId: strings.Repeat("n", 257)}, "node_id", 0},
		"300 segments":     {&spec.NodeGetInfoResponse{NodeId: "n", AccessibleTopology: topology(many)}, "64 are allowed", 0},
		"a bad label": {&spec.NodeGetInfoResponse{NodeId: "n",
			AccessibleTopology: topology(map[string]string{"zone": "a b"})}, `segment "zone"`, 0},
		"a label": {&spec.NodeGetInfoResponse{NodeId: "n",
			AccessibleTopology: topology(map[string]string{"example.com/zone": "a"})}, "", 0},
	} {
		f, err := factsOf(driverName, c.info)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (f.Limit != c.limit || f.NodeID != "n" ||
			len(f.Topology) != len(c.info.GetAccessibleTopology().GetSegments())) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
