// Package defaults fills in what a pod leaves out, as a 1.36 API server does
// when it stores a v1 Pod. A static pod never passes an API server, yet must mean
// the same. The values are those the comments of k8s.io/api/core/v1 name.
package defaults

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Set changes p in place. It is idempotent. Nothing is judged: values that make
// no sense stay as they are.
func Set(p *v1.Pod) {
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
		// The API keeps the two types the same on purpose, so that they convert.
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
	// serviceAccount is the old name of serviceAccountName; both always agree.
	orDefault(&s.ServiceAccountName, s.DeprecatedServiceAccount)
	s.DeprecatedServiceAccount = s.ServiceAccountName
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
