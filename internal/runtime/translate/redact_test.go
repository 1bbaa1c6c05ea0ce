package translate

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestRedacted(t *testing.T) {
	key := []v1.EnvVar{{Name: "A", Value: "b"}, {Name: "P", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "p"}}}}
	all := []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{}}, {SecretRef: &v1.SecretEnvSource{}}}
	for name, c := range map[string]struct {
		container v1.Container
		want      bool
	}{
		"nothing":              {v1.Container{Env: key}, false},
		"a plain program":      {v1.Container{Env: key, Command: []string{"/app", "$(P)"}, Args: []string{"$(P)"}}, false},
		"a program by a key":   {v1.Container{Env: key, Command: []string{"/bin/$(P)"}}, true},
		"by all keys":          {v1.Container{EnvFrom: all, Command: []string{"$(P)"}}, true},
		"by the arguments":     {v1.Container{EnvFrom: all, Args: []string{"$(P)"}}, true},
		"nothing from Secrets": {v1.Container{Env: key[:1], EnvFrom: all[:1], Command: []string{"$(A)"}}, false},
	} {
		if got := Redacted(&c.container); got != c.want {
			t.Errorf("%s: redacted is %v", name, got)
		}
	}
}

// An agent that knows nothing of the pod's spec, as it has just started, says no more; nor does one
// that finds a container of an earlier version.
func TestRedactedMessage(t *testing.T) {
	p := &v1.Pod{}
	c := &v1.Container{Name: "web", Command: []string{"$(P)"}, EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{}}}}
	for _, by := range []string{"deckhand.io/redacted", "deckhand.io/hushed", ""} {
		redacted := by != ""
		if !redacted {
			c.EnvFrom = nil
		}
		annotations, err := containerAnnotations(&Settings{}, ContainerInput{Pod: p, Container: c})
		if err != nil {
			t.Fatal(err)
		}
		if _, written := annotations["deckhand.io/redacted"]; written != redacted {
			t.Errorf("%v is written", annotations)
		}
		if delete(annotations, "deckhand.io/redacted"); redacted {
			annotations[by] = ""
		}
		st := &runtimeapi.ContainerStatus{Id: "c", Labels: map[string]string{
			"io.kubernetes.pod.uid": "u", "io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "n", "io.kubernetes.container.name": "web",
		}, Annotations: annotations, Reason: "StartError", Message: `exec: "hunter2": no such file`}
		_, out, ok := ContainerStatus(st, "", "")
		want := st.Message
		if redacted {
			want = ErrRedacted.Error()
		}
		if !ok || out.Message != want {
			t.Errorf("redacted by %q: it says %q", by, out.Message)
		}
		if out.StartAborted {
			t.Error("a start that failed counts as aborted")
		}
		for said, want := range map[string]string{"": "", "failed to start: context canceled": ErrRedacted.Error(),
			"runc create failed: fork/exec /proc/self/fd/6: resource temporarily unavailable": ErrRedacted.Error()} {
			st.Message, st.State = said, runtimeapi.ContainerState_CONTAINER_EXITED
			_, out, _ := ContainerStatus(st, "", "")
			if redacted && out.Message != want {
				t.Errorf("of %q it says %q, want %q", said, out.Message, want)
			}
			if out.StartAborted != (said != "") {
				t.Errorf("of %q the start is aborted: %v", said, out.StartAborted)
			}
			st.StartedAt = 1
			if _, out, _ := ContainerStatus(st, "", ""); out.StartAborted {
				t.Error("the start of a container that ran counts as aborted")
			}
			st.StartedAt = 0
		}
		for _, command := range []string{"context canceled", "fork/exec x: resource temporarily unavailable"} {
			st.Message = fmt.Sprintf("exec: %q: stat %s: no such file or directory", command, command)
			if _, out, _ := ContainerStatus(st, "", ""); out.StartAborted {
				t.Errorf("of %q the start is aborted", st.Message)
			}
		}
		for said, want := range map[string]bool{
			"failed to create containerd task: failed to create shim task: context canceled":                                             true,
			"failed to create shim task: context canceled: unknown":                                                                      true,
			"runc create failed: error during container init: mkdir /proc/context canceled: no such file or directory":                   false,
			"runc create failed: error during container init: mkdir /proc/context canceled: unknown: no such file or directory: unknown": false,
		} {
			st.Message = said
			if _, out, _ := ContainerStatus(st, "", ""); out.StartAborted != want {
				t.Errorf("of %q the start is aborted: %v", said, !want)
			}
		}
	}
}
