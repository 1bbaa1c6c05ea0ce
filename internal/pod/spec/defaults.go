package spec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// SetDefaults fills in missing fields of the pod, except its namespace, in place. It is idempotent and accepts any
// pod, valid or not: it doesn't change invalid values.
func SetDefaults(p *v1.Pod) {
	s := &p.Spec
	podFields(s)
	for i := range s.Volumes {
		volume(&s.Volumes[i])
	}
	for i := range s.InitContainers {
		container(&s.InitContainers[i], s.HostNetwork)
	}
	for i := range s.Containers {
		container(&s.Containers[i], s.HostNetwork)
	}
	for i := range s.EphemeralContainers {
		// The API keeps the fields of the two types identical, so that this conversion is possible.
		container((*v1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon), s.HostNetwork)
	}
	roundUp(s.Overhead)
	podResources(p)
}

func podFields(s *v1.PodSpec) {
	orDefault(&s.RestartPolicy, v1.RestartPolicyAlways)
	orDefault(&s.DNSPolicy, v1.DNSClusterFirst)
	orDefault(&s.SchedulerName, v1.DefaultSchedulerName)
	orPointer(&s.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	orPointer(&s.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	orPointer(&s.SecurityContext, v1.PodSecurityContext{})
	// serviceAccount is the old name of serviceAccountName; both fields always have the same value.
	orDefault(&s.ServiceAccountName, s.DeprecatedServiceAccount)
	s.DeprecatedServiceAccount = s.ServiceAccountName
	systemPriority(s)
}

// systemPriority sets the priority of pods with one of the two PriorityClasses that every cluster has. The values
// are those that the admission of an API server sets
// (https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/). Manifests can't
// define other PriorityClasses.
func systemPriority(s *v1.PodSpec) {
	switch s.PriorityClassName {
	case "system-cluster-critical":
		orPointer(&s.Priority, 2_000_000_000)
	case "system-node-critical":
		orPointer(&s.Priority, 2_000_001_000)
	}
}

// orDefault sets a field that has its zero value.
func orDefault[T comparable](f *T, v T) {
	var zero T
	if *f == zero {
		*f = v
	}
}

// orPointer sets a pointer that is nil.
func orPointer[T any](f **T, v T) {
	if *f == nil {
		*f = ptr.To(v)
	}
}
