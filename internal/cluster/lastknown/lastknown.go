// Package lastknown stores on disk the API server's last answers about this node's pods and the objects that they
// refer to. A node that restarts without the API server continues with them.
//
// They are one file of records (checkpoint.Log): the node, each pod with the names of the objects that it has asked
// for, and each of those objects. An object is stored as long as a pod that has asked for it. Nothing here depends on
// the clock. Secrets and tokens are stored only if an administrator has configured a key, and are encrypted with it.
package lastknown

import (
	"context"
	"encoding/json"
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
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// version is the version of the file's format. A reader refuses files of a newer version.
const version = 1

// saveEvery is the shortest time between two writes: of a burst of changes only the newest state is written.
const saveEvery = time.Second

// patience is how long after Open a server that wasn't reached yet isn't considered away: a node that starts must not
// briefly run pods that were deleted while it was down.
const patience = time.Second

// Server reports whether the API server can be reached.
type Server interface {
	// Reached reports whether the server answers, and since when that has been so. If the server doesn't answer, err is
	// the reason. The time is zero before the first call.
	Reached() (ok bool, since time.Time, err error)
}

// Store holds the API server's last answers. Objects that are passed to it or returned are read-only. Safe for
// concurrent use.
type Store struct {
	// DiskFreed wakes parts whose writes failed when a disk can be written again. It may be replaced before Run.
	DiskFreed *wake.Group

	log     *checkpoint.Log
	keyFile string
	server  Server
	woken   wake.Slot
	outcome wake.Group

	mu     sync.Mutex
	opened time.Time
	uid    types.UID
	held   []types.UID
	node   *v1.Node
	pods   map[types.UID]*storedPod
	// users counts the pods that have asked for an object. objects are the last answers about these objects; nil for
	// an object that doesn't exist.
	users   map[object.Key]int
	objects map[object.Key]object.Object
	tokens  map[object.TokenRequest]object.Token
	// keys are the keys in keyFile; empty if nothing is encrypted. unread are the records that none of these keys can
	// decrypt.
	keys   keys
	noKeys error
	unread map[string]json.RawMessage
	// dirty are the names of the records that aren't on disk in their newest state.
	dirty map[string]bool
	// damage says which part of the file couldn't be used, failed why the newest state isn't on disk. Their messages
	// are empty if there is no problem.
	damage, failed pod.Problem
}

// storedPod is a pod, and the objects that it has asked for.
type storedPod struct {
	pod  *v1.Pod
	uses map[object.Key]bool
}

// New returns an empty store with the file at a path. keyFile is empty if Secrets and tokens aren't stored.
func New(path, keyFile string, server Server) *Store {
	return &Store{DiskFreed: &wake.Group{}, log: checkpoint.NewLog(path, version), keyFile: keyFile, server: server,
		woken: wake.NewSlot(), pods: map[types.UID]*storedPod{},
		users: map[object.Key]int{}, objects: map[object.Key]object.Object{},
		tokens: map[object.TokenRequest]object.Token{}, unread: map[string]json.RawMessage{}, dirty: map[string]bool{}}
}

// Run writes changes until ctx ends, and the remaining ones then. The error is nil.
func (s *Store) Run(ctx context.Context) error {
	freed, stop := s.DiskFreed.Subscribe()
	defer stop()
	var retry wake.Retry
	for {
		select {
		case <-ctx.Done():
			s.save()
			return nil
		case <-s.woken:
		}
		pause, early := saveEvery, freed
		if s.save() {
			retry.Succeeded()
			early = nil
		} else {
			pause = retry.Failed()
			s.woken.Wake()
		}
		select {
		case <-ctx.Done():
		case <-early:
		case <-time.After(pause):
		}
	}
}

// Away reports whether stored answers have to be used because the server doesn't answer.
func (s *Store) Away() bool {
	ok, since, _ := s.server.Reached()
	s.mu.Lock()
	defer s.mu.Unlock()
	return !ok && (!since.IsZero() || time.Since(s.opened) >= patience)
}

// Patience is the time after Open from which a server that wasn't reached counts as away.
func (s *Store) Patience() time.Duration { return patience }

// Problems are the reasons why the file couldn't be read or written completely.
func (s *Store) Problems() []pod.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc([]pod.Problem{s.damage, s.failed}, func(p pod.Problem) bool { return p.Message == "" })
}

func problem(format string, args ...any) pod.Problem {
	return pod.Problem{Source: pod.SourceAPI, Origin: Origin, Message: fmt.Sprintf(format, args...), Since: time.Now()}
}

// Origin is the origin of the stored answers, in messages.
const Origin = "the API server"

// Subscribe returns a channel that receives when Problems may have changed.
func (s *Store) Subscribe() (changed <-chan struct{}, stop func()) { return s.outcome.Subscribe() }

// Node is the node's object as SetNode stored it; nil if it isn't stored.
func (s *Store) Node() *v1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}

// SetNode stores the parts of the node's object that decide where pods may run and which addresses they have.
func (s *Store) SetNode(n *v1.Node) {
	next := &v1.Node{Spec: v1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs, Taints: n.Spec.Taints},
		Status: v1.NodeStatus{Addresses: n.Status.Addresses}}
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

// NodeUID is the UID of the node's object at the API server that the pods are from; empty if it isn't stored.
func (s *Store) NodeUID() types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uid
}

// SetNodeUID stores the UID of the node's object at the API server that the pods are from.
func (s *Store) SetNodeUID(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uid = uid
	s.touch(uidRecord)
}

// Held are the UIDs that SetHeld stored last.
func (s *Store) Held() []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// SetHeld stores the UIDs, in order, of the pods that continue to run although the API server doesn't have them any
// more.
func (s *Store) SetHeld(uids []types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.held, uids) {
		s.held = uids
		s.touch(heldRecord)
	}
}

// Pods are the pods that SetPods stored last, in no order.
func (s *Store) Pods() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*v1.Pod, 0, len(s.pods))
	for _, p := range s.pods {
		list = append(list, p.pod)
	}
	return list
}

// SetPods stores all pods. A pod with the same pointer as before hasn't changed.
func (s *Store) SetPods(pods []*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := maps.Clone(s.pods)
	for _, p := range pods {
		delete(gone, p.UID)
		switch k := s.pods[p.UID]; {
		case k == nil:
			s.pods[p.UID] = &storedPod{pod: p, uses: map[object.Key]bool{}}
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

// Asks records that a pod has asked for an object, or for all Services. VolumeAttachments aren't stored: only the API
// server knows what is attached, and their metadata may be secret.
func (s *Store) Asks(uid types.UID, k object.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[uid]
	if p == nil || p.uses[k] || k.Kind == object.VolumeAttachment {
		return
	}
	p.uses[k] = true
	s.users[k]++
	s.touch(podRecord(uid))
}

// Forget records that a pod doesn't need the objects any more that it has asked for.
func (s *Store) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[uid] != nil {
		if len(s.pods[uid].uses) > 0 {
			s.touch(podRecord(uid))
		}
		s.forget(uid)
	}
}

// forget drops objects that no other pod has asked for, and the pod's tokens. mu is held.
func (s *Store) forget(uid types.UID) {
	p := s.pods[uid]
	for k := range p.uses {
		if s.users[k]--; s.users[k] > 0 {
			continue
		}
		delete(s.users, k)
		if record := objectRecord(k); s.unread[record] != nil {
			s.touch(record)
		}
		for o := range s.objects {
			if group(o) == k {
				s.drop(o)
			}
		}
	}
	clear(p.uses)
	for r := range s.tokens {
		if r.UID == uid {
			delete(s.tokens, r)
			s.touch(tokenRecord(r))
		}
	}
	for record := range s.unread {
		if strings.HasPrefix(record, tokenPrefix+string(uid)+"/") {
			s.touch(record)
		}
	}
}

// drop removes an object. mu is held.
func (s *Store) drop(k object.Key) {
	delete(s.objects, k)
	s.touch(objectRecord(k))
}

// group is the key by which pods ask for an object: Services are requested together.
func group(k object.Key) object.Key {
	if k.Kind == object.Service {
		return object.Key{Kind: object.Service}
	}
	return k
}

// WhyUnknown says why a Secret isn't stored. The text continues a message that says why the API server can't be
// reached. It is empty for other kinds, which are stored without a key.
func (s *Store) WhyUnknown(k object.Key) string {
	if k.Kind != object.Secret {
		return ""
	}
	return s.whyUnknown(objectRecord(k))
}

// WhyNoToken says why a token isn't stored, like WhyUnknown.
func (s *Store) WhyNoToken(r object.TokenRequest) string { return s.whyUnknown(tokenRecord(r)) }

func (s *Store) whyUnknown(record string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.keyFile == "":
		return "; without --offline-secrets-key, this node keeps none for such times"
	case s.noKeys != nil:
		return "; without a key, this node keeps none for such times: " + s.noKeys.Error()
	case s.unread[record] != nil:
		return "; its record was encrypted with another key than those in " + s.keyFile
	default:
		return "; nothing is kept of it"
	}
}

// Token is the newest token for a request.
func (s *Store) Token(r object.TokenRequest) (t object.Token, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, known = s.tokens[r]
	return t, known
}

// SetToken stores the newest token for a request, if tokens are stored.
func (s *Store) SetToken(r object.TokenRequest, t object.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, known := s.tokens[r]; s.pods[r.UID] != nil && len(s.keys) > 0 &&
		(!known || before.Value() != t.Value()) {
		s.tokens[r] = t
		s.touch(tokenRecord(r))
	}
}

// Object is the last answer about an object: nil if it doesn't exist. known is false if there is no answer.
func (s *Store) Object(k object.Key) (o object.Object, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, known = s.objects[k]
	return o, known
}

// SetObject stores an object that a pod has asked for; nil if it doesn't exist.
func (s *Store) SetObject(k object.Key, o object.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(k, o)
}

// set is SetObject. mu is held.
func (s *Store) set(k object.Key, o object.Object) {
	if s.users[group(k)] == 0 || k.Kind == object.Secret && len(s.keys) == 0 {
		return
	}
	before, known := s.objects[k]
	s.objects[k] = o
	if !known || (before == nil) != (o == nil) || o != nil && before != o && !equality.Semantic.DeepEqual(before, o) {
		s.touch(objectRecord(k))
	}
}

// Services are all stored Services, by namespace and name; nil if they weren't stored.
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

// SetServices stores all Services.
func (s *Store) SetServices(all map[string]map[string]*v1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.objects {
		if k.Kind == object.Service && k.Name != "" && all[k.Namespace][k.Name] == nil {
			s.drop(k)
		}
	}
	s.set(object.Key{Kind: object.Service}, nil) // marks Services as stored
	for namespace, services := range all {
		for name, service := range services {
			s.set(object.Key{Kind: object.Service, Namespace: namespace, Name: name}, service)
		}
	}
}

// DropService removes a deleted Service.
func (s *Store) DropService(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := (object.Key{Kind: object.Service, Namespace: namespace, Name: name}); s.objects[k] != nil {
		s.drop(k)
	}
}

// touch marks a record to be written. mu is held.
func (s *Store) touch(record string) {
	delete(s.unread, record)
	s.dirty[record] = true
	s.woken.Wake()
}
