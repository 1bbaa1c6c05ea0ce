package transcript

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// appendSummary appends a short summary of a status: the phase, the conditions that are true, and each container's
// state with its restart count. Normally a running container is started and ready, and any other container neither;
// the summary contains only deviations from that.
func appendSummary(dst []byte, st *v1.PodStatus) []byte {
	dst = appendText(dst, string(st.Phase))
	for i := range st.Conditions {
		c := &st.Conditions[i]
		if c.Status != v1.ConditionTrue || usual(c.Type) {
			continue
		}
		dst = appendText(append(dst, ' '), string(c.Type))
		if c.Reason != "" {
			dst = append(appendText(append(dst, '('), c.Reason), ')')
		}
	}
	if st.Reason != "" {
		dst = appendText(append(dst, " reason="...), st.Reason)
	}
	for _, list := range [...][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses,
		st.EphemeralContainerStatuses} {
		for i := range list {
			dst = appendContainer(append(dst, ' '), &list[i])
		}
	}
	return dst
}

// usual reports whether a condition follows from the rest of the summary, so that its type needn't be in it.
func usual(t v1.PodConditionType) bool {
	switch t {
	case v1.PodScheduled, v1.PodReadyToStartContainers, v1.PodInitialized, v1.ContainersReady:
		return true
	}
	return false
}

func appendContainer(dst []byte, c *v1.ContainerStatus) []byte {
	dst = append(appendText(dst, c.Name), '=')
	running := c.State.Running != nil
	switch {
	case running:
		dst = append(dst, "Running"...)
	case c.State.Terminated != nil:
		dst = append(appendText(dst, c.State.Terminated.Reason), '(')
		dst = append(strconv.AppendInt(dst, int64(c.State.Terminated.ExitCode), 10), ')')
	case c.State.Waiting != nil:
		dst = appendText(dst, c.State.Waiting.Reason)
	}
	if c.RestartCount > 0 {
		dst = strconv.AppendInt(append(dst, '#'), int64(c.RestartCount), 10)
	}
	dst = appendUnless(dst, "started", c.Started != nil && *c.Started, running)
	return appendUnless(dst, "ready", c.Ready, running)
}

// appendUnless writes a flag if it differs from its expected value.
func appendUnless(dst []byte, name string, is, expected bool) []byte {
	if is == expected {
		return dst
	}
	dst = append(dst, ',')
	if !is {
		dst = append(dst, "not-"...)
	}
	return append(dst, name...)
}
