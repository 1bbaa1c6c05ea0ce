package translate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// recordCreatedWith adds annotations with the fields of the container's spec that apply to the instance as long as
// it exists, whatever the spec becomes later.
func recordCreatedWith(annotations map[string]string, p *v1.Pod, c *v1.Container) error {
	record := func(key, field string, value any) error {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("writing %s as JSON: %w", field, err)
		}
		annotations[key] = string(text)
		return nil
	}
	if r := &c.Resources; len(r.Requests)+len(r.Limits)+len(r.Claims) > 0 {
		if err := record(AnnotationResources, "resources", r); err != nil {
			return err
		}
	}
	if r := p.Spec.Resources; r != nil && len(r.Limits) > 0 {
		if err := record(AnnotationPodLimits, "the pod's limits", r.Limits); err != nil {
			return err
		}
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		if err := record(AnnotationPreStopHandler, "lifecycle.preStop", c.Lifecycle.PreStop); err != nil {
			return err
		}
	}
	if i := slices.IndexFunc(p.Spec.InitContainers, func(i v1.Container) bool { return i.Name == c.Name }); i >= 0 &&
		pod.IsSidecar(c) {
		annotations[AnnotationSidecar] = strconv.Itoa(i + 1)
	}
	if len(c.Ports) > 0 {
		return record(AnnotationPorts, "ports", c.Ports)
	}
	return nil
}

// createdWith is the inverse of recordCreatedWith. It returns nil for a container of another agent that doesn't
// record these fields. Invalid annotations count as missing.
func createdWith(annotations map[string]string) *pod.CreatedWith {
	if annotations[AnnotationHash] == "" {
		return nil
	}
	m := &pod.CreatedWith{}
	if text, written := annotations[AnnotationResources]; written {
		readBack(text, &m.Resources)
	} else if annotations[AnnotationImage] != "" {
		m.Resources = &v1.ResourceRequirements{} // created by this agent, without resources
	}
	readBack(annotations[AnnotationPodLimits], &m.PodLimits)
	readBack(annotations[AnnotationPreStopHandler], &m.PreStop)
	readBack(annotations[AnnotationPorts], &m.Ports)
	readBack(annotations[AnnotationSidecar], &m.Sidecar)
	return m
}

func readBack[T any](text string, into *T) {
	var value T
	if text != "" && json.Unmarshal([]byte(text), &value) == nil {
		*into = value
	}
}
