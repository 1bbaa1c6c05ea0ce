package env

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// addEnvFrom adds all keys of the ConfigMaps and Secrets in envFrom. Keys that aren't valid names are skipped and
// reported.
func (r *resolver) addEnvFrom(ctx context.Context) error {
	for i := range r.container.EnvFrom {
		from := &r.container.EnvFrom[i]
		object, optional, ok := r.envFromObject(from)
		if !ok {
			continue
		}
		where := fmt.Sprintf("envFrom[%d]", i)
		data, err := r.keysOf(ctx, object)
		switch {
		case optional && apierrors.IsNotFound(err):
			continue
		case err != nil:
			return r.failure(where, object, unavailable(object, err))
		}
		var skipped []string
		for _, key := range data.sorted() {
			name := from.Prefix + key
			if len(validation.IsRelaxedEnvVarName(name)) > 0 {
				skipped = append(skipped, name)
				continue
			}
			text, _ := data.get(key)
			if err := r.vars.set(name, text); err != nil {
				return r.failure(where, object, fmt.Errorf("key %q of %v: %w", key, object, err))
			}
		}
		if len(skipped) > 0 {
			r.events = append(r.events, r.skippedEvent(object, skipped))
		}
	}
	return nil
}

func (r *resolver) envFromObject(from *v1.EnvFromSource) (object pod.Object, optional, ok bool) {
	object.Namespace = r.pod.Namespace
	if ref := from.ConfigMapRef; ref != nil {
		object.Kind, object.Name = "ConfigMap", ref.Name
		return object, isTrue(ref.Optional), true
	}
	if ref := from.SecretRef; ref != nil {
		object.Kind, object.Name = "Secret", ref.Name
		return object, isTrue(ref.Optional), true
	}
	return pod.Object{}, false, false
}

// maxSkipped is how many bytes of names an event lists; the API limits messages to 1 KiB.
const maxSkipped = 512

// skippedEvent returns an event with the kubelet's reason and message
// (https://kubernetes.io/docs/tasks/configure-pod-container/configure-pod-configmap/#restrictions).
func (r *resolver) skippedEvent(object pod.Object, names []string) pod.Event {
	kind := "configMap"
	if object.Kind == "Secret" {
		kind = "secret"
	}
	listed, size := 0, 0
	for _, name := range names {
		if size += len(name); size > maxSkipped {
			break
		}
		listed++
	}
	list := strings.Join(names[:listed], ", ")
	if more := len(names) - listed; more > 0 {
		list = strings.TrimPrefix(fmt.Sprintf("%s, and %d more", list, more), ", ")
	}
	return pod.Event{
		Type: v1.EventTypeWarning, Reason: pod.ReasonInvalidEnvironmentVariableNames, Container: r.container.Name,
		Message: fmt.Sprintf("Keys [%s] from the EnvFrom %s %s/%s were skipped since they are considered invalid "+
			"environment variable names.",
			list, kind, object.Namespace, object.Name),
	}
}
