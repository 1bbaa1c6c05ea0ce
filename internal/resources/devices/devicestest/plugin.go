// Package devicestest is a device plugin for tests: it implements the real protocol over a real socket.
package devicestest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	pluginregistration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/deckhand-node/deckhand/internal/kit/socket"
)

// Plugin is a device plugin that implements the real protocol over a real socket, and can be made to misbehave.
type Plugin struct {
	api.UnsafeDevicePluginServer
	t   testing.TB
	dir string
	// Resource is the resource that the plugin registers. The other fields determine its responses. While the plugin is
	// served, change them only with Will and Set.
	Resource string
	Options  *api.DevicePluginOptions
	Devices  []*api.Device
	// Preferred is the response of GetPreferredAllocation; with NoPreference, the response is empty. Answer returns the
	// response of Allocate for a container. Answers is the number of such responses in a call of Allocate; 0 means 1.
	Preferred    []string
	NoPreference bool
	Answer       func(ids []string) *api.ContainerAllocateResponse
	Answers      int
	// These errors are returned if they are set. Hangs makes Allocate wait until its caller gives up, and receives a
	// value when it starts to wait.
	OptionsErr, ListErr, AllocateErr, PrestartErr error
	Hangs                                         chan struct{}
	// Mute means that the plugin sends no lists of devices. Stuck makes the named method wait until its caller gives
	// up.
	Mute  bool
	Stuck string
	// Prestarted are the arguments of all calls of PreStartContainer, Asked the available devices in all calls of
	// GetPreferredAllocation.
	Prestarted, Asked [][]string

	mu        sync.Mutex
	changed   chan struct{} // closed when devices change
	allocated [][]string
	server    *grpc.Server
	served    sync.WaitGroup
}

// Device returns a device with this health and these NUMA nodes.
func Device(id, health string, nodes ...int64) *api.Device {
	d := &api.Device{ID: id, Health: health}
	for _, n := range nodes {
		if d.Topology == nil {
			d.Topology = &api.TopologyInfo{}
		}
		d.Topology.Nodes = append(d.Topology.Nodes, &api.NUMANode{ID: n})
	}
	return d
}

// Healthy returns healthy devices.
func Healthy(ids ...string) (list []*api.Device) {
	for _, id := range ids {
		list = append(list, Device(id, api.Healthy))
	}
	return list
}

// New serves a plugin with healthy devices until the test ends, or Die is called.
func New(t testing.TB, dir, resource string, ids ...string) *Plugin {
	t.Helper()
	f := &Plugin{t: t, dir: dir, Resource: resource, Devices: Healthy(ids...), changed: make(chan struct{}),
		Answer: answer, Options: &api.DevicePluginOptions{}}
	f.Serve()
	t.Cleanup(f.Die)
	return f
}

func (f *Plugin) endpoint() string { return filepath.Base(f.Resource) + ".sock" }

// listen creates its socket in a directory.
func (f *Plugin) listen(dir string) net.Listener {
	f.t.Helper()
	address, release, err := socket.Address(filepath.Join(dir, f.endpoint()))
	if err != nil {
		f.t.Fatal(err)
	}
	defer release()
	l, err := net.Listen("unix", address)
	if err != nil {
		f.t.Fatal(err)
	}
	return l
}

// Serve serves its socket, in place of an earlier one.
func (f *Plugin) Serve() {
	f.t.Helper()
	_ = os.Remove(filepath.Join(f.dir, f.endpoint()))
	l := f.listen(f.dir)
	f.server = grpc.NewServer()
	api.RegisterDevicePluginServer(f.server, f)
	server := f.server
	f.served.Go(func() { _ = server.Serve(l) })
}

// Die stops the plugin without a notification.
func (f *Plugin) Die() {
	f.server.Stop()
	f.served.Wait()
}

// Register registers at the manager's socket.
func (f *Plugin) Register(change ...func(*api.RegisterRequest)) error {
	f.t.Helper()
	c, err := grpc.NewClient("passthrough:///", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return socket.Dial(ctx, filepath.Join(f.dir, "kubelet.sock"))
		}))
	if err != nil {
		f.t.Fatal(err)
	}
	defer c.Close()
	q := &api.RegisterRequest{Version: api.Version, Endpoint: f.endpoint(), ResourceName: f.Resource}
	for _, change := range change {
		change(q)
	}
	_, err = api.NewRegistrationClient(c).Register(context.Background(), q)
	return err
}

// Announce makes the plugin discoverable by a socket in the directory plugins_registry, until the test ends.
func (f *Plugin) Announce(registry string) {
	f.t.Helper()
	l := f.listen(registry)
	server, served := grpc.NewServer(), make(chan struct{})
	pluginregistration.RegisterRegistrationServer(server, announcement{Plugin: f})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	f.t.Cleanup(func() { server.Stop(); <-served })
}

// announcement is the registration service at the socket that Announce creates.
type announcement struct {
	pluginregistration.UnsafeRegistrationServer
	*Plugin
}

// GetInfo implements pluginregistration.RegistrationServer.
func (a announcement) GetInfo(context.Context,
	*pluginregistration.InfoRequest) (*pluginregistration.PluginInfo, error) {
	return &pluginregistration.PluginInfo{Type: pluginregistration.DevicePlugin, Name: a.Resource,
		Endpoint: filepath.Join(a.dir, a.endpoint()), SupportedVersions: []string{api.Version}}, nil
}

// NotifyRegistrationStatus implements pluginregistration.RegistrationServer.
func (a announcement) NotifyRegistrationStatus(_ context.Context,
	s *pluginregistration.RegistrationStatus) (*pluginregistration.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		a.t.Errorf("%s wasn't registered: %s", a.Resource, s.Error)
	}
	return &pluginregistration.RegistrationStatusResponse{}, nil
}

// Will changes the plugin's responses from now on.
func (f *Plugin) Will(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// Set changes the plugin's devices, and sends them.
func (f *Plugin) Set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// stuck waits until the caller of a method named in Stuck gives up. The returned error may reach the caller before its
// own timeout does.
func (f *Plugin) stuck(ctx context.Context, call string) error {
	f.mu.Lock()
	stuck := f.Stuck == call
	f.mu.Unlock()
	if !stuck {
		return nil
	}
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// GetDevicePluginOptions implements api.DevicePluginServer.
func (f *Plugin) GetDevicePluginOptions(ctx context.Context, _ *api.Empty) (*api.DevicePluginOptions, error) {
	if err := f.stuck(ctx, "GetDevicePluginOptions"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Options, f.OptionsErr
}

// ListAndWatch implements api.DevicePluginServer.
func (f *Plugin) ListAndWatch(_ *api.Empty, s grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		f.mu.Lock()
		list, changed, mute, err := f.Devices, f.changed, f.Mute, f.ListErr
		f.mu.Unlock()
		if err != nil {
			return err
		}
		if !mute {
			if err := s.Send(&api.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return nil
		}
	}
}

// GetPreferredAllocation implements api.DevicePluginServer.
func (f *Plugin) GetPreferredAllocation(ctx context.Context,
	q *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	if err := f.stuck(ctx, "GetPreferredAllocation"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Asked = append(f.Asked, q.ContainerRequests[0].AvailableDeviceIDs)
	if f.NoPreference {
		return &api.PreferredAllocationResponse{}, nil
	}
	return &api.PreferredAllocationResponse{
		ContainerResponses: []*api.ContainerPreferredAllocationResponse{{DeviceIDs: f.Preferred}}}, nil
}

// Allocate implements api.DevicePluginServer.
func (f *Plugin) Allocate(ctx context.Context, q *api.AllocateRequest) (*api.AllocateResponse, error) {
	f.mu.Lock()
	f.allocated = append(f.allocated, q.ContainerRequests[0].DevicesIds)
	err, hangs, answers := f.AllocateErr, f.Hangs, max(f.Answers, 1)
	f.mu.Unlock()
	if hangs != nil {
		hangs <- struct{}{}
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	answer := &api.AllocateResponse{}
	for range answers {
		answer.ContainerResponses = append(answer.ContainerResponses, f.Answer(q.ContainerRequests[0].DevicesIds))
	}
	return answer, err
}

// PreStartContainer implements api.DevicePluginServer.
func (f *Plugin) PreStartContainer(ctx context.Context,
	q *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	if err := f.stuck(ctx, "PreStartContainer"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Prestarted = append(f.Prestarted, q.DevicesIds)
	return &api.PreStartContainerResponse{}, f.PrestartErr
}

// Told returns the devices of all Allocate calls.
func (f *Plugin) Told() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.allocated)
}

// answer is the default response for a container.
func answer(ids []string) *api.ContainerAllocateResponse {
	return &api.ContainerAllocateResponse{
		Envs: map[string]string{"DEVICES": ids[0]}, Annotations: map[string]string{"example.com/device": ids[0]},
		Mounts:     []*api.Mount{{ContainerPath: "/lib/gpu", HostPath: "/opt/gpu", ReadOnly: true}},
		Devices:    []*api.DeviceSpec{{ContainerPath: "/dev/gpu", HostPath: "/dev/" + ids[0], Permissions: "rw"}},
		CdiDevices: []*api.CDIDevice{{Name: "example.com/gpu=" + ids[0]}},
	}
}
