// Package lastknown is what an API server said last of this node's pods, and of what they refer to, kept on disk: with the API server
// gone, a node that is started again goes on with it.
//
// It is one file of records (checkpoint.Log): the node, each pod with what it has asked for, and each of those objects. An object is
// kept as long as a pod is that has asked for it. Nothing here goes by the clock.
package lastknown

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// version is the format's version. A reader refuses newer ones.
const version = 1

const (
	// saveEvery is the shortest time between two writes: of a burst of changes only the newest state is written.
	saveEvery = time.Second
	// retryEvery is how long to wait before a failed write is tried again.
	retryEvery = 20 * time.Second
)

// patience is how long a server that hasn't been heard of yet isn't away, after Open: a node that starts isn't to run, for a moment, what the
// server has ended meanwhile.
const patience = time.Second

// Server is the API server.
type Server interface {
	// Reached says since when it answers, or since when and why it doesn't; the time is zero before it was asked.
	Reached() (ok bool, since time.Time, err error)
}

// Store is what is known. What it is handed and returns is read-only. Safe for concurrent use.
type Store struct {
	log     *checkpoint.Log
	server  Server
	woken   wake.Slot
	outcome wake.Group

	mu     sync.Mutex
	opened time.Time
	node   *v1.Node
	pods   map[types.UID]*kept
	// users are how many pods have asked for an object, objects what is known of those; nil for one that isn't there.
	users   map[object.Key]int
	objects map[object.Key]object.Object
	// dirty are the names of the records that aren't on disk as they should be.
	dirty map[string]bool
	// damage is what of the file couldn't be used, failed why the newest state isn't on disk; neither if its message is empty.
	damage, failed pod.Problem
}

// kept is a pod, and what it has asked for.
type kept struct {
	pod  *v1.Pod
	uses map[object.Key]bool
}

// New returns a store that knows nothing, in the file at a path, of what a server has said.
func New(path string, server Server) *Store {
	return &Store{log: checkpoint.NewLog(path, version), server: server, woken: wake.NewSlot(), pods: map[types.UID]*kept{},
		users: map[object.Key]int{}, objects: map[object.Key]object.Object{}, dirty: map[string]bool{}}
}

// Run writes what changes until ctx ends, and what is left then. The error is nil.
func (s *Store) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			s.save()
			return nil
		case <-s.woken:
		}
		pause := saveEvery
		if !s.save() {
			pause = retryEvery
			s.woken.Wake()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// Away reports whether what was known last has to do, as the server doesn't answer.
func (s *Store) Away() bool {
	ok, since, _ := s.server.Reached()
	s.mu.Lock()
	defer s.mu.Unlock()
	return !ok && (!since.IsZero() || time.Since(s.opened) >= patience)
}

// Patience is how long nothing has to be heard of a server until it is Away.
func (s *Store) Patience() time.Duration { return patience }

// Problems are what a person should know of the file.
func (s *Store) Problems() []pod.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc([]pod.Problem{s.damage, s.failed}, func(p pod.Problem) bool { return p.Message == "" })
}

func problem(format string, args ...any) pod.Problem {
	return pod.Problem{Source: pod.SourceAPI, Origin: Origin, Message: fmt.Sprintf(format, args...), Since: time.Now()}
}

// Origin is where it all comes from, for people.
const Origin = "the API server"

// Subscribe returns what is woken when Problems may have changed.
func (s *Store) Subscribe() (changed <-chan struct{}, stop func()) { return s.outcome.Subscribe() }

// Node is the node as the API server had it, as far as SetNode keeps that; nil if it isn't known.
func (s *Store) Node() *v1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}

// SetNode takes in the node's object: what of it says where pods may run, and which addresses they have.
func (s *Store) SetNode(n *v1.Node) {
	next := &v1.Node{Spec: v1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs, Taints: n.Spec.Taints}, Status: v1.NodeStatus{Addresses: n.Status.Addresses}}
	next.Name, next.Labels = n.Name, n.Labels
	if ttl, ok := n.Annotations[v1.ObjectTTLAnnotationKey]; ok {
		next.Annotations = map[string]string{v1.ObjectTTLAnnotationKey: ttl}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !equality.Semantic.DeepEqual(s.node, next) {
		s.node = next
		s.touch(nodeRecord)
	}
}

// Pods are those that SetPods was told last.
func (s *Store) Pods() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*v1.Pod, 0, len(s.pods))
	for _, p := range s.pods {
		list = append(list, p.pod)
	}
	return list
}

// SetPods takes in all pods there are. One that is the same pointer as before hasn't changed.
func (s *Store) SetPods(pods []*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := maps.Clone(s.pods)
	for _, p := range pods {
		delete(gone, p.UID)
		switch k := s.pods[p.UID]; {
		case k == nil:
			s.pods[p.UID] = &kept{pod: p, uses: map[object.Key]bool{}}
		case k.pod == p:
			continue
		default:
			k.pod = p
		}
		s.touch(podRecord(p.UID))
	}
	for uid := range gone {
		s.forget(uid)
		delete(s.pods, uid)
		s.touch(podRecord(uid))
	}
}

// Asks says that a pod has asked for an object, or for all Services.
func (s *Store) Asks(uid types.UID, k object.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[uid]
	if p == nil || p.uses[k] {
		return
	}
	p.uses[k] = true
	s.users[k]++
	s.touch(podRecord(uid))
}

// Forget says that a pod needs nothing any more of what it has asked for.
func (s *Store) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[uid]; p != nil && len(p.uses) > 0 {
		s.forget(uid)
		s.touch(podRecord(uid))
	}
}

// forget drops what no other pod has asked for. mu is held.
func (s *Store) forget(uid types.UID) {
	p := s.pods[uid]
	for k := range p.uses {
		if s.users[k]--; s.users[k] > 0 {
			continue
		}
		delete(s.users, k)
		for o := range s.objects {
			if group(o) == k {
				s.drop(o)
			}
		}
	}
	clear(p.uses)
}

// drop forgets an object. mu is held.
func (s *Store) drop(k object.Key) {
	delete(s.objects, k)
	s.touch(objectRecord(k))
}

// group is what pods ask for to learn of an object: Services are asked for together.
func group(k object.Key) object.Key {
	if k.Kind == object.Service {
		return object.Key{Kind: object.Service}
	}
	return k
}

// Keeps reports whether objects of a kind are kept. Secrets aren't.
func Keeps(k object.Kind) bool { return k != object.Secret }

// WhyUnknown goes on from why the API server can't be asked for an object with why it isn't known here; empty for one that may be.
func (s *Store) WhyUnknown(k object.Key) string {
	if Keeps(k.Kind) {
		return ""
	}
	return "; Secrets aren't kept on this node"
}

// Object is what was known of an object last: that there is none if it is nil. known is false if nothing is.
func (s *Store) Object(k object.Key) (o object.Object, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, known = s.objects[k]
	return o, known
}

// SetObject takes in an object that a pod has asked for; nil if it isn't there.
func (s *Store) SetObject(k object.Key, o object.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(k, o)
}

// set is SetObject. mu is held.
func (s *Store) set(k object.Key, o object.Object) {
	if s.users[group(k)] == 0 || !Keeps(k.Kind) {
		return
	}
	before, known := s.objects[k]
	s.objects[k] = o
	if !known || (before == nil) != (o == nil) || o != nil && before != o && !equality.Semantic.DeepEqual(before, o) {
		s.touch(objectRecord(k))
	}
}

// Services are all that were known last, by namespace and name; nil if they weren't.
func (s *Store) Services() map[string]map[string]*v1.Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.objects[object.Key{Kind: object.Service}]; !known {
		return nil
	}
	all := map[string]map[string]*v1.Service{}
	for _, o := range s.objects {
		if service, ok := o.(*v1.Service); ok {
			if all[service.Namespace] == nil {
				all[service.Namespace] = map[string]*v1.Service{}
			}
			all[service.Namespace][service.Name] = service
		}
	}
	return all
}

// SetServices takes in all Services.
func (s *Store) SetServices(all map[string]map[string]*v1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.objects {
		if k.Kind == object.Service && k.Name != "" && all[k.Namespace][k.Name] == nil {
			s.drop(k)
		}
	}
	s.set(object.Key{Kind: object.Service}, nil) // they are known
	for namespace, services := range all {
		for name, service := range services {
			s.set(object.Key{Kind: object.Service, Namespace: namespace, Name: name}, service)
		}
	}
}

// DropService says that a Service has gone.
func (s *Store) DropService(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := (object.Key{Kind: object.Service, Namespace: namespace, Name: name}); s.objects[k] != nil {
		s.drop(k)
	}
}

// touch has a record written. mu is held.
func (s *Store) touch(record string) {
	s.dirty[record] = true
	s.woken.Wake()
}

// The names of records.
const (
	nodeRecord = "node"
	podPrefix  = "pod/"
)

func podRecord(uid types.UID) string { return podPrefix + string(uid) }

func objectRecord(k object.Key) string {
	return string(k.Kind) + "/" + k.Namespace + "/" + k.Name
}

// keyOf is the key that objectRecord made a name of.
func keyOf(record string) (k object.Key, ok bool) {
	parts := strings.Split(record, "/")
	if len(parts) != 3 || !object.Kind(parts[0]).Known() {
		return k, false
	}
	return object.Key{Kind: object.Kind(parts[0]), Namespace: parts[1], Name: parts[2]}, true
}

// podContent is the record of a pod, objectContent that of an object.
type podContent struct {
	Pod *v1.Pod `json:"pod"`
	// Uses are the names of the records of what it has asked for.
	Uses []string `json:"uses,omitempty"`
}

type objectContent struct {
	Object object.Object `json:"object"`
}

// contents returns what the records of these names have to say; nil for one that is to be removed. mu is held.
func (s *Store) contents(names map[string]bool) map[string]any {
	all := make(map[string]any, len(names))
	for name := range names {
		all[name] = nil
		if name == nodeRecord {
			all[name] = s.node
		} else if uid, ok := strings.CutPrefix(name, podPrefix); ok {
			if p := s.pods[types.UID(uid)]; p != nil {
				c := podContent{Pod: p.pod}
				for k := range p.uses {
					c.Uses = append(c.Uses, objectRecord(k))
				}
				slices.Sort(c.Uses)
				all[name] = c
			}
		} else if k, ok := keyOf(name); ok {
			if o, known := s.objects[k]; known {
				all[name] = objectContent{o}
			}
		}
	}
	return all
}

// names are those of all records there are. mu is held.
func (s *Store) names() map[string]bool {
	all := make(map[string]bool, 1+len(s.pods)+len(s.objects))
	if s.node != nil {
		all[nodeRecord] = true
	}
	for uid := range s.pods {
		all[podRecord(uid)] = true
	}
	for k := range s.objects {
		all[objectRecord(k)] = true
	}
	return all
}

// save writes what isn't on disk, and reports whether that worked.
func (s *Store) save() bool {
	s.mu.Lock()
	changed := s.dirty
	if len(changed) == 0 {
		s.mu.Unlock()
		return true
	}
	s.dirty = map[string]bool{}
	write, names := s.log.Append, changed
	if s.log.Outgrown() {
		write, names = s.log.Replace, s.names()
	}
	contents := s.contents(names)
	s.mu.Unlock()

	err := encode(contents, write)
	s.mu.Lock()
	defer s.mu.Unlock()
	if (err == nil) != (s.failed.Message == "") { // while it goes on failing the first error is told
		if s.failed = (pod.Problem{}); err != nil {
			s.failed = problem("what the API server says can't be kept on disk: %v; pods run on, but should this node start again without the API server, it goes by what was kept before", err)
		}
		s.outcome.Wake()
	}
	if err != nil {
		maps.Copy(s.dirty, changed)
	}
	return err == nil
}

// encode writes records.
func encode(contents map[string]any, write func(map[string]json.RawMessage) error) error {
	records := make(map[string]json.RawMessage, len(contents))
	for name, content := range contents {
		switch c := content.(type) {
		case nil:
			records[name] = nil
			continue
		case podContent:
			c.Pod = recorded(c.Pod)
			content = c
		}
		text, err := json.Marshal(content)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		records[name] = text
	}
	return write(records)
}

// recorded is a pod without what the node itself tells of it: of its status, what others have said.
func recorded(p *v1.Pod) *v1.Pod {
	r := *p
	r.ResourceVersion, r.ManagedFields = "", nil
	r.Status = v1.PodStatus{Phase: pod.Terminal(p.Status.Phase), QOSClass: p.Status.QOSClass}
	for _, c := range p.Status.Conditions {
		if !apistatus.Ours(c.Type) {
			r.Status.Conditions = append(r.Status.Conditions, c)
		}
	}
	return &r
}

// Open reads what an earlier agent knew of the node of this name. What can't be used is among the Problems.
func (s *Store) Open(node string) {
	records, err := s.log.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = time.Now()
	wrong := []error{err}
	for name, text := range records {
		if uid, ok := strings.CutPrefix(name, podPrefix); ok {
			var c podContent
			if err := json.Unmarshal(text, &c); err != nil || c.Pod == nil || string(c.Pod.UID) != uid {
				wrong = append(wrong, fmt.Errorf("the record of pod %s can't be used: %w", uid, cmp.Or(err, errors.New("it isn't about that pod"))))
				continue
			}
			if c.Pod.Spec.NodeName != node {
				s.dirty[name] = true // of another node, which had this directory
				continue
			}
			p := &kept{pod: c.Pod, uses: map[object.Key]bool{}}
			for _, used := range c.Uses {
				if k, ok := keyOf(used); ok {
					p.uses[k] = true
					s.users[k]++
				}
			}
			s.pods[c.Pod.UID] = p
		}
	}
	for name, text := range records {
		k, ok := keyOf(name)
		switch {
		case name == nodeRecord:
			var n v1.Node
			if err := json.Unmarshal(text, &n); err != nil {
				wrong = append(wrong, fmt.Errorf("the record of the node can't be used: %w", err))
			} else if n.Name == node {
				s.node = &n
			}
		case strings.HasPrefix(name, podPrefix):
		case !ok || s.users[group(k)] == 0 || !Keeps(k.Kind):
			s.dirty[name] = true
		default:
			if err := s.restore(k, text); err != nil {
				wrong = append(wrong, fmt.Errorf("the record of %s can't be used: %w", k, err))
			}
		}
	}
	if len(s.dirty) > 0 {
		s.woken.Wake()
	}
	if err := errors.Join(wrong...); err != nil {
		s.damage = problem("of what the API server said last, some can't be used: %v; while it is away, less of what ran here comes back", err)
	}
}

// restore takes in the record of an object. mu is held.
func (s *Store) restore(k object.Key, text []byte) error {
	c := objectContent{k.Kind.New()}
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	s.objects[k] = c.Object
	return nil
}
