package probes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
	"github.com/deckhand-node/deckhand/internal/worker/probe"
)

// counts is what became of the tries.
type counts struct {
	ok, failed atomic.Int64
	once       sync.Once
	message    atomic.Value
}

func (c *counts) add(ok bool, message string) {
	if ok {
		c.ok.Add(1)
		return
	}
	c.failed.Add(1)
	c.once.Do(func() { c.message.Store(message) })
}

// first is the first failure's message.
func (c *counts) first() string {
	s, _ := c.message.Load().(string)
	return s
}

// floor does with system calls what an HTTP/1.1 request needs at the very least: one
// thread, one request after the other, evenly spread, the answer not looked into.
func (o Options) floor(address netip.AddrPort) func(context.Context, *counts) error {
	request := []byte("GET / HTTP/1.1\r\nHost: " + address.String() + "\r\nUser-Agent: kube-probe/1.36\r\nAccept: */*\r\nConnection: close\r\n\r\n")
	return func(ctx context.Context, count *counts) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		began := time.Now()
		for n := 1; ctx.Err() == nil; n++ {
			err := bare(address, request)
			count.add(err == nil, fmt.Sprint(err))
			time.Sleep(time.Until(began.Add(time.Duration(n) * o.Period / time.Duration(o.Count))))
		}
		return nil
	}
}

func bare(address netip.AddrPort, request []byte) (err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}); err != nil {
		return err
	}
	if _, err := unix.Write(fd, request); err != nil {
		return err
	}
	var answer [4096]byte
	if _, err := unix.Read(fd, answer[:]); err != nil {
		return err
	}
	return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// managed has deckhand's scheduler try one readiness probe of each of Count pods, as
// if all had been running before, evenly spread over the period.
func (o Options) managed(address netip.AddrPort, h probe.Handler) func(context.Context, *counts) error {
	return func(ctx context.Context, count *counts) error {
		var next atomic.Int64
		m := probe.New(probe.Options{
			Handler: h, Recorder: silence{}, Meter: meter{count}, Wake: func(types.UID) {}, Log: logr.Discard(),
			Spread: func(period time.Duration) time.Duration {
				return time.Duration(next.Add(1)-1) * period / time.Duration(o.Count)
			},
		})
		p := o.pod(address)
		for i := range o.Count {
			id := strconv.Itoa(i)
			ran := &pod.Observed{Containers: []pod.Container{{ID: id, Name: "web", State: pod.ContainerRunning, StartedAt: time.Now().Add(-time.Hour)}}}
			m.Want(types.UID(id), p, ran, address.Addr().String(), []pod.Probe{{Container: "web", ID: id, Kind: pod.ProbeReadiness}})
		}
		return m.Run(ctx)
	}
}

func (o Options) pod(address netip.AddrPort) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "web", Ports: []v1.ContainerPort{{Name: "http", ContainerPort: int32(address.Port())}},
			ReadinessProbe: &v1.Probe{
				TimeoutSeconds: 1, PeriodSeconds: int32(o.Period / time.Second), SuccessThreshold: 1, FailureThreshold: 3,
				ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/", Port: intstr.FromString("http"), Scheme: v1.URISchemeHTTP}},
			},
		}}},
	}
}

// silence takes events and forgets them.
type silence struct{}

func (silence) Event(*v1.Pod, pod.Event) {}

// meter counts tries.
type meter struct{ *counts }

func (m meter) Tried(_ *v1.Pod, _ string, _ pod.ProbeKind, state handler.State, _ time.Duration) {
	m.add(state == handler.Success, "the probe's state is "+string(state))
}

func (meter) Dropped(*v1.Pod, string, pod.ProbeKind) {}

// deckhand tries probes as deckhand does.
func deckhand() probe.Handler { return handler.New(handler.Config{Log: logr.Discard()}) }

// peer tries probes with net/http's client, as the kubelet does: each on a connection of its own.
type peer struct{ client *http.Client }

func netHTTP() probe.Handler {
	return peer{&http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}}
}

func (p peer) Probe(ctx context.Context, t handler.Target, _ *v1.Probe) handler.Outcome {
	url := fmt.Sprintf("http://%s:%d/", t.PodIP, t.Container.Ports[0].ContainerPort)
	if err := p.get(ctx, url); err != nil {
		return handler.Outcome{State: handler.Failure, Message: err.Error()}
	}
	return handler.Outcome{State: handler.Success}
}

func (p peer) get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "kube-probe/1.36")
	request.Header.Set("Accept", "*/*")
	answer, err := p.client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close())
}

// nothing is a probe that costs nothing.
type nothing struct{}

func (nothing) Probe(context.Context, handler.Target, *v1.Probe) handler.Outcome {
	return handler.Outcome{State: handler.Success}
}
