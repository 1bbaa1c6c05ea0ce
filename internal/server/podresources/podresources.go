// Package podresources serves the kubelet's pod resources API (KEP-606,
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/) to monitoring agents,
// over a socket that only root can use. It reports pods, their containers, devices and exclusive CPUs, but no memory:
// this build assigns none.
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
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// errTooMany is the same error as the kubelet's, because clients compare the message.
var errTooMany = status.Error(codes.ResourceExhausted, "rejected by rate limit")

// The API's documented limits: calls per second, and calls in a burst.
const (
	perSecond, burst = 100, 10
	maxAnswer        = 16 << 20
)

// Config configures a Server.
type Config struct {
	// Dir is the directory of the socket. Only root can enter or change it.
	Dir      string
	Statuses *podstatus.Store
	Devices  Devices
	CPUs     CPUs
	// Ready is closed once the agent has the list of running pods. The server creates the socket after that.
	Ready <-chan struct{}
	Meter Meter
	Log   logr.Logger
}

// Devices provides the devices of containers. Callers must not change the results.
type Devices interface {
	// Has returns the devices that are allocated to a pod, by container name.
	Has(types.UID) map[string][]*api.ContainerDevices
	// Healthy returns the devices that can be allocated to containers.
	Healthy() []*api.ContainerDevices
}

// CPUs provides the CPUs that containers have to themselves.
type CPUs interface {
	// Own returns the CPUs of a container; none if it shares CPUs.
	Own(pod types.UID, container string) cpuset.CPUSet
	// Allocatable returns the CPUs that containers can have to themselves.
	Allocatable() cpuset.CPUSet
}

func ids(set cpuset.CPUSet) (list []int64) {
	for _, id := range set.List() {
		list = append(list, int64(id))
	}
	return list
}

// Meter counts calls, by version of the API and by call: List, Get or GetAllocatableResources.
type Meter interface {
	Asked(version, call string, err error)
}

// Socket returns the path of the socket in a directory.
func Socket(dir string) string { return filepath.Join(dir, "kubelet.sock") }

// Server serves the API.
type Server struct{ conf Config }

// New returns a server; Run runs it.
func New(c Config) *Server { return &Server{c} }

// again is the delay between attempts to create the socket.
const again = 10 * time.Second

// Run replaces the socket of an earlier agent, and serves it until ctx ends. If the socket can't be created, it
// retries; pods run meanwhile.
func (s *Server) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.conf.Ready:
	}
	for reported := false; ; reported = true {
		listener, err := socket.Listen(Socket(s.conf.Dir))
		if err == nil {
			return s.serve(ctx, listener)
		}
		if !reported {
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
	server.Stop() // waits for calls in flight
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// active returns the pods that haven't ended.
func (s *Server) active() (pods []*v1.Pod) {
	for _, e := range s.conf.Statuses.List() {
		if phase := e.Pod.Status.Phase; phase != v1.PodSucceeded && phase != v1.PodFailed {
			pods = append(pods, e.Pod)
		}
	}
	return pods
}

// lister implements version v1.
type lister struct {
	api.UnsafePodResourcesListerServer
	*Server
}

func (s *Server) resources(p *v1.Pod) *api.PodResources {
	r, has := &api.PodResources{Name: p.Name, Namespace: p.Namespace}, s.conf.Devices.Has(p.UID)
	for _, c := range pod.LongRunning(p) {
		r.Containers = append(r.Containers, &api.ContainerResources{Name: c.Name, Devices: has[c.Name],
			CpuIds: ids(s.conf.CPUs.Own(p.UID, c.Name))})
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

// GetAllocatableResources implements api.PodResourcesListerServer.
func (l lister) GetAllocatableResources(context.Context,
	*api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	l.conf.Meter.Asked("v1", "GetAllocatableResources", nil)
	return &api.AllocatableResourcesResponse{Devices: l.conf.Devices.Healthy(),
		CpuIds: ids(l.conf.CPUs.Allocatable())}, nil
}

// oldLister implements version v1alpha1, which has only List.
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
