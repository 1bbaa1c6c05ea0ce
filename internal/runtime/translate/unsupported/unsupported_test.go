package unsupported_test

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/runtime/translate/unsupported"
)

func TestFields(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{
		ActiveDeadlineSeconds: ptr.To(int64(1)),
		DNSPolicy:             v1.DNSNone,
		DNSConfig:             &v1.PodDNSConfig{},
		RuntimeClassName:      ptr.To("x"),
		HostUsers:             ptr.To(false),
		SecurityContext:       &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{}, AppArmorProfile: &v1.AppArmorProfile{}},
		Volumes: []v1.Volume{
			{Name: "a", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "b", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}},
			{Name: "d", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Gi"))}}},
			{Name: "c", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
		},
		InitContainers: []v1.Container{{Name: "i", VolumeDevices: []v1.VolumeDevice{{}}}},
		Containers: []v1.Container{{
			Name:                     "m",
			TerminationMessagePath:   "/tmp/end",
			TerminationMessagePolicy: v1.TerminationMessageFallbackToLogsOnError,
			LivenessProbe:            &v1.Probe{}, ReadinessProbe: &v1.Probe{}, StartupProbe: &v1.Probe{},
			Lifecycle:       &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}, StopSignal: ptr.To(v1.SIGHUP)},
			EnvFrom:         []v1.EnvFromSource{{}},
			Env:             []v1.EnvVar{{Name: "A", Value: "x"}, {Name: "B", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{}}}},
			SecurityContext: &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{}, ProcMount: ptr.To(v1.UnmaskedProcMount)},
			Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"cpu": resource.MustParse("1"), "hugepages-2Mi": resource.MustParse("2Mi"),
				"example.com/gpu": resource.MustParse("1")}},
		}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", EnvFrom: []v1.EnvFromSource{{}}}}},
	}}
	var want []string
	for _, path := range []string{
		"spec.hostUsers", "spec.runtimeClassName", "spec.securityContext.seLinuxOptions", "spec.securityContext.appArmorProfile",
		"spec.volumes[2].emptyDir.sizeLimit", "spec.volumes[3] (c, neither emptyDir nor hostPath)", "spec.initContainers[0].volumeDevices", "spec.containers[0].envFrom[0]",
		"spec.containers[0].env[1].valueFrom.secretKeyRef",
		"spec.containers[0].resources[example.com/gpu]",
		"spec.containers[0].resources[hugepages-2Mi]", "spec.containers[0].securityContext.appArmorProfile", "spec.containers[0].securityContext.procMount",
		"spec.ephemeralContainers[0].envFrom[0]",
	} {
		want = append(want, path+": not acted on by this build")
	}
	if got := unsupported.Fields(p); !reflect.DeepEqual(got, want) {
		t.Errorf("have %q\nwant %q", got, want)
	}
	if got := unsupported.Fields(&v1.Pod{Spec: v1.PodSpec{HostUsers: ptr.To(true), Containers: []v1.Container{{Name: "m"}}}}); got != nil {
		t.Errorf("a plain pod: %q", got)
	}
}

func TestIsolation(t *testing.T) {
	local := &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost}
	p := &v1.Pod{Spec: v1.PodSpec{
		HostUsers:       ptr.To(false),
		SecurityContext: &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}},
		InitContainers:  []v1.Container{{SecurityContext: &v1.SecurityContext{AppArmorProfile: local}}},
		Containers:      []v1.Container{{}, {SecurityContext: &v1.SecurityContext{AppArmorProfile: local}}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
			SecurityContext: &v1.SecurityContext{AppArmorProfile: local}}}},
	}}
	want := []string{"spec.hostUsers: not acted on by this build", "spec.initContainers[0].securityContext.appArmorProfile: not acted on by this build",
		"spec.containers[1].securityContext.appArmorProfile: not acted on by this build",
		"spec.ephemeralContainers[0].securityContext.appArmorProfile: not acted on by this build"}
	if got := unsupported.Isolation(p); !reflect.DeepEqual(got, want) {
		t.Errorf("have %q\nwant %q", got, want)
	}
	if got := unsupported.Isolation(&v1.Pod{Spec: v1.PodSpec{HostUsers: ptr.To(true), Containers: []v1.Container{{}}}}); got != nil {
		t.Errorf("a plain pod: %q", got)
	}
}
