// Package podobjecttest tests the behaviour of pods at an API server that the agent relies on. It has a Server that
// fakes an API server. Both the fake and a real server have to pass the tests.
package podobjecttest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
)

// Server holds the pods of one node. It supports only those patches that statuses need. Safe for concurrent use.
type Server struct {
	// Check is called before each call, while nothing else happens. Its error is the call's.
	Check func(c Call) error

	mu      sync.Mutex
	pods    map[types.NamespacedName]*v1.Pod
	version int
	uids    int
	to      apiclient.Sight
	held    []func(apiclient.Sight)
	hold    bool
}

// Call is a call that the agent makes.
type Call struct {
	// Verb is "create", "patch" or "delete".
	Verb string
	Name string
	// Pod is the object before the call; nil if there is none.
	Pod  *v1.Pod
	Body []byte
}

// NewServer returns a server without pods.
func NewServer() *Server { return &Server{pods: map[types.NamespacedName]*v1.Pod{}} }

var podGroup = schema.GroupResource{Resource: "pods"}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// Put creates or changes a pod, as another client would. It returns the new object.
func (s *Server) Put(p *v1.Pod) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = p.DeepCopy()
	k := key(p.Namespace, p.Name)
	kind := watch.Modified
	if s.pods[k] == nil {
		kind = watch.Added
		if s.uids++; p.UID == "" {
			p.UID = types.UID(fmt.Sprintf("uid-%d", s.uids))
		}
	}
	s.store(kind, p)
	return p.DeepCopy()
}

// Get returns a pod, nil if there is none.
func (s *Server) Get(namespace, name string) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[key(namespace, name)].DeepCopy()
}

// Remove deletes a pod by force, as another client would.
func (s *Server) Remove(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(key(namespace, name))
}

// Do calls f while no call is made.
func (s *Server) Do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Hold delays the events of the watch while on is true. With false, it sends the delayed events.
func (s *Server) Hold(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = on
	if !on {
		for _, tell := range s.held {
			tell(s.to)
		}
		s.held = nil
	}
}

// Relist sends a list, and drops delayed events.
func (s *Server) Relist() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = nil
	if s.to != nil {
		s.to.Listed(s.list())
	}
}

// Back lowers the versions of all objects, and of later changes, below the versions that were sent before, as if the
// store was restored from a backup.
func (s *Server) Back() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = 0
	for _, p := range s.pods {
		s.version++
		p.ResourceVersion = strconv.Itoa(s.version)
	}
}

func (s *Server) list() apiclient.List {
	all := apiclient.List{Version: strconv.Itoa(s.version)}
	for _, p := range s.pods {
		all.Objects = append(all.Objects, p.DeepCopy())
	}
	return all
}

// Watch passes the pods, and their changes, until ctx ends.
func (s *Server) Watch(ctx context.Context, to apiclient.Sight) {
	s.mu.Lock()
	s.to = to
	to.Listed(s.list())
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = nil
}

func (s *Server) store(kind watch.EventType, p *v1.Pod) {
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
	s.pods[key(p.Namespace, p.Name)] = p
	s.tell(kind, p.DeepCopy())
}

func (s *Server) remove(k types.NamespacedName) {
	if p := s.pods[k]; p != nil {
		delete(s.pods, k)
		s.version++
		s.tell(watch.Deleted, p.DeepCopy())
	}
}

func (s *Server) tell(kind watch.EventType, p *v1.Pod) {
	tell := func(to apiclient.Sight) {
		if to != nil {
			to.Changed(kind, p)
		}
	}
	if s.hold {
		s.held = append(s.held, tell)
		return
	}
	tell(s.to)
}

func (s *Server) begin(verb, namespace, name string, body []byte) (*v1.Pod, error) {
	p := s.pods[key(namespace, name)]
	if s.Check != nil {
		if err := s.Check(Call{verb, name, p.DeepCopy(), body}); err != nil {
			return nil, err
		}
	}
	if p == nil {
		return nil, errors.NewNotFound(podGroup, name)
	}
	return p, nil
}

// Create creates a pod.
func (s *Server) Create(_ context.Context, p *v1.Pod) (*v1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.begin("create", p.Namespace, p.Name, nil); err == nil {
		return nil, errors.NewAlreadyExists(podGroup, p.Name)
	} else if !errors.IsNotFound(err) {
		return nil, err
	}
	next := p.DeepCopy()
	s.uids++
	next.UID = types.UID(fmt.Sprintf("uid-%d", s.uids))
	next.Status = v1.PodStatus{Phase: v1.PodPending}
	s.store(watch.Added, next)
	return next.DeepCopy(), nil
}

// PatchStatus applies a strategic merge patch to a status.
func (s *Server) PatchStatus(_ context.Context, namespace, name string, body []byte) (*v1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.begin("patch", namespace, name, body)
	if err != nil {
		return nil, err
	}
	next, err := patched(p, body)
	if err != nil {
		return nil, err
	}
	if before, err := json.Marshal(p); err != nil || string(before) == string(must(json.Marshal(next))) {
		return p.DeepCopy(), err
	}
	s.store(watch.Modified, next)
	return next.DeepCopy(), nil
}

func must(text []byte, err error) []byte {
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

func patched(p *v1.Pod, body []byte) (*v1.Pod, error) {
	var patch struct {
		Metadata struct{ UID types.UID }
		Status   map[string]any
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, errors.NewBadRequest(err.Error())
	}
	if patch.Metadata.UID != "" && patch.Metadata.UID != p.UID {
		return nil, errors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), p.Name,
			field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), patch.Metadata.UID, "field is immutable")})
	}
	text, err := json.Marshal(p.Status)
	if err != nil {
		return nil, err
	}
	var status map[string]any
	if err := json.Unmarshal(text, &status); err != nil {
		return nil, err
	}
	merge(status, patch.Status)
	if text, err = json.Marshal(status); err != nil {
		return nil, err
	}
	next := p.DeepCopy()
	next.Status = v1.PodStatus{}
	return next, json.Unmarshal(text, &next.Status)
}

// merged are the lists that a strategic merge patch merges, with their merge keys.
var merged = map[string]string{"conditions": "type", "podIPs": "ip", "hostIPs": "ip"}

func merge(to, patch map[string]any) {
	for k, value := range patch {
		old, isMap := to[k].(map[string]any)
		next, becomesMap := value.(map[string]any)
		switch list, isList := value.([]any); {
		case value == nil:
			delete(to, k)
		case isMap && becomesMap:
			merge(old, next)
		case isList && merged[k] != "":
			was, _ := to[k].([]any)
			to[k] = mergeList(was, list, merged[k])
		default:
			to[k] = value
		}
	}
}

func mergeList(was, patch []any, by string) []any {
	now := slices.Clone(was)
	for _, e := range patch {
		m, _ := e.(map[string]any)
		if m["$patch"] == "replace" {
			now = nil
			continue
		}
		at := slices.IndexFunc(now, func(o any) bool { return o.(map[string]any)[by] == m[by] })
		switch {
		case m["$patch"] == "delete" && at >= 0:
			now = slices.Delete(now, at, at+1)
		case m["$patch"] == "delete":
		case at >= 0:
			both := maps.Clone(now[at].(map[string]any))
			merge(both, m)
			now[at] = both
		default:
			now = append(now, m)
		}
	}
	return now
}

// Delete deletes a pod at once, unless it has finalizers.
func (s *Server) Delete(_ context.Context, namespace, name string, uid types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.begin("delete", namespace, name, nil)
	if err != nil {
		return err
	}
	if p.UID != uid {
		return errors.NewConflict(podGroup, name,
			fmt.Errorf("the UID in the precondition (%s) is another than the UID in record (%s)", uid, p.UID))
	}
	if len(p.Finalizers) > 0 {
		next := p.DeepCopy()
		next.DeletionGracePeriodSeconds = ptr.To[int64](0)
		s.store(watch.Modified, next)
		return nil
	}
	s.remove(key(namespace, name))
	return nil
}
