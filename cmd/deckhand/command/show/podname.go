package show

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
)

// defaultContainer is the annotation that names the container meant when none is
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#kubectl-kubernetes-io-default-container).
const defaultContainer = "kubectl.kubernetes.io/default-container"

// ErrNotFound is that there is no pod of a name.
var ErrNotFound = errors.New("not found")

// matchesPod reports whether a person who says name may mean this pod: its name, that
// without the node's, either with the namespace in front, or as kubectl prints it.
func matchesPod(p *v1.Pod, name, node string) bool {
	bare := bareName(p, name)
	return bare != "" && (bare == p.Name || node != "" && bare+"-"+node == p.Name)
}

// bareName is name without the pod's namespace or "pod"; empty if it names another namespace.
func bareName(p *v1.Pod, name string) string {
	first, rest, found := strings.Cut(name, "/")
	switch {
	case !found:
		return name
	case first == p.Namespace || first == "pod" || first == "pods" || first == "po":
		return rest
	}
	return ""
}

// FindPod returns the one pod that name means, which may also be the beginning of its
// name. Where one waits for its predecessor of the same name to end, it is the
// first in the snapshot.
func FindPod(s local.Snapshot, namespace, name string) (*v1.Pod, error) {
	return findPod(s, namespace, name, func(p *v1.Pod) bool {
		bare := bareName(p, name)
		return bare != "" && strings.HasPrefix(p.Name, bare)
	})
}

// NamedPod is FindPod for commands that change something: the beginning of a name isn't enough.
func NamedPod(s local.Snapshot, namespace, name string) (*v1.Pod, error) {
	return findPod(s, namespace, name)
}

// findPod returns the one pod that name is the name of or, if there is none, that one of the others finds.
func findPod(s local.Snapshot, namespace, name string, others ...func(*v1.Pod) bool) (*v1.Pod, error) {
	full := func(p *v1.Pod) bool { return bareName(p, name) == p.Name }
	short := func(p *v1.Pod) bool { return matchesPod(p, name, s.Node) }
	for _, means := range append([]func(*v1.Pod) bool{full, short}, others...) {
		var found []*v1.Pod
		var names []string
		for _, view := range s.Pods {
			if own := view.Pod.Namespace + "/" + view.Pod.Name; (namespace == "" || view.Pod.Namespace == namespace) && means(view.Pod) && !slices.Contains(names, own) {
				found = append(found, view.Pod)
				names = append(names, own)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return nil, fmt.Errorf("%q may be any of %s", name, strings.Join(names, ", "))
		}
	}
	if namespace != "" {
		return nil, fmt.Errorf("pod %q %w in namespace %s", name, ErrNotFound, namespace)
	}
	return nil, fmt.Errorf("pod %q %w", name, ErrNotFound)
}

// FindContainer returns the container that is meant when name, possibly empty, was given.
func FindContainer(p *v1.Pod, name string) (string, error) {
	var main, inits, debug []string
	for i := range p.Spec.Containers {
		main = append(main, p.Spec.Containers[i].Name)
	}
	for i := range p.Spec.InitContainers {
		inits = append(inits, p.Spec.InitContainers[i].Name)
	}
	for i := range p.Spec.EphemeralContainers {
		debug = append(debug, p.Spec.EphemeralContainers[i].Name)
	}
	if name == "" {
		name = p.Annotations[defaultContainer]
	}
	if name == "" && len(main) == 1 {
		return main[0], nil
	}
	all := slices.Concat(main, inits, debug)
	if slices.Contains(all, name) {
		return name, nil
	}
	choice := fmt.Sprintf("choose one of: [%s]", strings.Join(main, " "))
	if len(inits) > 0 {
		choice += fmt.Sprintf(" or one of the init containers: [%s]", strings.Join(inits, " "))
	}
	if len(debug) > 0 {
		choice += fmt.Sprintf(" or one of the ephemeral containers: [%s]", strings.Join(debug, " "))
	}
	if name == "" {
		return "", fmt.Errorf("a container name must be specified for pod %s, %s", p.Name, choice)
	}
	return "", fmt.Errorf("container %s is not valid for pod %s, %s", name, p.Name, choice)
}
