package validation

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (p podContainers) mounts(c *v1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	paths := map[string]bool{}
	for i := range c.VolumeMounts {
		m, item := &c.VolumeMounts[i], at.Index(i)
		errs = append(errs, p.volumeName(m.Name, item.Child("name"))...)
		switch mountPath := item.Child("mountPath"); {
		case m.MountPath == "":
			errs = append(errs, field.Required(mountPath, "must be the path in the container to mount the volume at"))
		case paths[m.MountPath]:
			errs = append(errs, field.Invalid(mountPath, m.MountPath, "must be unique"))
		}
		paths[m.MountPath] = true
		errs = append(errs, subPaths(m, item)...)
		errs = append(errs, propagation(m, c.SecurityContext, item)...)
		errs = append(errs, recursiveReadOnly(m, item)...)
	}
	return errs
}

// volumeName checks that the name is that of one of the pod's volumes.
func (p podContainers) volumeName(name string, at *field.Path) field.ErrorList {
	return p.volumeNames.Refer(at, name, "must be one of the pod's volumes")
}

func subPaths(m *v1.VolumeMount, at *field.Path) field.ErrorList {
	errs := localPath(at.Child("subPath"), m.SubPath)
	if m.SubPathExpr == "" {
		return errs
	}
	if m.SubPath != "" {
		errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr,
			"subPathExpr and subPath are mutually exclusive"))
	}
	return append(errs, localPath(at.Child("subPathExpr"), m.SubPathExpr)...)
}

// propagation checks the mount propagation. Bidirectional is for privileged containers only, because mounts of the
// container reach the host.
func propagation(m *v1.VolumeMount, sc *v1.SecurityContext, at *field.Path) field.ErrorList {
	if m.MountPropagation == nil {
		return nil
	}
	path := at.Child("mountPropagation")
	privileged := sc != nil && sc.Privileged != nil && *sc.Privileged
	if *m.MountPropagation == v1.MountPropagationBidirectional && !privileged {
		return field.ErrorList{field.Forbidden(path,
			"Bidirectional mount propagation is available only to privileged containers")}
	}
	return OptionalOneOf(path, m.MountPropagation, v1.MountPropagationBidirectional, v1.MountPropagationHostToContainer,
		v1.MountPropagationNone)
}

// recursiveReadOnly checks that a recursively read-only mount is read-only and has no mount propagation (KEP-3857).
func recursiveReadOnly(m *v1.VolumeMount, at *field.Path) field.ErrorList {
	mode, path := m.RecursiveReadOnly, at.Child("recursiveReadOnly")
	if mode == nil {
		return nil
	}
	errs := OptionalOneOf(path, mode, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible,
		v1.RecursiveReadOnlyEnabled)
	if !m.ReadOnly {
		errs = append(errs, field.Forbidden(path, "may only be specified when readOnly is true"))
	}
	if *mode != v1.RecursiveReadOnlyDisabled && m.MountPropagation != nil &&
		*m.MountPropagation != v1.MountPropagationNone {
		errs = append(errs, field.Forbidden(path,
			"may only be specified when mountPropagation is None or not specified"))
	}
	return errs
}

// devices checks the volumes that a container uses as block devices (volumeDevices).
func (p podContainers) devices(c *v1.Container, at *field.Path) field.ErrorList {
	mountNames, mountPaths := map[string]bool{}, map[string]bool{}
	for _, m := range c.VolumeMounts {
		mountNames[m.Name], mountPaths[m.MountPath] = true, true
	}
	var errs field.ErrorList
	names, paths := map[string]bool{}, map[string]bool{}
	for i, d := range c.VolumeDevices {
		name, path := at.Index(i).Child("name"), at.Index(i).Child("devicePath")
		errs = append(errs, p.volumeName(d.Name, name)...)
		if v := p.volumes[d.Name]; v != nil && v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			errs = append(errs, field.Invalid(name, d.Name,
				"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		if d.Name != "" && names[d.Name] {
			errs = append(errs, field.Invalid(name, d.Name, "must be unique"))
		}
		if mountNames[d.Name] {
			errs = append(errs, field.Invalid(name, d.Name, "must not already exist in volumeMounts"))
		}
		switch {
		case d.DevicePath == "":
			errs = append(errs, field.Required(path, "must be the path of the device in the container"))
		case paths[d.DevicePath]:
			errs = append(errs, field.Invalid(path, d.DevicePath, "must be unique"))
		case mountPaths[d.DevicePath]:
			errs = append(errs, field.Invalid(path, d.DevicePath, "must not already exist as a path in volumeMounts"))
		default:
			errs = append(errs, noBacksteps(path, d.DevicePath)...)
		}
		names[d.Name], paths[d.DevicePath] = true, true
	}
	return errs
}
