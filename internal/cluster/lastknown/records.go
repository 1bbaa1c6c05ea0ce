package lastknown

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Names of records.
const (
	nodeRecord  = "node"
	uidRecord   = "nodeUID"
	heldRecord  = "held"
	podPrefix   = "pod/"
	tokenPrefix = "token/"
)

func podRecord(uid types.UID) string { return podPrefix + string(uid) }

func objectRecord(k object.Key) string {
	return string(k.Kind) + "/" + k.Namespace + "/" + k.Name
}

// tokenRecord is the name of a token's record: the pod's UID, and a hash of the request.
func tokenRecord(r object.TokenRequest) string {
	return tokenPrefix + string(r.UID) + "/" +
		checkpoint.Sum(fmt.Appendf(nil, "%q %q %q %q %d", r.Namespace, r.ServiceAccount, r.Pod, r.Audience, r.Life))
}

// keyOf is the inverse of objectRecord.
func keyOf(record string) (k object.Key, ok bool) {
	parts := strings.Split(record, "/")
	if len(parts) != 3 || !object.Kind(parts[0]).Known() {
		return k, false
	}
	return object.Key{Kind: object.Kind(parts[0]), Namespace: parts[1], Name: parts[2]}, true
}

// podContent is the content of a pod's record, objectContent that of an object's.
type podContent struct {
	Pod *v1.Pod `json:"pod"`
	// Uses are the names of the records of objects that the pod has asked for.
	Uses []string `json:"uses,omitempty"`
}

type objectContent struct {
	Object object.Object `json:"object"`
}

// tokenContent is the content of a token's record.
type tokenContent struct {
	Request object.TokenRequest `json:"request"`
	Token   string              `json:"token"`
	Issued  time.Time           `json:"issued"`
	Until   time.Time           `json:"until"`
}

// secret reports whether a record has to be encrypted.
func secret(record string) bool {
	k, ok := keyOf(record)
	return ok && k.Kind == object.Secret || strings.HasPrefix(record, tokenPrefix)
}

// contents returns the contents of the records of these names; nil for a record that has to be removed. mu is held.
func (s *Store) contents(names map[string]bool) map[string]any {
	all := make(map[string]any, len(names))
	tokens := make(map[string]object.TokenRequest, len(s.tokens))
	for r := range s.tokens {
		tokens[tokenRecord(r)] = r
	}
	for name := range names {
		all[name] = nil
		if unread := s.unread[name]; unread != nil {
			all[name] = unread
			continue
		}
		if name == nodeRecord {
			all[name] = s.node
		} else if name == uidRecord {
			all[name] = s.uid
		} else if name == heldRecord {
			if len(s.held) > 0 {
				all[name] = s.held
			}
		} else if uid, ok := strings.CutPrefix(name, podPrefix); ok {
			if p := s.pods[types.UID(uid)]; p != nil {
				c := podContent{Pod: p.pod}
				for k := range p.uses {
					c.Uses = append(c.Uses, objectRecord(k))
				}
				slices.Sort(c.Uses)
				all[name] = c
			}
		} else if r, ok := tokens[name]; ok {
			t := s.tokens[r]
			all[name] = tokenContent{r, t.Value(), t.Issued, t.Until}
		} else if k, ok := keyOf(name); ok {
			if o, known := s.objects[k]; known {
				all[name] = objectContent{o}
			}
		}
	}
	return all
}

// names are the names of all records. mu is held.
func (s *Store) names() map[string]bool {
	all := make(map[string]bool, 1+len(s.pods)+len(s.objects))
	if s.node != nil {
		all[nodeRecord] = true
	}
	if s.uid != "" {
		all[uidRecord] = true
	}
	if len(s.held) > 0 {
		all[heldRecord] = true
	}
	for uid := range s.pods {
		all[podRecord(uid)] = true
	}
	for k := range s.objects {
		all[objectRecord(k)] = true
	}
	for r := range s.tokens {
		all[tokenRecord(r)] = true
	}
	for name := range s.unread {
		all[name] = true
	}
	return all
}

// save writes the changed records, and reports whether that succeeded.
func (s *Store) save() bool {
	s.mu.Lock()
	changed := s.dirty
	if len(changed) == 0 {
		s.mu.Unlock()
		return true
	}
	s.dirty = map[string]bool{}
	outgrown, write, names := s.log.Outgrown(), s.log.Append, changed
	if outgrown {
		write, names = s.log.Replace, s.names()
	}
	contents, keys := s.contents(names), s.keys
	s.mu.Unlock()

	err := encode(contents, keys, write)
	if err != nil && outgrown && !s.log.Outgrown() { // the disk may have room for the changes alone
		s.mu.Lock()
		contents = s.contents(changed)
		s.mu.Unlock()
		err = encode(contents, keys, s.log.Append)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if (err == nil) != (s.failed.Message == "") { // report only the first of several failures in a row
		if s.failed = (pod.Problem{}); err != nil {
			s.failed = problem("objects of the API server can't be written to disk: %v; pods keep running, but a "+
				"restart without the API server uses the previous records", err)
		}
		s.outcome.Wake()
	}
	if err != nil {
		maps.Copy(s.dirty, changed)
	}
	return err == nil
}

// encode encodes records, encrypts secret ones, and passes them to the function write.
func encode(contents map[string]any, keys keys, write func(map[string]json.RawMessage) error) error {
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
		if _, encrypted := content.(json.RawMessage); err == nil && secret(name) && !encrypted {
			plain := text
			text, err = json.Marshal(keys.seal(name, plain))
			clear(plain)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		records[name] = text
	}
	return write(records)
}

// recorded is a pod as it is stored: its status has only a terminal phase, the QoS class and the conditions of other
// writers.
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

// Open reads the state that an earlier agent stored for the node of this name. Unusable records become Problems.
func (s *Store) Open(node string) {
	records, err := s.log.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = time.Now()
	wrong := []error{err}
	if s.keyFile != "" {
		if s.keys, s.noKeys = readKeys(s.keyFile); s.noKeys != nil {
			wrong = append(wrong, fmt.Errorf("the key of Secrets and tokens can't be used, so that none are kept: %w",
				s.noKeys))
		}
	}
	for name, text := range records { // pods first: they decide which objects are needed
		if uid, ok := strings.CutPrefix(name, podPrefix); ok {
			if err := s.restorePod(uid, node, text); err != nil {
				wrong = append(wrong, fmt.Errorf("the record of pod %s can't be used: %w", uid, err))
			}
		}
	}
	other := 0
	for name, text := range records {
		err := error(nil)
		if !strings.HasPrefix(name, podPrefix) {
			err = s.restore(name, node, text)
		}
		switch {
		case errors.Is(err, errOtherKey):
			s.unread[name] = text
			other++
		case err != nil:
			wrong = append(wrong, fmt.Errorf("record %s can't be used: %w", name, err))
		}
	}
	if other > 0 && s.noKeys == nil {
		wrong = append(wrong, fmt.Errorf(
			"%d Secrets and tokens were encrypted with another key than those in %s: pods that need them wait for "+
				"the API server", other, s.keyFile))
	}
	if err != nil && !errors.Is(err, checkpoint.ErrNewer) { // the file was set aside: write all again
		maps.Copy(s.dirty, s.names())
	}
	if len(s.dirty) > 0 {
		s.woken.Wake()
	}
	if err := errors.Join(wrong...); err != nil {
		s.damage = problem("some records of the API server's objects can't be used: %v; while it is unreachable, not "+
			"all pods are restored", err)
	}
}

// restorePod reads the record of a pod. mu is held.
func (s *Store) restorePod(uid, node string, text []byte) error {
	var c podContent
	if err := json.Unmarshal(text, &c); err != nil || c.Pod == nil || string(c.Pod.UID) != uid {
		return cmp.Or(err, errors.New("it isn't about that pod"))
	}
	if c.Pod.Spec.NodeName != node { // the pod is of another node that used this directory before
		s.dirty[podRecord(c.Pod.UID)] = true
		return nil
	}
	p := &storedPod{pod: c.Pod, uses: map[object.Key]bool{}}
	for _, used := range c.Uses {
		if k, ok := keyOf(used); ok && !p.uses[k] {
			p.uses[k] = true
			s.users[k]++
		}
	}
	s.pods[c.Pod.UID] = p
	return nil
}

// restore reads a record that isn't a pod's. A record that no pod needs is marked for removal. mu is held.
func (s *Store) restore(name, node string, text []byte) error {
	k, isObject := keyOf(name)
	uid, isToken := strings.CutPrefix(name, tokenPrefix)
	uid, _, _ = strings.Cut(uid, "/")
	switch {
	case name == nodeRecord:
		var n v1.Node
		if err := json.Unmarshal(text, &n); err != nil {
			return err
		}
		if n.Name == node {
			s.node = &n
		}
		return nil
	case name == uidRecord:
		return json.Unmarshal(text, &s.uid)
	case name == heldRecord:
		return json.Unmarshal(text, &s.held)
	case isObject && s.users[group(k)] > 0, isToken && s.pods[types.UID(uid)] != nil:
	default:
		s.dirty[name] = true
		return nil
	}
	if secret(name) {
		if s.keyFile == "" { // they must not stay on disk, not even encrypted
			s.dirty[name] = true
			s.log.Outgrow()
			return nil
		}
		plain, err := s.decrypt(name, text)
		if err != nil {
			return err
		}
		defer clear(plain)
		text = plain
	}
	if isToken {
		var c tokenContent
		if json.Unmarshal(text, &c) != nil {
			return errors.New("it is no token")
		}
		s.tokens[c.Request] = object.NewToken(c.Token, c.Issued, c.Until)
		return nil
	}
	c := objectContent{k.Kind.New()}
	if json.Unmarshal(text, &c) != nil { // the error might quote a secret
		return errors.New("it is no " + string(k.Kind))
	}
	s.objects[k] = c.Object
	return nil
}

// decrypt decrypts a record. A record that was encrypted with an older key is marked to be written again with the
// newest key. mu is held.
func (s *Store) decrypt(name string, text []byte) ([]byte, error) {
	var c sealed
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	plain, current, err := s.keys.open(name, c)
	if err == nil && !current {
		s.dirty[name] = true
		s.log.Outgrow()
	}
	return plain, err
}
