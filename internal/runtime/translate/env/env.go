// Package env makes a container's environment from its spec and from what that
// refers to, expands references to it in commands and arguments, and reads env files: files in a
// pod's volume that variables of its containers come from (fileKeyRef, KEP-3721).
//
// But for ReadFile it is pure apart from what Sources do. A pod has written what ReadFile reads,
// so a file is opened with care, no more of it is read than may count, and no error quotes it: it
// may hold secrets.
package env

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Facts is what an environment may refer to beyond the pod's spec.
type Facts struct {
	// PodIPs are the pod's addresses, or the node's for a pod on the host's
	// network; the default one first.
	PodIPs []string
	// HostIPs are the node's addresses, the primary one first.
	HostIPs []string
	// Allocatable stands in for limits that neither a container nor its pod sets.
	Allocatable v1.ResourceList
}

// Objects is as much of the pod's object.View as its containers' environments need.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	Services(ctx context.Context, namespace string) ([]*v1.Service, error)
}

// EnvFiles reads env files from the pod's volumes.
type EnvFiles interface {
	// EnvFile returns the variables of the file at path in the volume that the pod's
	// spec names so. It fails with fs.ErrNotExist (wrapped) if there is no such file;
	// its errors quote nothing of the file.
	EnvFile(volume, path string) (map[string]string, error)
}

// Sources is where what a spec refers to comes from.
type Sources struct {
	Objects Objects
	Files   EnvFiles
}

// Resolve is the container's environment. Of variables with one name that count which
// comes last: service variables, envFrom in its order, env in its order (API comments of
// Container.env and envFrom). $(NAME) in a value refers to what NAME is by then.
//
// The event reports what was left out, if the environment can be made. The error is
// an *Error, also if ctx ended (which it then wraps). Each object and file is looked
// up once at most, and only if the spec refers to it.
func Resolve(ctx context.Context, p *v1.Pod, c *v1.Container, facts Facts,
	from Sources) ([]*runtimeapi.KeyValue, []pod.Event, error) {
	r := &resolver{
		pod: p, container: c, facts: &facts, from: from,
		vars: builder{values: make(map[string]*runtimeapi.KeyValue, len(c.Env))},
	}
	for _, step := range []func(context.Context) error{r.addServices, r.addEnvFrom, r.addEnv} {
		if err := step(ctx); err != nil {
			return nil, nil, err
		}
	}
	return r.vars.list, r.events, nil
}

// resolver makes one environment.
type resolver struct {
	pod       *v1.Pod
	container *v1.Container
	facts     *Facts
	from      Sources

	objects once[pod.Object, keys]
	files   once[fileName, map[string]string]
	vars    builder
	events  []pod.Event
}

func (r *resolver) addEnv(ctx context.Context) error {
	for i := range r.container.Env {
		e := &r.container.Env[i]
		where := "environment variable " + e.Name
		v, err := r.value(ctx, e)
		if err != nil {
			return r.failure(where, v.object, err)
		}
		if !v.ok {
			continue
		}
		if err := r.vars.set(e.Name, v.text); err != nil {
			return r.failure(where, v.object, err)
		}
	}
	return nil
}

// failure is err as an *Error.
func (r *resolver) failure(where string, object pod.Object, err error) error {
	return &Error{Container: r.container.Name, Where: where, Object: object, err: err}
}

// maxEnvironment is how large Linux lets arguments and environment be together, whatever
// the limits of the process (execve(2): three quarters of 8 MiB). What is larger can't be run.
const maxEnvironment = 6 << 20

var (
	errTooLong  = errors.New("it has " + tooLong)
	errTooLarge = errors.New(
		"with it the environment has more than the 6 MiB that Linux takes: refer to less, or set enableServiceLinks " +
			"to false if there are many services")
	errNUL = errors.New("its value has a NUL byte, which no environment variable can have: put it into a volume instead")
	// CRI has bytes, but the configuration that OCI runtimes start a container from is JSON: other bytes arrive as
	// U+FFFD.
	errNotUTF8 = errors.New(
		"its value isn't UTF-8, and container runtimes can't hand on anything else: put it into a volume instead")
)

// builder collects variables in the order in which their names first come.
type builder struct {
	list   []*runtimeapi.KeyValue
	values map[string]*runtimeapi.KeyValue
	// size is what execve(2) would copy: NAME=VALUE and a NUL each.
	size int
}

func (b *builder) set(name, value string) error {
	text := len(name) + len(value) + len("=") + len("\x00")
	if text > pod.MaxText {
		return errTooLong
	}
	if strings.IndexByte(value, 0) >= 0 {
		return errNUL
	}
	if !utf8.ValidString(value) {
		return errNotUTF8
	}
	kv, ok := b.values[name]
	if ok {
		text = len(value) - len(kv.Value)
	}
	if b.size+text > maxEnvironment {
		return errTooLarge
	}
	b.size += text
	if ok {
		kv.Value = []byte(value)
		return nil
	}
	kv = &runtimeapi.KeyValue{Key: name, Value: []byte(value)}
	b.values[name] = kv
	b.list = append(b.list, kv)
	return nil
}

func (b *builder) lookup(name string) (string, bool) {
	kv, ok := b.values[name]
	return string(kv.GetValue()), ok
}
