package executor

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// A runtime reserves a name for each sandbox and container. The name contains the pod's UID and the attempt. If the
// response to a create call is lost, the name stays reserved for an ID that the agent doesn't have, and each further
// call would fail (kubernetes/kubernetes#83050, #134153).

// reservedName matches the end of containerd's error. The ID in it is only used for status calls, which confirm it.
var reservedName = regexp.MustCompile(`is reserved for "([0-9a-f]{64})"$`)

// nameHolder returns the ID that the name in an error is reserved for; empty for any other error.
func nameHolder(err error) string {
	if err == nil {
		return ""
	}
	if m := reservedName.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return ""
}

// adoptSandbox handles the error err of RunPodSandbox: if the name is reserved for a ready sandbox of this pod,
// adoptSandbox returns its ID. If that sandbox isn't ready, it is removed, and adoptSandbox calls run again.
func (r *Executor) adoptSandbox(ctx context.Context, p *v1.Pod, a pod.Action, handler string, err error,
	run func() (string, error)) (string, error) {
	holder := nameHolder(err)
	if holder == "" {
		return "", err
	}
	st, failed := r.cfg.Runtime.PodSandboxStatus(ctx, holder)
	if failed != nil {
		return "", unconfirmed(err, failed)
	}
	identity, sb, ok := translate.SandboxStatus(st)
	if !ok || sb.ID != holder || identity.UID != p.UID || int(sb.Attempt) != a.Attempt {
		return "", err
	}
	if sb.State == pod.SandboxReady && st.GetRuntimeHandler() == handler {
		r.cfg.Log.Info("Using the sandbox of an earlier request that had no answer", "pod", klog.KObj(p),
			"id", holder)
		return holder, nil
	}
	if failed := r.cfg.Runtime.StopPodSandbox(ctx, holder); failed != nil {
		return "", errors.Join(err, failed)
	}
	if failed := r.cfg.Runtime.RemovePodSandbox(ctx, holder); failed != nil {
		return "", errors.Join(err, failed)
	}
	r.cfg.Observer.SandboxRemoved(holder)
	return run()
}

// replaceContainer handles the error err of CreateContainer: if the name is reserved for an instance of this container
// that was never started, replaceContainer removes that instance and calls create again. That instance isn't started
// instead, because its status doesn't show its sandbox.
func (r *Executor) replaceContainer(ctx context.Context, p *v1.Pod, a pod.Action, err error,
	create func() (string, error)) (string, error) {
	holder := nameHolder(err)
	if holder == "" {
		return "", err
	}
	st, failed := r.cfg.Runtime.ContainerStatus(ctx, holder)
	if failed != nil {
		return "", unconfirmed(err, failed)
	}
	identity, c, ok := translate.ContainerStatus(st, "", "")
	if !ok || c.ID != holder || identity.UID != p.UID || c.Name != a.Container || c.Attempt != a.Attempt ||
		c.State != pod.ContainerCreated {
		return "", err
	}
	if failed := r.cfg.Runtime.RemoveContainer(ctx, holder); failed != nil {
		return "", errors.Join(err, failed)
	}
	r.cfg.Observer.ContainerRemoved(holder)
	r.cfg.Log.Info("Removed the container of an earlier request that had no answer", "pod", klog.KObj(p),
		"containerName", a.Container, "id", holder)
	return create()
}

// unconfirmed completes the error err about a reserved name; failed is the error of the holder's status call.
func unconfirmed(err, failed error) error {
	if status.Code(failed) == codes.NotFound {
		return fmt.Errorf("%w: the runtime is still working on an earlier request; if this doesn't end, restart the "+
			"runtime, which keeps running containers", err)
	}
	return errors.Join(err, failed)
}
