// Package env builds a container's environment from its spec and the objects that it refers to, expands references
// to variables in commands and arguments, and reads env files: files in a pod's volume that define variables of its
// containers (fileKeyRef, KEP-3721).
//
// It does no I/O except in ReadFile and in calls of Sources. Pods control the files of ReadFile, so ReadFile opens
// them with care, limits their size, and quotes nothing of them in errors: they may contain secrets.
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

// Facts are values outside the pod's spec that an environment may refer to.
type Facts struct {
	// PodIPs are the pod's addresses, or the node's for a pod on the host's network; the default one first.
	PodIPs []string
	// HostIPs are the node's addresses, the primary one first.
	HostIPs []string
	// Allocatable supplies limits that neither a container nor its pod sets.
	Allocatable v1.ResourceList
}

// Objects is the part of the pod's object.View that environments need.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	Services(ctx context.Context, namespace string) ([]*v1.Service, error)
}

// EnvFiles reads env files from the pod's volumes.
type EnvFiles interface {
	// EnvFile returns the variables of the file at path in the pod's volume of this name. It fails with
	// fs.ErrNotExist (wrapped) if the file doesn't exist; its errors quote nothing of the file.
	EnvFile(volume, path string) (map[string]string, error)
}

// Sources provides the objects and files that a spec refers to.
type Sources struct {
	Objects Objects
	Files   EnvFiles
}

// Resolve returns the container's environment. If several variables have the same name, the last one counts:
// service variables, envFrom in its order, env in its order (API comments of Container.env and envFrom). $(NAME) in
// a value refers to the value that NAME has at that point.
//
// The events report omitted keys. The error is an *Error, also if ctx ended (which it then wraps). Each object and
// file is fetched at most once, and only if the spec refers to it.
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

// resolver builds one environment.
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

// failure returns err as an *Error.
func (r *resolver) failure(where string, object pod.Object, err error) error {
	return &Error{Container: r.container.Name, Where: where, Object: object, err: err}
}

// maxEnvironment is Linux' maximum size of arguments and environment together, whatever the limits of the process
// (execve(2): three quarters of 8 MiB). Larger ones can't be executed.
const maxEnvironment = 6 << 20

var (
	errTooLong  = errors.New("it has " + tooLong)
	errTooLarge = errors.New(
		"with it the environment has more than the 6 MiB that Linux takes: refer to less, or set enableServiceLinks " +
			"to false if there are many services")
	errNUL = errors.New("its value has a NUL byte, which no environment variable can have: put it into a volume instead")
	// The CRI uses bytes, but the configuration of OCI runtimes is JSON, where invalid UTF-8 becomes U+FFFD.
	errNotUTF8 = errors.New(
		"its value isn't UTF-8, and container runtimes can't hand on anything else: put it into a volume instead")
)

// builder collects variables in the order in which their names first occur.
type builder struct {
	list   []*runtimeapi.KeyValue
	values map[string]*runtimeapi.KeyValue
	// size is the number of bytes that execve(2) copies: NAME=VALUE and a NUL each.
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
