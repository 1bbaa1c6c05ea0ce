package effects

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// sandboxWorld is what the making of a sandbox meets. What it doesn't implement isn't to be asked.
type sandboxWorld struct {
	Runtime
	Facts
	Cgroups
	dnsErr, runErr error
	config         *runtimeapi.PodSandboxConfig
	events         []pod.Event
}

func (w *sandboxWorld) For(*v1.Pod) (*runtimeapi.DNSConfig, []pod.Event, error) {
	if w.dnsErr != nil {
		return nil, nil, w.dnsErr
	}
	return &runtimeapi.DNSConfig{Servers: []string{"10.0.0.1"}}, []pod.Event{{Reason: "DNSConfigForming"}}, nil
}

func (w *sandboxWorld) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	w.config = config
	return "sandbox", w.runErr
}

func (w *sandboxWorld) PodSandboxStatus(context.Context, string) (*runtimeapi.PodSandboxStatus, error) {
	return &runtimeapi.PodSandboxStatus{}, nil
}

func (w *sandboxWorld) CgroupParent(*v1.Pod) string  { return "" }
func (w *sandboxWorld) Event(_ *v1.Pod, e pod.Event) { w.events = append(w.events, e) }
func (w *sandboxWorld) SandboxStarted(bool)          {}
func (w *sandboxWorld) ContainerStarted(bool)        {}
func (w *sandboxWorld) Doubt(types.UID)              {}
func (w *sandboxWorld) runner() *Runner {
	return New(Config{Runtime: w, Facts: w, Cgroups: w, DNS: w, Meter: w, Recorder: w, Parallel: 1, Log: logr.Discard()})
}

func (w *sandboxWorld) create(ctx context.Context) pod.Result {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
	return w.runner().Do(ctx, p, nil, p.UID, pod.Action{Kind: pod.CreateSandbox})
}

// What is to be told of the pod's DNS is told once it has its sandbox, and not for each try.
func TestSandboxGetsDNS(t *testing.T) {
	w := &sandboxWorld{runErr: errors.New("no network")}
	if r := w.create(t.Context()); r.Failure == nil || len(w.events) > 0 {
		t.Fatalf("%v, told %v", r, w.events)
	}
	w.runErr = nil
	if r := w.create(t.Context()); r.Failure != nil {
		t.Fatal(r.Failure)
	}
	if s := w.config.GetDnsConfig().GetServers(); len(s) != 1 || s[0] != "10.0.0.1" {
		t.Errorf("the runtime was given the servers %v", s)
	}
	if len(w.events) != 1 || w.events[0].Reason != "DNSConfigForming" {
		t.Errorf("told %v", w.events)
	}
}

func TestNoSandboxWithoutDNS(t *testing.T) {
	w := &sandboxWorld{dnsErr: errors.New("no resolv.conf")}
	r := w.create(t.Context())
	if r.Failure == nil || r.Failure.Reason != "FailedCreatePodSandBox" || r.Failure.Message != "no resolv.conf" || w.config != nil {
		t.Errorf("got %v, made %v", r.Failure, w.config)
	}
	// A sandbox that is there has what it needs: its containers start.
	config, err := w.runner().sandboxConfig(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, 0)
	if err != nil || config.DnsConfig != nil {
		t.Errorf("got %v, %v", config, err)
	}
}
