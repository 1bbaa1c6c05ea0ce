// Package health knows how the container runtime is doing: which one it is, what it can do,
// whether it answers, and why not.
package health

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// defaultName prefixes container IDs until the runtime has reported its name.
const defaultName = "containerd"

// askAgain is how often a runtime that isn't there is asked for its cgroup driver.
const askAgain = time.Second

// Runtime is what of the CRI is needed. Errors carry a gRPC status.
type Runtime interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context) (*runtimeapi.StatusResponse, error)
	RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
}

// State is what is known of the runtime. It follows the lists that the observed state makes:
// they succeed or fail as the runtime comes and goes. Its methods may be called concurrently.
type State struct {
	runtime Runtime
	log     logr.Logger
	// listed gets a value when a list has succeeded and the version isn't known.
	listed wake.Slot

	mu   sync.Mutex
	info Info
	can  *translate.Features
}

// Info is what people are shown of the runtime.
type Info struct {
	Name, Version string
	Ready         bool
	// Message says why it isn't ready; empty if it is.
	Message string
}

// New returns a state that knows nothing until Run.
func New(rt Runtime, log logr.Logger) *State {
	return &State{runtime: rt, log: log, listed: wake.NewSlot(), info: Info{Name: defaultName, Message: "not connected yet"}}
}

// Run asks the runtime for its name and version each time it is new or back, until ctx ends.
// The error is nil.
func (s *State) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.listed:
		}
		v, err := s.runtime.Version(ctx)
		if err != nil {
			continue // the next list reports it
		}
		st, err := s.runtime.Status(ctx)
		if err != nil {
			continue
		}
		s.mu.Lock()
		s.info.Name, s.info.Version, s.can = v.RuntimeName, v.RuntimeVersion, translate.FeaturesOf(st)
		s.mu.Unlock()
	}
}

// Relisted takes in what came of a list of everything the runtime has.
func (s *State) Relisted(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info.Ready = err == nil; !s.info.Ready {
		// Another version may come back.
		s.info.Version, s.info.Message = "", err.Error()
		return
	}
	s.info.Message = ""
	if s.info.Version == "" {
		s.listed.Wake()
	}
}

// SetMessage sets what is said of a runtime that isn't ready.
func (s *State) SetMessage(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.Message = text
}

// Features are what the runtime can do; nil until it has reported them.
func (s *State) Features() *translate.Features {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.can
}

// Info returns what is known at the moment.
func (s *State) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

// Check asks the runtime whether it can run pods.
func (s *State) Check(ctx context.Context) error {
	st, err := s.runtime.Status(ctx)
	if err != nil {
		return err
	}
	for _, c := range st.GetStatus().GetConditions() {
		if !c.Status && (c.Type == "RuntimeReady" || c.Type == "NetworkReady") {
			return fmt.Errorf("%s is false: %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	return nil
}

// CgroupDriver is the runtime's (KEP-4033) as the configuration names it (cgroupDriver), and false if it doesn't report one, or ctx ended. It waits
// for a runtime that isn't there.
func (s *State) CgroupDriver(ctx context.Context) (string, bool) {
	said := ""
	for {
		answer, err := s.runtime.RuntimeConfig(ctx)
		switch linux := answer.GetLinux(); {
		case ctx.Err() != nil, cri.IsUnimplemented(err), err == nil && linux == nil:
			return "", false
		case err == nil && linux.CgroupDriver == runtimeapi.CgroupDriver_SYSTEMD:
			return validation.CgroupDriverSystemd, true
		case err == nil:
			return validation.CgroupDriverCgroupfs, true
		case !cri.IsUnavailable(err) && err.Error() != said:
			said = err.Error()
			s.log.Error(err, "The runtime can't be asked for its cgroup driver; it is asked again")
		}
		wait := time.NewTimer(askAgain)
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
	}
}
