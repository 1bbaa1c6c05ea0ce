package validation

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// nodeSources checks the sources of volumes that a node provides itself, such as emptyDir.
func nodeSources(s *v1.VolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.EmptyDir != nil {
		errs = append(errs, emptyDir(s.EmptyDir, at.Child("emptyDir"))...)
	}
	if s.HostPath != nil {
		errs = append(errs, hostPath(s.HostPath, at.Child("hostPath"))...)
	}
	if s.GitRepo != nil {
		path := at.Child("gitRepo")
		errs = append(errs, Required(path.Child("repository"), s.GitRepo.Repository,
			"must be the URL of a repository")...)
		errs = append(errs, localPath(path.Child("directory"), s.GitRepo.Directory)...)
	}
	if s.Image != nil {
		path := at.Child("image")
		errs = append(errs, imageReference(path.Child("reference"), s.Image.Reference)...)
		errs = append(errs, OneOf(path.Child("pullPolicy"), s.Image.PullPolicy, v1.PullAlways, v1.PullIfNotPresent,
			v1.PullNever)...)
	}
	if s.Secret != nil {
		path := at.Child("secret")
		errs = append(errs, Required(path.Child("secretName"), s.Secret.SecretName, "must name a Secret")...)
		errs = append(errs, fileMode(path.Child("defaultMode"), s.Secret.DefaultMode)...)
		errs = append(errs, keys(s.Secret.Items, path.Child("items"))...)
	}
	if s.ConfigMap != nil {
		path := at.Child("configMap")
		errs = append(errs, Required(path.Child("name"), s.ConfigMap.Name, "must name a ConfigMap")...)
		errs = append(errs, fileMode(path.Child("defaultMode"), s.ConfigMap.DefaultMode)...)
		errs = append(errs, keys(s.ConfigMap.Items, path.Child("items"))...)
	}
	if s.DownwardAPI != nil {
		path := at.Child("downwardAPI")
		errs = append(errs, fileMode(path.Child("defaultMode"), s.DownwardAPI.DefaultMode)...)
		errs = append(errs, downwardFiles(s.DownwardAPI.Items, path.Child("items"))...)
	}
	if s.Projected != nil {
		errs = append(errs, projected(s.Projected, at.Child("projected"))...)
	}
	return errs
}

func emptyDir(s *v1.EmptyDirVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.SizeLimit != nil && s.SizeLimit.Sign() < 0 {
		errs = append(errs, field.Forbidden(at.Child("sizeLimit"), "must be a valid resource quantity, zero or more"))
	}
	known := []v1.StorageMedium{v1.StorageMediumDefault, v1.StorageMediumMemory, v1.StorageMediumHugePages}
	if !slices.Contains(known, s.Medium) && !hugePagesMedium(s.Medium) {
		errs = append(errs, field.NotSupported(at.Child("medium"), s.Medium,
			[]string{"", "HugePages", "HugePages-<size>", "Memory"}))
	}
	return errs
}

func hugePagesMedium(m v1.StorageMedium) bool {
	size, ok := strings.CutPrefix(string(m), string(v1.StorageMediumHugePagesPrefix))
	if !ok {
		return false
	}
	q, err := resource.ParseQuantity(size)
	return err == nil && q.Sign() > 0
}

func hostPath(s *v1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Path == "" {
		errs = append(errs, field.Required(at.Child("path"), "must be a path on the node"))
	} else {
		errs = append(errs, noBacksteps(at.Child("path"), s.Path)...)
	}
	return append(errs, OptionalOneOf(at.Child("type"), s.Type, v1.HostPathUnset, v1.HostPathDirectoryOrCreate,
		v1.HostPathDirectory, v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev,
		v1.HostPathBlockDev)...)
}

// keys checks the list of the keys of a Secret or ConfigMap that become files, with the paths of the files.
func keys(items []v1.KeyToPath, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		item := at.Index(i)
		errs = append(errs, Required(item.Child("key"), items[i].Key, "must be a key of the object")...)
		errs = append(errs, localFile(item.Child("path"), items[i].Path)...)
		errs = append(errs, fileMode(item.Child("mode"), items[i].Mode)...)
	}
	return errs
}

func downwardFiles(files []v1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range files {
		f, item := &files[i], at.Index(i)
		errs = append(errs, localFile(item.Child("path"), f.Path)...)
		errs = append(errs, fileMode(item.Child("mode"), f.Mode)...)
		switch {
		case f.FieldRef == nil && f.ResourceFieldRef == nil:
			errs = append(errs, field.Required(item, "one of fieldRef and resourceFieldRef is required"))
		case f.FieldRef != nil && f.ResourceFieldRef != nil:
			errs = append(errs, field.Invalid(item, "resource",
				"fieldRef and resourceFieldRef can not be specified simultaneously"))
		}
		if f.FieldRef != nil {
			errs = append(errs, fieldRef(item.Child("fieldRef"), f.FieldRef, volumeFields())...)
		}
		if f.ResourceFieldRef != nil {
			errs = append(errs, resourceRef(item.Child("resourceFieldRef"), f.ResourceFieldRef, true)...)
		}
	}
	return errs
}
