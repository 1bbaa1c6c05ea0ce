package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// rig is a driver that runs, with a client.
type rig struct {
	*driver.Process
	t      *testing.T
	ctx    context.Context
	node   csi.NodeClient
	volume string
	target string
}

func newRig(t *testing.T, capabilities ...string) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts and needs root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r := &rig{Process: driver.Start(t, driver.Options{Capabilities: capabilities}), t: t, ctx: ctx,
		volume: "csi-" + strings.Repeat("0a", 32)}
	r.target = filepath.Join(r.Dir, "mount")
	r.node = csi.NewNodeClient(dial(t, r.Endpoint))
	return r
}

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

var writer = &csi.VolumeCapability{
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
}

func (r *rig) publish(ctx context.Context, attributes map[string]string) error {
	_, err := r.node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: r.volume, TargetPath: r.target,
		VolumeCapability: writer, VolumeContext: attributes, Secrets: map[string]string{"key": "secret"}})
	return err
}

func (r *rig) unpublish() error {
	_, err := r.node.NodeUnpublishVolume(r.ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: r.volume, TargetPath: r.target})
	return err
}

func (r *rig) add(rule driver.Rule) int {
	r.t.Helper()
	id, err := r.Add(r.ctx, rule)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *rig) await(what string, wanted func(driver.State) bool) driver.State {
	r.t.Helper()
	s, err := r.Await(r.ctx, wanted)
	if err != nil {
		r.t.Fatalf("%s: %v: %+v", what, err, s)
	}
	return s
}

func held(n int) func(driver.State) bool {
	return func(s driver.State) bool {
		held := 0
		for _, c := range s.Calls {
			if c.Held {
				held++
			}
		}
		return held == n
	}
}

// TestInline publishes, republishes and unpublishes an inline volume.
func TestInline(t *testing.T) {
	r := newRig(t)
	read := func() map[string]string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(r.target, "volume_context"))
		attributes := map[string]string{}
		if err := errors.Join(err, json.Unmarshal(data, &attributes)); err != nil {
			t.Fatal(err)
		}
		return attributes
	}
	for _, token := range []string{"one", "two"} {
		if err := r.publish(r.ctx, map[string]string{"csi.storage.k8s.io/pod.name": "web", tokens: token}); err != nil {
			t.Fatal(err)
		}
		if got := read(); got["csi.storage.k8s.io/pod.name"] != "web" || got[tokens] != token {
			t.Errorf("volume_context has %v", got)
		}
	}
	if got := driver.Mounts(t, r.Dir); !slices.Equal(got, []string{r.target}) {
		t.Errorf("mounted: %v", got)
	}
	if err := errors.Join(r.unpublish()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(r.target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target after Unpublish: %v", err)
	}
	r.CheckLaw(t)
	s := r.await("three calls", func(s driver.State) bool { return len(s.Calls) == 3 && s.Calls[2].Code == "OK" })
	secrets := map[string]string{}
	if err := s.Calls[0].Decode("secrets", &secrets); err != nil || secrets["key"] != "secret" {
		t.Errorf("the log has the secrets %v, %v", secrets, err)
	}
}

// TestFaults lets rules act on calls.
func TestFaults(t *testing.T) {
	r := newRig(t)
	expect := func(what string, err error, code codes.Code, mounts int) {
		t.Helper()
		if status.Code(err) != code || len(driver.Mounts(t, r.Dir)) != mounts {
			t.Errorf("%s: %v with mounts %v, expected %s and %d", what, err, driver.Mounts(t, r.Dir), code, mounts)
		}
	}
	r.add(driver.Rule{Method: "NodePublishVolume", Do: driver.Fail, Code: codes.Unavailable, Nth: 2})
	r.add(driver.Rule{Method: "NodePublishVolume", Do: driver.Fail, Code: codes.ResourceExhausted, After: true})
	expect("failed after its work", r.publish(r.ctx, nil), codes.ResourceExhausted, 1)
	expect("failed before its work", r.publish(r.ctx, nil), codes.Unavailable, 1)
	expect("unpublished", r.unpublish(), codes.OK, 0)
	r.add(driver.Rule{Method: "NodePublishVolume", Do: driver.Skip})
	expect("skipped", r.publish(r.ctx, nil), codes.OK, 0)
	r.add(driver.Rule{Method: "NodePublishVolume", Do: driver.NoMount})
	expect("without a mount", r.publish(r.ctx, nil), codes.OK, 0)
	if _, err := os.Stat(r.target); err != nil {
		t.Error(err)
	}
	r.add(driver.Rule{Method: "NodeUnpublishVolume", Do: driver.Cut})
	expect("cut", r.unpublish(), codes.Unavailable, 0)
	expect("unpublished", r.unpublish(), codes.OK, 0)
	r.CheckLaw(t)
}

// TestHold: a held call whose caller leaves goes on, as in a driver that hangs, and other calls for the target fail
// with Aborted until it has ended.
func TestHold(t *testing.T) {
	r := newRig(t)
	rule := r.add(driver.Rule{Method: "NodePublishVolume", Hold: true})
	leaving, leave := context.WithCancel(r.ctx)
	result := make(chan error, 1)
	go func() { result <- r.publish(leaving, nil) }()
	r.await("a held call", held(1))
	leave()
	if err := <-result; status.Code(err) != codes.Canceled {
		t.Errorf("the canceled call: %v", err)
	}
	r.await("the caller left", func(s driver.State) bool { return s.Calls[0].Left })
	if err := r.unpublish(); status.Code(err) != codes.Aborted {
		t.Errorf("Unpublish while Publish hangs: %v", err)
	}
	if err := r.Release(r.ctx, rule); err != nil {
		t.Fatal(err)
	}
	r.await("the held call ends", func(s driver.State) bool { return s.Calls[0].Code == "OK" })
	if err := r.unpublish(); err != nil || len(driver.Mounts(t, r.Dir)) != 0 {
		t.Errorf("Unpublish: %v, mounted: %v", err, driver.Mounts(t, r.Dir))
	}
	r.CheckLaw(t)
}

// TestRestart: calls and the law survive a driver that is killed in a call.
func TestRestart(t *testing.T) {
	r := newRig(t)
	r.add(driver.Rule{Method: "NodePublishVolume", Do: driver.Kill, After: true})
	if err := r.publish(r.ctx, nil); status.Code(err) != codes.Unavailable {
		t.Errorf("the call that kills: %v", err)
	}
	<-r.Exited()
	r.Launch(t)
	wait := grpc.WaitForReady(true)
	request := &csi.NodePublishVolumeRequest{VolumeId: r.volume, TargetPath: r.target, VolumeCapability: writer}
	if _, err := r.node.NodePublishVolume(r.ctx, request, wait); err != nil {
		t.Fatal(err)
	}
	r.Kill()
	r.Launch(t)
	request.Readonly = true
	if _, err := r.node.NodePublishVolume(r.ctx, request, wait); err != nil {
		t.Fatal(err)
	}
	s := r.await("all calls", func(s driver.State) bool { return len(s.Calls) == 3 && s.Calls[2].Code == "OK" })
	if s.Calls[0].Code != killed || len(s.Violations) != 1 || s.Violations[0].Rule != "publish-other-arguments" ||
		s.Violations[0].Seq != 3 {
		t.Errorf("after two restarts: %+v", s)
	}
	if err := r.unpublish(); err != nil {
		t.Error(err)
	}
}

// TestRegistration registers the driver as the node does.
func TestRegistration(t *testing.T) {
	r := newRig(t)
	r.Stop()
	r.Registration = filepath.Join(r.Dir, "reg.sock")
	r.Launch(t)
	node := registration.NewRegistrationClient(dial(t, r.Registration))
	info, err := node.GetInfo(r.ctx, &registration.InfoRequest{})
	if err != nil || info.GetType() != registration.CSIPlugin || info.GetName() != r.Name ||
		info.GetEndpoint() != r.Endpoint || !slices.Equal(info.GetSupportedVersions(), []string{"1.0.0"}) {
		t.Errorf("GetInfo: %v, %v", info, err)
	}
	if _, err := node.NotifyRegistrationStatus(r.ctx, &registration.RegistrationStatus{Error: "a reason"}); err != nil {
		t.Error(err)
	}
	s := r.await("a status", func(s driver.State) bool { return len(s.Registrations) == 1 })
	if s.Registrations[0].Registered || s.Registrations[0].Error != "a reason" || s.Infos != 1 {
		t.Errorf("the driver noted %+v", s)
	}
}

// TestSidecars: the program registers another driver, and passes calls on to a driver elsewhere.
func TestSidecars(t *testing.T) {
	r := newRig(t)
	command := func(args ...string) (stdout io.Reader) {
		cmd := exec.Command(driver.Build(t), args...)
		cmd.Stderr = os.Stderr
		_, err := cmd.StdinPipe() // open until Wait
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
				t.Errorf("%v: %v", args, err)
			}
		})
		return out
	}
	wait := grpc.WaitForReady(true)
	command("registrar", "--csi-address", r.Endpoint, "--kubelet-registration-path", "/p/csi.sock", "--v=5",
		"--plugin-registration-path", r.Dir)
	node := registration.NewRegistrationClient(dial(t, filepath.Join(r.Dir, r.Name+"-reg.sock")))
	info, err := node.GetInfo(r.ctx, &registration.InfoRequest{}, wait)
	if err != nil || info.GetName() != r.Name || info.GetEndpoint() != "/p/csi.sock" {
		t.Errorf("GetInfo of the registrar: %v, %v", info, err)
	}

	probe := func() int {
		w := httptest.NewRecorder()
		health(csi.NewIdentityClient(dial(t, r.Endpoint))).ServeHTTP(w, httptest.NewRequestWithContext(r.ctx, "GET", "/healthz", nil))
		return w.Code
	}
	if code := probe(); code != http.StatusOK {
		t.Errorf("the health of a driver that runs: %d", code)
	}

	front, back := filepath.Join(r.Dir, "front.sock"), filepath.Join(r.Dir, "back.sock")
	stdout := command("--endpoint", front, "--proxy-endpoint", "unix://"+back, "-v=5", "--attended")
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("the proxy isn't ready: %q, %v", line, err)
	}
	// The driver elsewhere: it connects to the proxy, and serves its connection.
	elsewhere := grpc.NewServer()
	t.Cleanup(elsewhere.Stop)
	csi.RegisterIdentityServer(elsewhere, &identity{config: config{name: "elsewhere"}})
	conn, err := net.Dial("unix", back)
	if err != nil {
		t.Fatal(err)
	}
	conns := make(dialed, 1)
	conns <- conn
	go func() { _ = elsewhere.Serve(conns) }() // until Stop
	plugin, err := csi.NewIdentityClient(dial(t, front)).GetPluginInfo(r.ctx, &csi.GetPluginInfoRequest{}, wait)
	if err != nil || plugin.GetName() != "elsewhere" {
		t.Errorf("GetPluginInfo by the proxy: %v, %v", plugin, err)
	}
	if r.Kill(); probe() != http.StatusInternalServerError {
		t.Error("a driver that is gone is healthy")
	}
}

// dialed is a listener of connections that were dialed.
type dialed chan net.Conn

func (d dialed) Accept() (net.Conn, error) {
	if c, ok := <-d; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (d dialed) Close() error   { close(d); return nil }
func (d dialed) Addr() net.Addr { return address("dialed") }

// TestPersistent stages and publishes a directory: its files outlive it, its group is that of the request.
func TestPersistent(t *testing.T) {
	r := newRig(t, "STAGE_UNSTAGE_VOLUME", "VOLUME_MOUNT_GROUP")
	staging, outside := filepath.Join(r.Dir, "staging"), t.TempDir()
	if err := os.Mkdir(staging, 0o755); err != nil {
		t.Fatal(err)
	}
	grouped := &csi.VolumeCapability{AccessMode: writer.GetAccessMode(), AccessType: &csi.VolumeCapability_Mount{
		Mount: &csi.VolumeCapability_MountVolume{VolumeMountGroup: "4321"}}}
	for _, readOnly := range []bool{false, true} {
		if _, err := r.node.NodeStageVolume(r.ctx, &csi.NodeStageVolumeRequest{VolumeId: "a/volume",
			StagingTargetPath: staging, VolumeCapability: grouped}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.node.NodePublishVolume(r.ctx, &csi.NodePublishVolumeRequest{VolumeId: "a/volume", TargetPath: r.target,
			StagingTargetPath: staging, VolumeCapability: grouped, Readonly: readOnly}); err != nil {
			t.Fatal(err)
		}
		var info unix.Stat_t
		if err := unix.Stat(r.target, &info); err != nil || info.Gid != 4321 || info.Mode&0o2770 != 0o2770 {
			t.Errorf("the volume has group %d, mode %o, %v", info.Gid, info.Mode, err)
		}
		file := filepath.Join(r.target, "file")
		if readOnly {
			if err := os.WriteFile(file, nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("written to a read-only volume: %v", err)
			}
			if data, err := os.ReadFile(file); string(data) != "kept" {
				t.Errorf("the file has %q, %v", data, err)
			}
		} else if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
			t.Error(err)
		}
		_, err := r.node.NodeUnpublishVolume(r.ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "a/volume",
			TargetPath: r.target})
		_, err2 := r.node.NodeUnstageVolume(r.ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "a/volume",
			StagingTargetPath: staging})
		if err := errors.Join(err, err2); err != nil || len(driver.Mounts(t, r.Dir)) > 0 {
			t.Errorf("undone: %v, mounts %v", err, driver.Mounts(t, r.Dir))
		}
	}
	r.CheckLaw(t)
	r.target = filepath.Join(outside, "mount")
	if err := r.publish(r.ctx, nil); status.Code(err) != codes.Internal || len(driver.Mounts(t, outside)) > 0 {
		t.Errorf("a target outside the driver's directories: %v, mounts %v", err, driver.Mounts(t, outside))
	}
}

// TestHostPath: the program understands the flags of Kubernetes' manifests for csi-driver-host-path, and logs calls as its
// specs read them.
func TestHostPath(t *testing.T) {
	c, err := parse([]string{"--drivername=mock.storage.k8s.io", "--nodeid=here", "--endpoint=/csi/csi.sock", "--statedir=/tmp/data",
		"-v=5", "--enable-attach", "--enable-topology", "--attach-limit", "2", "--node-expand-required=true",
		"--check-volume-lifecycle=true", "--enable-controller-modify-volume=true", "--accepted-mutable-parameter-names=a"})
	if err != nil || c.name != "mock.storage.k8s.io" || c.endpoint != "/csi/csi.sock" || !c.attach || c.maxVolumes != 2 ||
		c.segments().GetSegments()["topology.hostpath.csi/node"] != "here" || !c.can(csi.NodeServiceCapability_RPC_EXPAND_VOLUME) {
		t.Errorf("%+v, %v", c, err)
	}

	var log bytes.Buffer
	req := &csi.NodePublishVolumeRequest{VolumeContext: map[string]string{"a": "b"}, Secrets: map[string]string{"key": "hidden"}}
	logCall(&log, "/csi.v1.Node/NodePublishVolume", req, status.Error(codes.NotFound, "gone"))
	line, ok := strings.CutPrefix(log.String(), "gRPCCall: ")
	var call struct {
		Method  string
		Request struct {
			VolumeContext map[string]string `json:"volume_context"`
			Secrets       map[string]string `json:"secrets"`
		}
		FullError struct {
			Code codes.Code `json:"code"`
		}
	}
	if err := json.Unmarshal([]byte(line), &call); err != nil || !ok || call.Method != "/csi.v1.Node/NodePublishVolume" ||
		call.Request.VolumeContext["a"] != "b" || call.Request.Secrets["key"] == "" || call.FullError.Code != codes.NotFound {
		t.Errorf("the log has %s (%+v, %v)", &log, call, err)
	}
	if strings.Contains(line, "hidden") || req.GetSecrets()["key"] != "hidden" {
		t.Errorf("the log has %s, the request %v", &log, req)
	}
}
