package show

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/suggest"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// defaultContainer is the annotation with the default container of commands
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#kubectl-kubernetes-io-default-container).
const defaultContainer = "kubectl.kubernetes.io/default-container"

// ErrNotFound means that there is no pod of the given name.
var ErrNotFound = errors.New("not found")

// KindError means that a name begins with a kind of object that an agent doesn't manage, such as deployment/web.
type KindError struct{ name, instead string }

func (e *KindError) Error() string { return e.name + " is no pod: " + e.instead }

// bareName returns name without the prefix "NAMESPACE/" with the namespace of p, or "pod/". It returns "" for a name
// with another prefix.
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

// FindPod returns the one pod that name means, which may be a prefix of the pod's name. If there are two pods of this
// name, because one waits for the other to end, it returns the first in the snapshot.
func FindPod(s local.Snapshot, namespace, name string) (*v1.Pod, error) {
	found, err := findPods(s, namespace, name, false)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range found {
		if own := p.Namespace + "/" + p.Name; !slices.Contains(names, own) {
			names = append(names, own)
		}
	}
	if len(names) > 1 {
		return nil, fmt.Errorf("%q may be any of %s", name, strings.Join(names, ", "))
	}
	return found[0], nil
}

// findPods returns the pods with this name or, if there are none and exact isn't set, those with this prefix.
func findPods(s local.Snapshot, namespace, name string, exact bool) ([]*v1.Pod, error) {
	full := func(p *v1.Pod) bool { return bareName(p, name) == p.Name }
	short := func(p *v1.Pod) bool { return s.Node != "" && bareName(p, name)+"-"+s.Node == p.Name }
	begins := func(p *v1.Pod) bool { return strings.HasPrefix(p.Name, bareName(p, name)) }
	all := []func(*v1.Pod) bool{full, short, begins}
	if exact {
		all = all[:2]
	}
	for _, means := range all {
		var found []*v1.Pod
		for _, view := range s.Pods {
			if (namespace == "" || view.Pod.Namespace == namespace) && bareName(view.Pod, name) != "" &&
				means(view.Pod) {
				found = append(found, view.Pod)
			}
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	if kind, _, named := strings.Cut(name, "/"); named {
		if text, ok := OtherKind(kind, s.Agent.Cluster); ok {
			return nil, &KindError{name, text}
		}
	}
	where, like := "", ""
	if namespace != "" {
		where = " in namespace " + namespace
	}
	if near := Like(s, name); len(near) > 0 {
		like = ", did you mean " + strings.Join(near, " or ") + "?"
	}
	return nil, fmt.Errorf("pod %q %w%s%s", name, ErrNotFound, where, like)
}

// Like returns the pods whose names, with or without the node's, are the most similar to name, as NAMESPACE/NAME.
func Like(s local.Snapshot, name string) []string {
	name = name[strings.LastIndex(name, "/")+1:]
	pods := map[string][]string{}
	for i := range s.Pods {
		p := s.Pods[i].Pod
		for _, own := range slices.Compact([]string{p.Name, strings.TrimSuffix(p.Name, "-"+s.Node)}) {
			pods[own] = append(pods[own], p.Namespace+"/"+p.Name)
		}
	}
	// A short word with two typing errors may be any other word.
	near := pods[suggest.Of(name, slices.Values(slices.Sorted(maps.Keys(pods))), 1+min(1, len(name)/6))]
	slices.Sort(near)
	return slices.Compact(near)
}

func containers(p *v1.Pod) (inits, main, debug []string) {
	for i := range p.Spec.InitContainers {
		inits = append(inits, p.Spec.InitContainers[i].Name)
	}
	for i := range p.Spec.Containers {
		main = append(main, p.Spec.Containers[i].Name)
	}
	for i := range p.Spec.EphemeralContainers {
		debug = append(debug, p.Spec.EphemeralContainers[i].Name)
	}
	return inits, main, debug
}

// FindContainer returns the container called name. If name is empty, it returns the default container or, if the pod
// has none, the first container; the remark names it if there are several.
func FindContainer(p *v1.Pod, name string) (container, remark string, err error) {
	inits, main, debug := containers(p)
	all := slices.Concat(main, inits, debug)
	if name == "" {
		name = p.Annotations[defaultContainer]
	}
	switch {
	case slices.Contains(all, name):
		return name, "", nil
	case name == "" && len(all) == 1:
		return main[0], "", nil
	case name == "":
		of := slices.Clone(main)
		for _, name := range inits {
			of = append(of, name+" (init)")
		}
		for _, name := range debug {
			of = append(of, name+" (ephem)")
		}
		return main[0], fmt.Sprintf("Defaulted container %q out of: %s", main[0], strings.Join(of, ", ")), nil
	}
	choice := fmt.Sprintf("choose one of: [%s]", strings.Join(main, " "))
	if len(inits) > 0 {
		choice += fmt.Sprintf(" or one of the init containers: [%s]", strings.Join(inits, " "))
	}
	if len(debug) > 0 {
		choice += fmt.Sprintf(" or one of the ephemeral containers: [%s]", strings.Join(debug, " "))
	}
	return "", "", fmt.Errorf("container %s is not valid for pod %s, %s", name, p.Name, choice)
}

// CheckRuns returns an error with the reason if a container doesn't run.
func CheckRuns(s local.Snapshot, p *v1.Pod, container string) error {
	i := slices.IndexFunc(s.Pods, func(v local.PodView) bool { return v.Pod == p })
	status := pod.StatusNamed(&p.Status, container)
	if i < 0 || status != nil && status.State.Running != nil {
		return nil
	}
	why := ""
	for _, w := range s.Pods[i].Waits {
		if w.Container == container || w.Container == "" && why == "" {
			why = w.Text
		}
	}
	switch {
	case s.Pods[i].Stopped:
		why = fmt.Sprintf("`deckhand start %s` starts its pod", p.Name)
	case why != "" || status == nil:
	case status.State.Terminated != nil:
		why = fmt.Sprintf("it has ended with exit code %d", status.State.Terminated.ExitCode)
	case status.State.Waiting != nil:
		why = status.State.Waiting.Reason
	}
	if why != "" {
		why = ": " + why
	}
	return fmt.Errorf("container %s of pod %s doesn't run%s (`deckhand why %s` says more)", container, p.Name, why,
		p.Name)
}
