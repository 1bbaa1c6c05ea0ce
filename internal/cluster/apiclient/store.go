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

// errOtherStore ends a watch whose version has no meaning in the server's present data.
var errOtherStore = errors.New("the API server's data isn't that of before")

// Newer reports whether a resource version is newer than another one of the same resource (KEP-5504); known is false if
// they can't be compared.
func Newer(version, than string) (later, known bool) {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return order > 0, err == nil
}

// store detects that the server's data doesn't continue its earlier data: the data was restored from a backup, was
// lost, or is another cluster's. Then a watch that continues from its old version would receive no changes until the
// new versions exceed the old one, and would never receive the changes before that (kubernetes/kubernetes#131115). The
// sign is the node's lease, which is written every few seconds: its version, comparable within a resource (KEP-5504),
// has decreased, or its UID has changed.
type store struct {
	log logr.Logger

	mu      sync.Mutex
	lease   types.UID
	version string
	// same is a context that ends when such a discontinuity is detected; other is its cancel function. A new context
	// then replaces it.
	same  context.Context
	other context.CancelFunc
}

func newStore(log logr.Logger) *store {
	s := &store{log: log}
	s.same, s.other = context.WithCancel(context.Background())
	return s
}

// now returns a context that ends when the server's data doesn't continue its present data.
func (s *store) now() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.same
}

// beat checks the lease that a heartbeat has returned. There is one heartbeat at a time.
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
