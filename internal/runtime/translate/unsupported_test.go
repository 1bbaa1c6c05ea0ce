package translate_test

import (
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

func TestFields(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{
		ActiveDeadlineSeconds: ptr.To(int64(1)),
		DNSPolicy:             v1.DNSNone,
		DNSConfig:             &v1.PodDNSConfig{},
		RuntimeClassName:      ptr.To("x"),
		HostUsers:             ptr.To(false),
		ResourceClaims:        []v1.PodResourceClaim{{Name: "gpu"}},
		OS:                    &v1.PodOS{Name: v1.Windows},
		SecurityContext:       &v1.PodSecurityContext{WindowsOptions: &v1.WindowsSecurityContextOptions{}, SELinuxOptions: &v1.SELinuxOptions{}, AppArmorProfile: &v1.AppArmorProfile{}},
		Volumes: []v1.Volume{
			{Name: "a", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "b", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}},
			{Name: "d", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Gi"))}}},
			{Name: "c", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
			{Name: "e", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}},
		},
		InitContainers: []v1.Container{{Name: "i", VolumeDevices: []v1.VolumeDevice{{}}}},
		Containers: []v1.Container{{
			Name:                     "m",
			TerminationMessagePath:   "/tmp/end",
			TerminationMessagePolicy: v1.TerminationMessageFallbackToLogsOnError,
			LivenessProbe:            &v1.Probe{}, ReadinessProbe: &v1.Probe{}, StartupProbe: &v1.Probe{},
			Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}, StopSignal: ptr.To(v1.SIGHUP)},
			EnvFrom:   []v1.EnvFromSource{{}},
			Env:       []v1.EnvVar{{Name: "A", Value: "x"}, {Name: "B", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{}}}},
			SecurityContext: &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{}, WindowsOptions: &v1.WindowsSecurityContextOptions{},
				Capabilities: &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN", "CAP_SYS_TIME", "cap_checkpoint_restore", "FOO"}, Drop: []v1.Capability{"ALL", "CAP_NET_BIND"}}},
			Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"cpu": resource.MustParse("1"), "hugepages-2Mi": resource.MustParse("2Mi"), "ephemeral-storage": resource.MustParse("1Gi"),
				"example.com/gpu": resource.MustParse("1")}},
		}, {
			Name:      "n",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"ephemeral-storage": resource.MustParse("1Gi"), "cpu": resource.MustParse("1")}},
		}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e", EnvFrom: []v1.EnvFromSource{{}}, Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "gpu"}}}}}},
	}}
	var want []string
	for _, path := range []string{
		"spec.resourceClaims", "spec.os.name", "spec.securityContext.windowsOptions",
		"spec.initContainers[0].volumeDevices", "spec.containers[0].securityContext.windowsOptions",
		"spec.containers[1].resources.requests[ephemeral-storage]",
		"spec.ephemeralContainers[0].resources.claims",
	} {
		want = append(want, path+": not acted on by this build")
	}
	const capabilities = "spec.containers[0].securityContext.capabilities."
	want = slices.Insert(want, 5, capabilities+"add[FOO]: there is no such capability, see capabilities(7)", capabilities+"drop[CAP_NET_BIND]: there is no such capability, see capabilities(7)")
	if got := translate.UnsupportedFields(p, false); !reflect.DeepEqual(got, want) {
		t.Errorf("have %q\nwant %q", got, want)
	}
	if got := translate.UnsupportedFields(&v1.Pod{Spec: v1.PodSpec{HostUsers: ptr.To(true), Containers: []v1.Container{{Name: "m"}}}}, false); got != nil {
		t.Errorf("a plain pod: %q", got)
	}
}

func TestRuntimeWithoutSELinux(t *testing.T) {
	label := &v1.SELinuxOptions{Level: "s0:c1,c2"}
	p := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{SELinuxOptions: label},
		Containers: []v1.Container{{Name: "m"}, {Name: "n", SecurityContext: &v1.SecurityContext{SELinuxOptions: label}}}}}
	want := []string{"spec.securityContext.seLinuxOptions: not acted on by this build", "spec.containers[1].securityContext.seLinuxOptions: not acted on by this build"}
	if got := translate.UnsupportedFields(p, true); !reflect.DeepEqual(got, want) {
		t.Errorf("have %q\nwant %q", got, want)
	}
	if got := translate.UnsupportedFields(p, false); got != nil {
		t.Errorf("a runtime that labels: %q", got)
	}
}
