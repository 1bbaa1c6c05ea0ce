package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/deckhand-node/deckhand/internal/agent"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/configtest"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(mortalDir); dir != "" {
		os.Exit(runMortal(dir))
	}
	// Volumes are mounted for real, of which nothing may be left on the host.
	// cri-client leaves its connection open when the runtime goes away while it
	// connects, which these tests have happen on purpose.
	goleak.VerifyTestMain(inNamespace{m}, goleak.IgnoreAnyFunction("google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run"),
		goleak.IgnoreAnyFunction("google.golang.org/grpc.(*addrConn).resetTransportAndUnlock"))
}

// inNamespace runs tests in a mount namespace of their own.
type inNamespace struct{ *testing.M }

func (m inNamespace) Run() int {
	return mounttest.Main(func() int { return mounttest.Run(m.M) })
}

const image = "example.com/app:1"

// rig is the composed agent on an in-memory runtime, with everything it makes in
// a directory and a cgroup of the test's own. The agent can be started anew on what
// is there.
type rig struct {
	*memcri.Server
	t    *testing.T
	dir  string
	cfg  *config.Config
	stop func()
	// options are for the next agent, beside its log.
	options agent.Options
	// between stands between parts of the next agent.
	between agent.Between
	// log takes in what agents log; the zero value is nobody, or the test's own log.
	log logr.Logger
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := prepareRig(t, "")
	if err := r.Start(r.path("cri.sock")); err != nil {
		t.Fatal(err)
	}
	return r
}

// prepareRig is a rig whose runtime doesn't serve yet, with more lines of configuration.
func prepareRig(t *testing.T, settings string) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("not root: the agent makes cgroups; run the tests as root")
	}
	dir, err := os.MkdirTemp("", "dh") // t.TempDir's path may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, stop: func() {}}
	for _, sub := range []string{"manifests", "logs", "links"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if r.Server, err = memcri.New(memcri.Options{Images: []string{image}, WriteLogs: true, CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}); err != nil {
		t.Fatal(err)
	}
	r.configure(settings)
	t.Cleanup(func() {
		r.stop()
		r.Close()
		r.cleanUp()
	})
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) configure(settings string) {
	r.t.Helper()
	r.write(settings)
	var err error
	if r.cfg, err = loadConfig(r.dir); err != nil {
		r.t.Fatal(err)
	}
}

// write writes the configuration file.
func (r *rig) write(settings string) {
	r.t.Helper()
	if err := configtest.SparesHost(settings); err != nil {
		r.t.Fatal(err)
	}
	text := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
healthzPort: 0
readOnlyPort: 0
cgroupDriver: cgroupfs
cgroupRoot: /%s
podLogsDir: %s
podCIDR: 10.88.0.0/16
%s`, filepath.Base(r.dir), r.path("logs"), settings)
	if err := os.WriteFile(r.path("config.yaml"), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// loadConfig reads the configuration of the agent that has everything in this directory.
func loadConfig(dir string) (*config.Config, error) {
	path := func(name string) string { return filepath.Join(dir, name) }
	set := flags.New(config.DefaultRootDir)
	fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	set.AddTo(fs)
	args := []string{"--config", path("config.yaml"), "--root-dir", path("root"), "--cert-dir", path("pki"), "--pod-manifest-path", path("manifests"),
		"--container-runtime-endpoint", "unix://" + path("cri.sock"), "--container-log-links-dir", path("links"), "--hostname-override", "n", "--node-ip", "192.0.2.1"}
	if _, err := os.Stat(path("kubeconfig")); err == nil {
		args = append(args, "--kubeconfig", path("kubeconfig"))
	}
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	return config.Load(context.Background(), set)
}

// cleanUp removes what the agent made on the host. It starts no process: that
// would hold the lock of another test's root directory for a moment.
func (r *rig) cleanUp() {
	var dirs []string
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		found, err := filepath.Glob(pattern + filepath.Base(r.dir))
		if err != nil {
			r.t.Error(err)
		}
		for _, top := range found {
			_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
		}
	}
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.t.Error(err)
		}
	}
	left, err := mounts.List(r.dir) // of a test that failed
	if err != nil {
		r.t.Error(err)
	}
	for _, m := range left {
		if err := unix.Unmount(m.Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			r.t.Error(err)
		}
	}
	if err := os.RemoveAll(r.dir); err != nil {
		r.t.Error(err)
	}
}

// up starts an agent; r.stop ends it and waits for that.
func (r *rig) up() {
	r.t.Helper()
	r.options.Log = r.log
	if testing.Verbose() && r.log.GetSink() == nil {
		r.options.Log = testr.NewWithOptions(r.t, testr.Options{Verbosity: 3, LogTimestamp: true})
	}
	a, err := agent.NewBetween(r.cfg, r.options, r.between)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	r.stop = func() {
		r.stop = func() {}
		cancel()
		begun := time.Now()
		if err := <-done; err != nil {
			r.t.Errorf("the agent ended: %v", err)
		}
		if took := time.Since(begun); took > 10*time.Second {
			r.t.Errorf("the agent took %s to stop", took)
		}
	}
}

func (r *rig) restart() {
	r.t.Helper()
	r.stop()
	r.up()
}

// want has the manifest of a pod in the directory: a document of spec lines, one
// level in.
func (r *rig) want(name, spec string) {
	r.t.Helper()
	r.wantAnnotated(name, "", spec)
}

func (r *rig) wantAnnotated(name, annotations, spec string) {
	r.t.Helper()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + ", annotations: {" + annotations + "}}\nspec:\n" + strings.ReplaceAll(spec, "IMAGE", image)
	staged := r.path("staged")
	if err := errors.Join(os.WriteFile(staged, []byte(text), 0o644), os.Rename(staged, r.path("manifests/"+name+".yaml"))); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) unwant(name string) {
	r.t.Helper()
	if err := os.Remove(r.path("manifests/" + name + ".yaml")); err != nil {
		r.t.Fatal(err)
	}
}

// await waits until the runtime's side looks right; problem says what isn't.
func (r *rig) await(what string, problem func() string) {
	r.t.Helper()
	deadline := time.Now().Add(40 * time.Second)
	for {
		p := problem()
		if p == "" {
			break
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: still not so: %s\n%s", what, p, r.describe())
		}
		time.Sleep(2 * time.Millisecond) // the runtime has no event for all of this
	}
	if v := r.Violations(); len(v) > 0 {
		r.t.Fatalf("%s: %v", what, v)
	}
}

// running reports what keeps exactly these containers ("pod/container") from running.
func (r *rig) running(want ...string) func() string {
	slices.Sort(want)
	return func() string {
		got := []string{}
		for _, c := range r.Containers() {
			if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
				got = append(got, nameOf(c))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("%v run, wanted are %v", got, want)
		}
		return ""
	}
}

// nothing reports what of a pod the runtime still has, or of all pods if there is no name.
func (r *rig) nothing(podName string) func() string {
	return func() string {
		for _, sb := range r.Sandboxes() {
			if podName == "" || sb.GetMetadata().GetName() == podName+"-n" {
				return "there is sandbox " + sb.Id
			}
		}
		for _, c := range r.Containers() {
			if podName == "" || strings.HasPrefix(nameOf(c), podName+"/") {
				return "there is container " + c.Id
			}
		}
		return ""
	}
}

// newest returns the newest instance of "pod/container", or nil.
func (r *rig) newest(name string) (newest *runtimeapi.ContainerStatus) {
	for _, c := range r.Containers() {
		if nameOf(c) == name && (newest == nil || c.Metadata.Attempt > newest.Metadata.Attempt) {
			newest = c
		}
	}
	return newest
}

func (r *rig) describe() string {
	var b strings.Builder
	for _, s := range r.Sandboxes() {
		fmt.Fprintf(&b, "sandbox %s #%d %s\n", s.Metadata.Name, s.Metadata.Attempt, s.State)
	}
	for _, c := range r.Containers() {
		fmt.Fprintf(&b, "container %s #%d %s %d %s\n", nameOf(c), c.Metadata.Attempt, c.State, c.ExitCode, c.Reason)
	}
	return b.String()
}

func nameOf(c *runtimeapi.ContainerStatus) string {
	return strings.TrimSuffix(c.Labels[kubelettypes.KubernetesPodNameLabel], "-n") + "/" + c.Labels[kubelettypes.KubernetesContainerNameLabel]
}

// forgetAll lets the runtime lose all its records.
func (r *rig) forgetAll(t *testing.T) {
	t.Helper()
	for _, sb := range r.Sandboxes() {
		if _, err := r.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sb.Id}); err != nil {
			t.Fatal(err)
		}
	}
}
