package effects

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deckhand-node/deckhand/internal/envfile"
	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/objects"
	"github.com/deckhand-node/deckhand/internal/objects/objectspec"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
)

// Objects knows what pods refer to by name. The error for what isn't there is one for
// which apierrors.IsNotFound is true.
type Objects interface {
	env.Objects
	RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error)
}

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
	return envfile.Read(dir, path)
}

// configFailure is the failure of a container whose configuration can't be made. It
// names the object that would release it, if one would.
func configFailure(err error) *pod.Failure {
	var known *pod.Failure
	if errors.As(err, &known) {
		return known
	}
	f := &pod.Failure{Reason: "CreateContainerConfigError", Message: err.Error()}
	var environment *env.Error
	if errors.As(err, &environment) {
		f.Message = strings.TrimPrefix(f.Message, "container "+environment.Container+": ") // whoever tells it says so
		if object, waits := environment.WaitsFor(); waits {
			f.Awaits = object.String()
		}
	}
	return f
}

// runtimeHandler is what the pod's RuntimeClass names; empty for the runtime's default.
func (r *Runner) runtimeHandler(ctx context.Context, p *v1.Pod) (string, error) {
	if p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName == "" {
		return "", nil
	}
	name := *p.Spec.RuntimeClassName
	class, err := r.cfg.Objects.RuntimeClass(ctx, name)
	if err == nil {
		if err := checkClass(p, class); err != nil {
			return "", err
		}
		return class.Handler, nil
	}
	f := &pod.Failure{Reason: reasonSandbox, Message: fmt.Sprintf("RuntimeClass %q: %v", name, err), Awaits: "RuntimeClass " + name}
	if apierrors.IsNotFound(err) && !errors.Is(err, objects.ErrRefused) {
		f.Message = fmt.Sprintf("RuntimeClass %q isn't there: make it, or remove runtimeClassName", name)
	}
	return "", f
}

// checkClass fails for a pod that isn't as its RuntimeClass has it. That concerns the next
// sandbox alone: what runs doesn't depend on its class any more.
func checkClass(p *v1.Pod, class *nodev1.RuntimeClass) error {
	made := p.Spec.DeepCopy()
	if conflict := objectspec.Admit(made, class); conflict != "" {
		return &pod.Failure{Reason: reasonSandbox, Message: fmt.Sprintf("RuntimeClass %q refuses the pod: %s", class.Name, conflict), Awaits: "RuntimeClass " + class.Name}
	}
	// The class may have been defined, or edited, since this version of the pod was made: another
	// one is on its way.
	if !grant.SameList(made.Overhead, p.Spec.Overhead) {
		return fmt.Errorf("the pod isn't known yet with the overhead of RuntimeClass %q", class.Name)
	}
	return nil
}
