// Package env makes a container's environment from its spec, and expands
// references to it in commands and arguments.
package env

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Facts is what an environment may refer to beyond the pod's spec.
type Facts struct {
	// PodIPs are the pod's addresses, or the node's for a pod on the host's
	// network; the default one first.
	PodIPs []string
	// HostIPs are the node's addresses, the primary one first.
	HostIPs []string
	// Allocatable stands in for limits that a container doesn't set (API comment of resourceFieldRef).
	Allocatable v1.ResourceList
}

// Error says why a container's environment can't be made. Waiting for the
// runtime won't help: the pod or what it refers to has to change, so callers
// report it as CreateContainerConfigError.
type Error struct {
	// Container and Variable say where; Variable is empty for envFrom.
	Container string
	Variable  string
	// Problem says what is wrong and what to do.
	Problem string
}

func (e *Error) Error() string {
	if e.Variable == "" {
		return fmt.Sprintf("container %s: envFrom: %s", e.Container, e.Problem)
	}
	return fmt.Sprintf("container %s: environment variable %s: %s", e.Container, e.Variable, e.Problem)
}

// Resolve is the container's environment in the order of its spec; of two
// variables with one name, the later counts. An error is an *Error.
func Resolve(p *v1.Pod, c *v1.Container, facts Facts) ([]*runtimeapi.KeyValue, error) {
	b := builder{values: make(map[string]*runtimeapi.KeyValue, len(c.Env))}
	for i := range c.EnvFrom {
		if problem := envFromProblem(&c.EnvFrom[i]); problem != "" {
			return nil, &Error{Container: c.Name, Problem: problem}
		}
	}
	for i := range c.Env {
		e := &c.Env[i]
		if e.ValueFrom == nil {
			value, ok := Expand(e.Value, b.lookup)
			if !ok || len(e.Name)+len(value)+len("=") >= maxText {
				return nil, &Error{Container: c.Name, Variable: e.Name, Problem: "it has " + tooLong}
			}
			b.set(e.Name, value)
			continue
		}
		value, ok, err := valueFrom(p, c, e.ValueFrom, &facts)
		if err != nil {
			return nil, &Error{Container: c.Name, Variable: e.Name, Problem: err.Error()}
		}
		if ok {
			b.set(e.Name, value)
		}
	}
	return b.list, nil
}

type builder struct {
	list   []*runtimeapi.KeyValue
	values map[string]*runtimeapi.KeyValue
}

func (b *builder) set(name, value string) {
	if kv, ok := b.values[name]; ok {
		kv.Value = []byte(value)
		return
	}
	kv := &runtimeapi.KeyValue{Key: name, Value: []byte(value)}
	b.values[name] = kv
	b.list = append(b.list, kv)
}

func (b *builder) lookup(name string) (string, bool) {
	kv, ok := b.values[name]
	return string(kv.GetValue()), ok
}

// valueFrom reports ok=false for an optional reference to what isn't there.
func valueFrom(p *v1.Pod, c *v1.Container, from *v1.EnvVarSource, facts *Facts) (value string, ok bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = field(p, from.FieldRef.FieldPath, facts)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = resourceField(p, c, from.ResourceFieldRef, facts)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		return "", false, missing("ConfigMap", r.Name, r.Key, r.Optional)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		return "", false, missing("Secret", r.Name, r.Key, r.Optional)
	case from.FileKeyRef != nil:
		r := from.FileKeyRef
		return "", false, missing("env file of volume", r.VolumeName, r.Key, r.Optional)
	}
	return "", false, fmt.Errorf("valueFrom names no source: use fieldRef or resourceFieldRef")
}

func missing(kind, name, key string, optional *bool) error {
	if optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("key %q of %s %q is needed, but this build has no source of %ss: set a literal value, or mark it optional", key, kind, name, kind)
}

func envFromProblem(from *v1.EnvFromSource) string {
	if r := from.ConfigMapRef; r != nil && (r.Optional == nil || !*r.Optional) {
		return fmt.Sprintf("ConfigMap %q is needed, but this build has no source of ConfigMaps: set literal values, or mark it optional", r.Name)
	}
	if r := from.SecretRef; r != nil && (r.Optional == nil || !*r.Optional) {
		return fmt.Sprintf("Secret %q is needed, but this build has no source of Secrets: set literal values, or mark it optional", r.Name)
	}
	return ""
}
