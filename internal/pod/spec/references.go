package spec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// APIReferences returns each reference of a pod to an object of an API server. A mirror pod may not have such
// references (https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/), so a static pod in a cluster
// may not have them either.
func APIReferences(p *v1.Pod) field.ErrorList {
	r := &references{}
	s, at := &p.Spec, field.NewPath("spec")
	r.found(s.ServiceAccountName != "" || s.DeprecatedServiceAccount != "", at.Child("serviceAccountName"),
		"a ServiceAccount")
	r.found(len(s.ImagePullSecrets) > 0, at.Child("imagePullSecrets"), "Secrets")
	r.found(len(s.ResourceClaims) > 0, at.Child("resourceClaims"), "ResourceClaims")
	for i := range s.InitContainers {
		r.container(s.InitContainers[i].Env, s.InitContainers[i].EnvFrom, at.Child("initContainers").Index(i))
	}
	for i := range s.Containers {
		r.container(s.Containers[i].Env, s.Containers[i].EnvFrom, at.Child("containers").Index(i))
	}
	for i := range s.EphemeralContainers {
		r.container(s.EphemeralContainers[i].Env, s.EphemeralContainers[i].EnvFrom,
			at.Child("ephemeralContainers").Index(i))
	}
	for i := range s.Volumes {
		r.volume(&s.Volumes[i].VolumeSource, at.Child("volumes").Index(i))
	}
	return r.list
}

type references struct{ list field.ErrorList }

func (r *references) found(is bool, at *field.Path, what string) {
	if is {
		r.list = append(r.list, field.Forbidden(at,
			"static pods of a cluster can't refer to "+what+" (feature gate PreventStaticPodAPIReferences)"))
	}
}

func (r *references) container(env []v1.EnvVar, from []v1.EnvFromSource, at *field.Path) {
	for i := range env {
		if f, item := env[i].ValueFrom, at.Child("env").Index(i).Child("valueFrom"); f != nil {
			r.found(f.ConfigMapKeyRef != nil, item.Child("configMapKeyRef"), "a ConfigMap")
			r.found(f.SecretKeyRef != nil, item.Child("secretKeyRef"), "a Secret")
		}
	}
	for i := range from {
		item := at.Child("envFrom").Index(i)
		r.found(from[i].ConfigMapRef != nil, item.Child("configMapRef"), "a ConfigMap")
		r.found(from[i].SecretRef != nil, item.Child("secretRef"), "a Secret")
	}
}

func (r *references) volume(v *v1.VolumeSource, at *field.Path) {
	r.found(v.ConfigMap != nil, at.Child("configMap"), "a ConfigMap")
	r.found(v.Secret != nil, at.Child("secret"), "a Secret")
	r.found(v.PersistentVolumeClaim != nil, at.Child("persistentVolumeClaim"), "a PersistentVolumeClaim")
	r.found(v.Ephemeral != nil, at.Child("ephemeral"), "a PersistentVolumeClaim")
	r.found(v.CSI != nil, at.Child("csi"), "a CSIDriver")
	r.found(v.Glusterfs != nil, at.Child("glusterfs"), "Endpoints")
	const secret = "a Secret"
	r.found(v.AzureFile != nil, at.Child("azureFile"), secret)
	r.found(v.CephFS != nil && v.CephFS.SecretRef != nil, at.Child("cephfs", "secretRef"), secret)
	r.found(v.Cinder != nil && v.Cinder.SecretRef != nil, at.Child("cinder", "secretRef"), secret)
	r.found(v.FlexVolume != nil && v.FlexVolume.SecretRef != nil, at.Child("flexVolume", "secretRef"), secret)
	r.found(v.RBD != nil && v.RBD.SecretRef != nil, at.Child("rbd", "secretRef"), secret)
	r.found(v.ScaleIO != nil && v.ScaleIO.SecretRef != nil, at.Child("scaleIO", "secretRef"), secret)
	r.found(v.ISCSI != nil && v.ISCSI.SecretRef != nil, at.Child("iscsi", "secretRef"), secret)
	r.found(v.StorageOS != nil && v.StorageOS.SecretRef != nil, at.Child("storageos", "secretRef"), secret)
	if v.Projected == nil {
		return
	}
	for i := range v.Projected.Sources {
		s, item := &v.Projected.Sources[i], at.Child("projected", "sources").Index(i)
		r.found(s.ConfigMap != nil, item.Child("configMap"), "a ConfigMap")
		r.found(s.Secret != nil, item.Child("secret"), secret)
		r.found(s.ServiceAccountToken != nil, item.Child("serviceAccountToken"), "a ServiceAccount")
		r.found(s.ClusterTrustBundle != nil, item.Child("clusterTrustBundle"), "a ClusterTrustBundle")
		r.found(s.PodCertificate != nil, item.Child("podCertificate"), "a PodCertificateRequest")
	}
}
