package validation

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// envFields lists the fields of the pod that an environment variable can show (the API's EnvVarSource.fieldRef).
func envFields() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

// volumeFields lists the fields of the pod that a file of a downwardAPI volume can show.
func volumeFields() []string {
	return []string{"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"}
}

// fieldRef checks a reference to one of the pod's fields. The field must be in allowed, or be a single label or
// annotation: metadata.labels['key'].
func fieldRef(at *field.Path, ref *v1.ObjectFieldSelector, allowed []string) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, OneOf(at.Child("apiVersion"), ref.APIVersion, "v1")...)
	fieldPath := at.Child("fieldPath")
	if ref.FieldPath == "" {
		return append(errs, field.Required(fieldPath,
			"must be one of "+quoted(allowed)+", metadata.labels['<key>'] or metadata.annotations['<key>']"))
	}
	if base, key, ok := subscript(ref.FieldPath); ok {
		return append(errs, subscripted(fieldPath, ref.FieldPath, base, key)...)
	}
	if !slices.Contains(allowed, ref.FieldPath) {
		errs = append(errs, field.NotSupported(fieldPath, ref.FieldPath, allowed))
	}
	return errs
}

// subscript splits metadata.labels['key'] into metadata.labels and key.
func subscript(path string) (base, key string, ok bool) {
	base, rest, found := strings.Cut(path, "['")
	key, tail, closed := strings.Cut(rest, "']")
	return base, key, found && closed && tail == ""
}

func subscripted(at *field.Path, whole, base, key string) field.ErrorList {
	switch base {
	case "metadata.labels":
		return Invalid(at, whole, validation.IsQualifiedName(key))
	case "metadata.annotations":
		return Invalid(at, whole, validation.IsQualifiedName(strings.ToLower(key)))
	}
	return field.ErrorList{field.Invalid(at, whole, "only metadata.labels and metadata.annotations can have a ['key']")}
}

// resourceRef checks a reference to a container's requests or limits. needsContainer says that the reference has to
// name the container, as in volumes: in an environment variable, its own container is the default.
func resourceRef(at *field.Path, ref *v1.ResourceFieldSelector, needsContainer bool) field.ErrorList {
	var errs field.ErrorList
	if needsContainer {
		errs = append(errs, Required(at.Child("containerName"), ref.ContainerName,
			"must name a container of the pod")...)
	}
	if ref.Resource == "" {
		return append(errs, field.Required(at.Child("resource"),
			"must name a limit or request, such as \"limits.cpu\" or \"requests.memory\""))
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	known := slices.Contains([]string{"cpu", "memory", "ephemeral-storage"}, name) ||
		strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	if kind != "limits" && kind != "requests" || !known {
		return append(errs, field.NotSupported(at.Child("resource"), ref.Resource, []string{
			"limits.cpu", "limits.ephemeral-storage", "limits.hugepages-*", "limits.memory",
			"requests.cpu", "requests.ephemeral-storage", "requests.hugepages-*", "requests.memory",
		}))
	}
	return append(errs, divisor(at.Child("divisor"), name, ref.Divisor)...)
}

func divisor(at *field.Path, name string, q resource.Quantity) field.ErrorList {
	if q.IsZero() {
		return nil
	}
	valid := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	if name == "cpu" {
		valid = []string{"1m", "1"}
	}
	for _, v := range valid {
		if q.Cmp(resource.MustParse(v)) == 0 {
			return nil
		}
	}
	return field.ErrorList{field.Invalid(at, q.String(),
		fmt.Sprintf("only divisor's values %s are supported with this resource", strings.Join(valid, ", ")))}
}
