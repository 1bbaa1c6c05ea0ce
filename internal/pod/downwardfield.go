package pod

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ErrUnknownField is wrapped by the error that DownwardField returns for a field that it can't select.
var ErrUnknownField = errors.New("no such field")

// DownwardField is the value of a field of the pod's metadata, as environment variables and files of volumes show it
// (https://kubernetes.io/docs/concepts/workloads/pods/downward-api/): metadata.name, metadata.namespace,
// metadata.uid, metadata.labels and metadata.annotations, as a whole or a single one (metadata.labels['KEY']; empty
// if the pod has no such label). A whole map is written as one line KEY="VALUE" for each key, sorted by key. The
// values are escaped, and the last line has no line break.
//
// These are the fields that volumes may show (API: DownwardAPIVolumeFile.fieldRef); environment variables may show
// further fields, but no whole maps.
func DownwardField(p *v1.Pod, path string) (string, error) {
	switch path {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "metadata.labels":
		return lines(p.Labels), nil
	case "metadata.annotations":
		return lines(p.Annotations), nil
	}
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.labels":
			return p.Labels[key], nil
		case "metadata.annotations":
			return p.Annotations[key], nil
		}
	}
	return "", fmt.Errorf("fieldRef can't select %q (%w): use metadata.name, metadata.namespace, metadata.uid, "+
		"metadata.labels, metadata.annotations, metadata.labels['KEY'] or metadata.annotations['KEY']", path,
		ErrUnknownField)
}

// subscript splits "name['key']".
func subscript(path string) (name, key string, ok bool) {
	name, rest, ok := strings.Cut(path, "['")
	if !ok {
		return "", "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	return name, key, ok
}

func lines(m map[string]string) string {
	list := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(list, "\n")
}
