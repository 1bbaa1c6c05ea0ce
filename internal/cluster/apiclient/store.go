package apiclient

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// errOtherStore is why a watch ends whose version says nothing to the server any more.
var errOtherStore = errors.New("the API server's data isn't that of before")

// store notices that what the server has doesn't go on from what it had: it was restored from a backup, it was lost, or
// it is another cluster's. A watch that goes on from an old version would hear nothing of that, as long as the versions
// there are lower, and what came before its own version never (kubernetes/kubernetes#131115). The sign is the node's
// lease, which is written every few seconds: its version, comparable with others of the same resource (KEP-5504), has
// gone back, or it isn't the same object.
type store struct {
	log logr.Logger

	mu      sync.Mutex
	lease   types.UID
	version string
	// same ends when that is noticed, by other; then there is a new one.
	same  context.Context
	other context.CancelFunc
}

func newStore(log logr.Logger) *store {
	s := &store{log: log}
	s.same, s.other = context.WithCancel(context.Background())
	return s
}

// now ends when what the server has is known not to go on from what it has now.
func (s *store) now() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.same
}

// beat takes in the lease as a heartbeat was answered it. Heartbeats are made one after the other.
func (s *store) beat(lease kruntime.Object) {
	l, err := meta.Accessor(lease)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	uid, version := s.lease, s.version
	s.lease, s.version = l.GetUID(), l.GetResourceVersion()
	order, err := resourceversion.CompareResourceVersion(s.version, version)
	if version == "" || s.lease == uid && (err != nil || order >= 0) {
		return
	}
	s.log.Info("The API server's data may not be that of before: all is listed again",
		"reason", fmt.Sprintf("the node's lease has the UID %s and version %s, before %s and %s", s.lease, s.version,
			uid, version))
	s.other()
	s.same, s.other = context.WithCancel(context.Background())
}
