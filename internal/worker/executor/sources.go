package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	podobject "github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
)

// envFiles finds the environment files of a pod (KEP-3721), which its containers write.
type envFiles struct {
	volumes Volumes
	pod     *v1.Pod
}

func (f envFiles) EnvFile(volume, path string) (map[string]string, error) {
	dir, err := f.volumes.EmptyDir(f.pod, volume)
	if err != nil {
		return nil, err
	}
	return env.ReadFile(dir, path)
}

// configFailure is the failure of a container without a valid configuration. It names the object that the container
// waits for, if there is one.
func configFailure(err error) *pod.Failure {
	if known, ok := errors.AsType[*pod.Failure](err); ok {
		return known
	}
	f := &pod.Failure{Reason: pod.ReasonCreateContainerConfigError, Message: withRemedy(err),
		Disk: atomicfile.DiskFails(err), NotBefore: podobject.NotBefore(err), Unknown: podobject.IsUnknown(err)}
	if environment, ok := errors.AsType[*env.Error](err); ok {
		// the event names the container
		f.Message = strings.TrimPrefix(f.Message, "container "+environment.Container+": ")
		if object, missing := environment.WaitsFor(); missing {
			f.Awaits = object
		}
	}
	return f
}

// runtimeHandler is the handler of the pod's RuntimeClass; empty for the runtime's default.
func (r *Executor) runtimeHandler(ctx context.Context, d *pod.Desired) (string, error) {
	p := d.Pod
	if p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName == "" {
		return "", nil
	}
	name := *p.Spec.RuntimeClassName
	class, err := r.cfg.Objects.For(d).RuntimeClass(ctx, name)
	if err == nil {
		if d.Source.Local() { // the class of an API server's pod was checked at the pod's admission
			err = checkClass(p, class)
		}
		return class.Handler, err
	}
	f := &pod.Failure{Reason: pod.ReasonFailedCreatePodSandBox, Message: fmt.Sprintf("RuntimeClass %q: %v", name, err),
		Awaits: runtimeClass(name), NotBefore: podobject.NotBefore(err), Unknown: podobject.IsUnknown(err)}
	if apierrors.IsNotFound(err) && !errors.Is(err, podobject.ErrRefused) {
		f.Message = fmt.Sprintf("RuntimeClass %q isn't there: make it, or remove runtimeClassName", name)
	}
	return "", f
}

func runtimeClass(name string) pod.Object {
	return pod.Object{Kind: string(podobject.RuntimeClass), Name: name}
}

// checkClass fails for a pod that doesn't match its RuntimeClass. The check affects only the next sandbox: a running
// sandbox doesn't depend on the class any more.
func checkClass(p *v1.Pod, class *nodev1.RuntimeClass) error {
	completed := p.Spec.DeepCopy()
	if conflict := spec.ApplyRuntimeClass(completed, class); conflict != "" {
		return &pod.Failure{Reason: pod.ReasonFailedCreatePodSandBox,
			Message: fmt.Sprintf("RuntimeClass %q refuses the pod: %s", class.Name, conflict),
			Awaits:  runtimeClass(class.Name)}
	}
	// The class may have been defined or edited after this version of the pod was built: then a new version will
	// follow.
	if !allocated.SameList(completed.Overhead, p.Spec.Overhead) {
		return fmt.Errorf("the pod hasn't been updated yet with the overhead of RuntimeClass %q", class.Name)
	}
	return nil
}
