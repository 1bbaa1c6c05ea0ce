package spec

import v1 "k8s.io/api/core/v1"

const (
	tokenLifetimeSeconds       int64 = 60 * 60
	certificateLifetimeSeconds int32 = 24 * 60 * 60

	iscsiInterface = "default"
)

func volume(v *v1.Volume) {
	if v.VolumeSource == (v1.VolumeSource{}) {
		v.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	s := &v.VolumeSource
	hostPath(s.HostPath)
	if s.Image != nil {
		orDefault(&s.Image.PullPolicy, pullPolicy(s.Image.Reference))
	}
	if s.Ephemeral != nil && s.Ephemeral.VolumeClaimTemplate != nil {
		claimDefaults(&s.Ephemeral.VolumeClaimTemplate.Spec)
	}
	fileVolumes(s)
	networkVolumes(s)
}

// fileVolumes sets the defaults of volumes with files that the node agent writes: Secrets, ConfigMaps and the like.
func fileVolumes(s *v1.VolumeSource) {
	if s.Secret != nil {
		orPointer(&s.Secret.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	}
	if s.ConfigMap != nil {
		orPointer(&s.ConfigMap.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	}
	if s.DownwardAPI != nil {
		orPointer(&s.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		downward(s.DownwardAPI.Items)
	}
	if s.Projected != nil {
		orPointer(&s.Projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
		for i := range s.Projected.Sources {
			projection(&s.Projected.Sources[i])
		}
	}
}

func projection(p *v1.VolumeProjection) {
	if p.ServiceAccountToken != nil {
		orPointer(&p.ServiceAccountToken.ExpirationSeconds, tokenLifetimeSeconds)
	}
	if p.PodCertificate != nil {
		orPointer(&p.PodCertificate.MaxExpirationSeconds, certificateLifetimeSeconds)
	}
	if p.DownwardAPI != nil {
		downward(p.DownwardAPI.Items)
	}
}

func downward(files []v1.DownwardAPIVolumeFile) {
	for i := range files {
		fieldRef(files[i].FieldRef)
	}
}

func networkVolumes(s *v1.VolumeSource) {
	if s.ISCSI != nil {
		orDefault(&s.ISCSI.ISCSIInterface, iscsiInterface)
	}
	if s.RBD != nil {
		ceph(&s.RBD.RBDPool, &s.RBD.RadosUser, &s.RBD.Keyring)
	}
	azureDisk(s.AzureDisk)
	if s.ScaleIO != nil {
		scaleIO(&s.ScaleIO.StorageMode, &s.ScaleIO.FSType)
	}
}
