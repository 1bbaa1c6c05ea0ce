package validation

import (
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// networkSources checks the sources of volumes with a storage protocol that nodes support directly, such as NFS.
func networkSources(s *v1.VolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.NFS != nil {
		errs = append(errs, nfs(s.NFS, at.Child("nfs"))...)
	}
	if s.ISCSI != nil {
		errs = append(errs, iscsi(s.ISCSI, at.Child("iscsi"))...)
	}
	if s.FC != nil {
		errs = append(errs, fibreChannel(s.FC, at.Child("fc"))...)
	}
	if s.Glusterfs != nil {
		errs = append(errs, Required(at.Child("glusterfs", "endpoints"), s.Glusterfs.EndpointsName,
			"must name an Endpoints object")...)
		errs = append(errs, Required(at.Child("glusterfs", "path"), s.Glusterfs.Path, "must name a Gluster volume")...)
	}
	if s.RBD != nil {
		errs = append(errs, monitors(s.RBD.CephMonitors, at.Child("rbd", "monitors"))...)
		errs = append(errs, Required(at.Child("rbd", "image"), s.RBD.RBDImage,
			"must name an image of the Ceph pool")...)
	}
	if s.CephFS != nil {
		errs = append(errs, monitors(s.CephFS.Monitors, at.Child("cephfs", "monitors"))...)
	}
	if s.Quobyte != nil {
		errs = append(errs, quobyte(s.Quobyte, at.Child("quobyte"))...)
	}
	if s.Flocker != nil {
		errs = append(errs, flocker(s.Flocker, at.Child("flocker"))...)
	}
	if s.FlexVolume != nil {
		errs = append(errs, flexVolume(s.FlexVolume, at.Child("flexVolume"))...)
	}
	return errs
}

func monitors(list []string, at *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, "must list at least one Ceph monitor")}
	}
	return nil
}

func nfs(s *v1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := Required(at.Child("server"), s.Server, "must be the host name or address of the NFS server")
	if s.Path == "" {
		return append(errs, field.Required(at.Child("path"), "must be an absolute path that the NFS server exports"))
	}
	if !strings.HasPrefix(s.Path, "/") {
		errs = append(errs, field.Invalid(at.Child("path"), s.Path, "must be an absolute path"))
	}
	return errs
}

// iscsiName matches an iSCSI qualified name in one of its forms (RFC 3720): iqn, eui or naa.
var iscsiName = regexp.MustCompile(
	`^(iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)?|eui\.[[:xdigit:]]{16}|naa\.[[:xdigit:]]{32})$`)

func iscsi(s *v1.ISCSIVolumeSource, at *field.Path) field.ErrorList {
	errs := Required(at.Child("targetPortal"), s.TargetPortal,
		"must be an address, or an address and a port, such as \"10.0.0.1:3260\"")
	if s.IQN == "" {
		errs = append(errs, field.Required(at.Child("iqn"),
			"must be an iSCSI name, such as \"iqn.2001-04.com.example:storage\""))
	} else {
		errs = append(errs, iscsiNamed(s.IQN, at.Child("iqn"))...)
	}
	errs = append(errs, Range(at.Child("lun"), s.Lun, 0, 255)...)
	if (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) && s.SecretRef == nil {
		errs = append(errs, field.Required(at.Child("secretRef"), "CHAP authentication needs a secret"))
	}
	errs = append(errs, secretRef(s.SecretRef, at.Child("secretRef"))...)
	if s.InitiatorName != nil {
		errs = append(errs, iscsiNamed(*s.InitiatorName, at.Child("initiatorName"))...)
	}
	return errs
}

func iscsiNamed(name string, at *field.Path) field.ErrorList {
	if iscsiName.MatchString(name) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name,
		"must be valid format: iqn.<yyyy-mm>.<domain>[:name], eui.<16 hex digits> or naa.<32 hex digits>")}
}

func fibreChannel(s *v1.FCVolumeSource, at *field.Path) field.ErrorList {
	switch {
	case len(s.TargetWWNs) == 0 && len(s.WWIDs) == 0:
		return field.ErrorList{field.Required(at.Child("targetWWNs"),
			"must specify either targetWWNs or wwids, but not both")}
	case len(s.TargetWWNs) > 0 && len(s.WWIDs) > 0:
		return field.ErrorList{field.Invalid(at.Child("targetWWNs"), s.TargetWWNs,
			"targetWWNs and wwids can not be specified simultaneously")}
	case len(s.TargetWWNs) == 0:
		return nil
	case s.Lun == nil:
		return field.ErrorList{field.Required(at.Child("lun"), "lun is required if targetWWNs is specified")}
	}
	return Range(at.Child("lun"), *s.Lun, 0, 255)
}

const maxQuobyteTenant = 64

func quobyte(s *v1.QuobyteVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	registry := at.Child("registry")
	if s.Registry == "" {
		errs = append(errs, field.Required(registry, "must be a host:port pair or multiple pairs separated by commas"))
	} else {
		for hostPort := range strings.SplitSeq(s.Registry, ",") {
			if _, _, err := net.SplitHostPort(hostPort); err != nil {
				errs = append(errs, field.Invalid(registry, s.Registry,
					"must be a host:port pair or multiple pairs separated by commas"))
				break
			}
		}
	}
	if len(s.Tenant) >= maxQuobyteTenant {
		errs = append(errs, field.Required(at.Child("tenant"),
			"must be a UUID and may not exceed a length of 64 characters"))
	}
	return append(errs, Required(at.Child("volume"), s.Volume, "must name a Quobyte volume")...)
}

func flocker(s *v1.FlockerVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case s.DatasetName == "" && s.DatasetUUID == "":
		errs = append(errs, field.Required(at, "one of datasetName and datasetUUID is required"))
	case s.DatasetName != "" && s.DatasetUUID != "":
		errs = append(errs, field.Invalid(at, "resource",
			"datasetName and datasetUUID can not be specified simultaneously"))
	}
	if strings.Contains(s.DatasetName, "/") {
		errs = append(errs, field.Invalid(at.Child("datasetName"), s.DatasetName, "must not contain '/'"))
	}
	return errs
}

func flexVolume(s *v1.FlexVolumeSource, at *field.Path) field.ErrorList {
	errs := Required(at.Child("driver"), s.Driver, "must name a FlexVolume driver")
	for _, key := range slices.Sorted(maps.Keys(s.Options)) {
		domain, _, found := strings.Cut(key, "/")
		if found && (domain == "kubernetes.io" || domain == "k8s.io" || strings.HasSuffix(domain, ".kubernetes.io") ||
			strings.HasSuffix(domain, ".k8s.io")) {
			errs = append(errs, field.Invalid(at.Child("options").Key(key), key,
				"k8s.io and kubernetes.io namespaces are reserved"))
		}
	}
	return errs
}
