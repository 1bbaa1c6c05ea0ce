package validation

import (
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Volumes checks all volumes of a pod with the name podName.
func Volumes(volumes []v1.Volume, podName string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := Unique{}
	for i := range volumes {
		v, item := &volumes[i], at.Index(i)
		errs = append(errs, Label(item.Child("name"), v.Name)...)
		errs = append(errs, names.Check(item.Child("name"), v.Name)...)
		errs = append(errs, exactlyOne(v.VolumeSource, item, "volume")...)
		errs = append(errs, nodeSources(&v.VolumeSource, item)...)
		errs = append(errs, claimSources(v, podName, item)...)
		errs = append(errs, networkSources(&v.VolumeSource, item)...)
		errs = append(errs, cloudSources(&v.VolumeSource, item)...)
	}
	return errs
}

// exactlyOne checks that exactly one of the pointers in a union is set. If several are set, the first is valid and
// the others are errors. It uses reflection on the API type, so it includes sources that a newer API adds.
func exactlyOne(union any, at *field.Path, what string) field.ErrorList {
	var errs field.ErrorList
	v := reflect.ValueOf(union)
	found := false
	for i := range v.NumField() {
		if v.Field(i).IsNil() {
			continue
		}
		if found {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			errs = append(errs, field.Forbidden(at.Child(name), "may not specify more than 1 "+what+" type"))
		}
		found = true
	}
	if !found {
		errs = append(errs, field.Required(at, "must specify a "+what+" type"))
	}
	return errs
}
