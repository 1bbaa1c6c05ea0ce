package env_test

import (
	"context"
	"fmt"
	"io/fs"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
)

// world is all objects and env files there are, by "namespace/name" or "volume/path".
type world struct {
	configMaps map[string]*v1.ConfigMap
	secrets    map[string]*v1.Secret
	services   map[string][]*v1.Service
	files      map[string]map[string]string
	// fails has what look-ups fail with, by what asked lists.
	fails map[string]error
	// asked is what was looked up, in this order.
	asked []string
}

func newWorld() *world {
	return &world{
		configMaps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{}, services: map[string][]*v1.Service{},
		files: map[string]map[string]string{}, fails: map[string]error{},
	}
}

func (w *world) sources() env.Sources { return env.Sources{Objects: w, Files: w} }

func none() env.Sources { return newWorld().sources() }

func (w *world) ask(what string) error {
	w.asked = append(w.asked, what)
	return w.fails[what]
}

func (w *world) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	if err := w.ask("ConfigMap " + namespace + "/" + name); err != nil {
		return nil, err
	}
	if m := w.configMaps[namespace+"/"+name]; m != nil {
		return m, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("configmaps"), name)
}

func (w *world) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	if err := w.ask("Secret " + namespace + "/" + name); err != nil {
		return nil, err
	}
	if s := w.secrets[namespace+"/"+name]; s != nil {
		return s, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("secrets"), name)
}

func (w *world) Services(_ context.Context, namespace string) ([]*v1.Service, error) {
	return w.services[namespace], w.ask("services of " + namespace)
}

func (w *world) EnvFile(volume, path string) (map[string]string, error) {
	if err := w.ask("file " + volume + "/" + path); err != nil {
		return nil, err
	}
	if vars, ok := w.files[volume+"/"+path]; ok {
		return vars, nil
	}
	return nil, fmt.Errorf("env file %q: %w", path, fs.ErrNotExist)
}

func (w *world) configMap(name string, data map[string]string) {
	w.configMaps["ns/"+name] = &v1.ConfigMap{Data: data}
}

func (w *world) secret(name string, data map[string]string) {
	s := &v1.Secret{Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	w.secrets["ns/"+name] = s
}

func (w *world) service(namespace, name, ip string, ports ...v1.ServicePort) {
	w.services[namespace] = append(w.services[namespace], &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.ServiceSpec{ClusterIP: ip, Ports: ports},
	})
}

func thePod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u", Labels: map[string]string{"a/b": "l"}, Annotations: map[string]string{"x": "y"}},
		Spec: v1.PodSpec{NodeName: "node", ServiceAccountName: "sa", Containers: []v1.Container{
			{Name: "main"},
			{Name: "other", Resources: v1.ResourceRequirements{
				Limits: v1.ResourceList{
					v1.ResourceCPU: resource.MustParse("1500m"), v1.ResourceMemory: resource.MustParse("100Mi"),
					v1.ResourceEphemeralStorage: resource.MustParse("1Gi"), "hugepages-2Mi": resource.MustParse("6Mi"),
				},
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceEphemeralStorage: resource.MustParse("10M"), "hugepages-2Mi": resource.MustParse("6Mi")},
			}},
		}},
	}
}

var facts = env.Facts{
	PodIPs: []string{"10.0.0.1", "fd00::1"}, HostIPs: []string{"192.0.2.1", "2001:db8::1"},
	Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourceEphemeralStorage: resource.MustParse("50G"), "hugepages-2Mi": resource.MustParse("1Gi"),
	},
}

// result is what Resolve returned, with variables as they are easily compared.
type result struct {
	vars   map[string]string
	order  []string
	events []pod.Event
	err    error
}

func (w *world) resolve(t testing.TB, p *v1.Pod) result {
	t.Helper()
	list, events, err := env.Resolve(context.Background(), p, &p.Spec.Containers[0], facts, w.sources())
	return resultOf(t, list, events, err)
}

func resultOf(t testing.TB, list []*runtimeapi.KeyValue, events []pod.Event, err error) result {
	t.Helper()
	got := result{vars: map[string]string{}, events: events, err: err}
	for _, kv := range list {
		if _, twice := got.vars[kv.Key]; twice {
			t.Errorf("%s is there twice", kv.Key)
		}
		got.vars[kv.Key] = string(kv.Value)
		got.order = append(got.order, kv.Key)
	}
	if err != nil && (list != nil || events != nil) {
		t.Errorf("variables or events beside the error %v", err)
	}
	return got
}

// with resolves variables of a pod that otherwise asks for nothing.
func (w *world) with(t testing.TB, vars ...v1.EnvVar) result {
	t.Helper()
	p := thePod()
	p.Spec.Containers[0].Env = vars
	return w.resolve(t, p)
}

func literal(name, value string) v1.EnvVar { return v1.EnvVar{Name: name, Value: value} }

func from(name string, source v1.EnvVarSource) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &source}
}

func named(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
