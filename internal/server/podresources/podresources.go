// Package podresources answers what pods have of the node, to monitoring of devices and the like, over a socket that
// only root can use: the kubelet's pod resources API (KEP-606,
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/). No container is assigned
// CPUs or memory of its own in this build, so it tells which pods and containers there are, and their devices.
package podresources

import (
	"context"
	"net"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// errTooMany is the error that a kubelet answers with, which clients compare with theirs.
var errTooMany = status.Error(codes.ResourceExhausted, "rejected by rate limit")

// Limits, as documented.
const (
	perSecond, burst = 100, 10
	maxAnswer        = 16 << 20
)

// Config says what a Server tells, and where.
type Config struct {
	// Dir is the directory of the socket, which nobody but root can enter or change.
	Dir      string
	Statuses *podstatus.Store
	Devices  Devices
	// Ready is closed once it is known what runs: nobody is answered before.
	Ready <-chan struct{}
	Meter Meter
	Log   logr.Logger
}

// Devices knows the devices of containers. What it returns isn't changed.
type Devices interface {
	// Has is what each container of a pod has.
	Has(types.UID) map[string][]*api.ContainerDevices
	// Healthy are those that containers can have.
	Healthy() []*api.ContainerDevices
}

// Meter counts calls of a version of the API: List, Get or GetAllocatableResources.
type Meter interface {
	Asked(version, call string, err error)
}

// Socket is the path of the socket in a directory.
func Socket(dir string) string { return filepath.Join(dir, "kubelet.sock") }

// Server serves the API.
type Server struct{ conf Config }

// New returns a server that Run runs.
func New(c Config) *Server { return &Server{c} }

// again is how long after an attempt the socket is tried again.
const again = 10 * time.Second

// Run makes the socket in place of an earlier agent's, and serves it until ctx ends. While there is no space for it,
// pods run all the same.
func (s *Server) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.conf.Ready:
	}
	for told := false; ; told = true {
		listener, err := socket.Listen(Socket(s.conf.Dir))
		if err == nil {
			return s.serve(ctx, listener)
		}
		if !told {
			s.conf.Log.Error(err, "Nobody can ask for pod resources until that is corrected")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

func (s *Server) serve(ctx context.Context, listener net.Listener) error {
	limit := rate.NewLimiter(perSecond, burst)
	server := grpc.NewServer(grpc.MaxSendMsgSize(maxAnswer),
		grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (any, error) {
			if !limit.Allow() {
				return nil, errTooMany
			}
			return handle(ctx, request)
		}))
	api.RegisterPodResourcesListerServer(server, lister{Server: s})
	v1alpha1.RegisterPodResourcesListerServer(server, oldLister{Server: s})
	defer context.AfterFunc(ctx, server.Stop)() // no call takes long
	err := server.Serve(listener)
	server.Stop() // waits for calls under way
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// containers are the names of those of a pod that go on running: no init containers but sidecars.
func containers(p *v1.Pod) (names []string) {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; ptr.Deref(c.RestartPolicy, "") == v1.ContainerRestartPolicyAlways {
			names = append(names, c.Name)
		}
	}
	for i := range p.Spec.Containers {
		names = append(names, p.Spec.Containers[i].Name)
	}
	return names
}

// active are the pods that haven't ended.
func (s *Server) active() (pods []*v1.Pod) {
	for _, e := range s.conf.Statuses.List() {
		if phase := e.Pod.Status.Phase; phase != v1.PodSucceeded && phase != v1.PodFailed {
			pods = append(pods, e.Pod)
		}
	}
	return pods
}

// lister is version v1.
type lister struct {
	api.UnsafePodResourcesListerServer
	*Server
}

func (s *Server) resources(p *v1.Pod) *api.PodResources {
	r, has := &api.PodResources{Name: p.Name, Namespace: p.Namespace}, s.conf.Devices.Has(p.UID)
	for _, name := range containers(p) {
		r.Containers = append(r.Containers, &api.ContainerResources{Name: name, Devices: has[name]})
	}
	return r
}

// List implements api.PodResourcesListerServer.
func (l lister) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	l.conf.Meter.Asked("v1", "List", nil)
	answer := &api.ListPodResourcesResponse{}
	for _, p := range l.active() {
		answer.PodResources = append(answer.PodResources, l.resources(p))
	}
	return answer, nil
}

// Get implements api.PodResourcesListerServer.
func (l lister) Get(_ context.Context, r *api.GetPodResourcesRequest) (answer *api.GetPodResourcesResponse, err error) {
	defer func() { l.conf.Meter.Asked("v1", "Get", err) }()
	var found *v1.Pod
	for _, e := range l.conf.Statuses.Named(r.GetPodNamespace(), r.GetPodName()) {
		if found == nil || found.DeletionTimestamp != nil {
			found = e.Pod
		}
	}
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "pod %q not found in namespace %q on this node", r.GetPodName(),
			r.GetPodNamespace())
	}
	return &api.GetPodResourcesResponse{PodResources: l.resources(found)}, nil
}

// GetAllocatableResources implements api.PodResourcesListerServer: of what is assigned to containers one by one there
// are devices.
func (l lister) GetAllocatableResources(context.Context,
	*api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	l.conf.Meter.Asked("v1", "GetAllocatableResources", nil)
	return &api.AllocatableResourcesResponse{Devices: l.conf.Devices.Healthy()}, nil
}

// oldLister is version v1alpha1, which only lists.
type oldLister struct {
	v1alpha1.UnsafePodResourcesListerServer
	*Server
}

// List implements v1alpha1.PodResourcesListerServer.
func (l oldLister) List(context.Context,
	*v1alpha1.ListPodResourcesRequest) (*v1alpha1.ListPodResourcesResponse, error) {
	l.conf.Meter.Asked("v1alpha1", "List", nil)
	answer := &v1alpha1.ListPodResourcesResponse{}
	for _, p := range l.active() {
		r := &v1alpha1.PodResources{Name: p.Name, Namespace: p.Namespace}
		for _, c := range l.resources(p).Containers {
			old := &v1alpha1.ContainerResources{Name: c.Name}
			for _, d := range c.Devices {
				old.Devices = append(old.Devices,
					&v1alpha1.ContainerDevices{ResourceName: d.ResourceName, DeviceIds: d.DeviceIds})
			}
			r.Containers = append(r.Containers, old)
		}
		answer.PodResources = append(answer.PodResources, r)
	}
	return answer, nil
}
