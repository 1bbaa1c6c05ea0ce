// Package health tracks the container runtime: its name and version, its features, whether it is ready, and why
// not.
package health

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// defaultName prefixes container IDs until the runtime has reported its name.
const defaultName = "containerd"

// askAgain is the polling interval while the runtime isn't ready.
const askAgain = time.Second

// answerLimit is the timeout for a status call.
const answerLimit = 10 * time.Second

// Runtime is the part of the CRI that the package uses. Errors carry a gRPC status.
type Runtime interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context) (*runtimeapi.StatusResponse, error)
	RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
}

// State is the runtime's state. It depends on the results of the complete lists of package observed (see Relisted),
// which succeed or fail as the runtime becomes available or unavailable. Its methods may be called concurrently.
type State struct {
	runtime Runtime
	poll    time.Duration
	log     logr.Logger
	changed wake.Group
	// listed is signaled when a list has succeeded and the version isn't cached.
	listed wake.Slot

	mu   sync.Mutex
	info Info
	can  *translate.Features
	// can has the runtime's features. unready has the runtime's conditions that prevent pods from running. known means
	// that both were fetched since the runtime last became available.
	unready []string
	known   bool
	// statusError is the error of the last status call if it failed although lists succeed; empty otherwise.
	statusError string
}

// Info describes the runtime for users.
type Info struct {
	Name, Version string
	Ready         bool
	// Message is why the runtime isn't ready; empty if it is.
	Message string
}

// New returns a state that is empty until Run. poll is the interval at which the runtime's conditions are polled,
// since the runtime doesn't push them; with 0 they are fetched only when the runtime becomes available.
func New(rt Runtime, poll time.Duration, log logr.Logger) *State {
	return &State{runtime: rt, poll: poll, log: log, listed: wake.NewSlot(),
		info: Info{Name: defaultName, Message: "not connected yet"}}
}

// Run gets the runtime's version and conditions each time the runtime becomes available, and its conditions every
// poll interval, until ctx ends. The error is nil.
func (s *State) Run(ctx context.Context) error {
	for {
		var due <-chan time.Time
		timer := time.NewTimer(s.wait())
		if s.poll > 0 {
			due = timer.C
		}
		select {
		case <-ctx.Done():
		case <-s.listed:
		case <-due:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
		s.ask(ctx)
	}
}

// wait returns the time until the next poll of the runtime's conditions.
func (s *State) wait() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info.Ready && (len(s.unready) > 0 || !s.known) {
		return min(askAgain, s.poll)
	}
	return s.poll
}

// ask gets the runtime's version if it isn't cached, and its conditions. Without polling a failure is ignored: the
// next list reports it.
func (s *State) ask(ctx context.Context) {
	s.mu.Lock()
	info := s.info
	s.mu.Unlock()
	if !info.Ready {
		return // the next successful list triggers the query
	}
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var v *runtimeapi.VersionResponse
	var err error
	if info.Version == "" {
		if v, err = s.runtime.Version(limited); err == nil {
			info.Name, info.Version = v.RuntimeName, v.RuntimeVersion
		}
	}
	var st *runtimeapi.StatusResponse
	if err == nil {
		st, err = s.runtime.Status(limited)
	}
	if ctx.Err() == nil {
		s.apply(info, st, err)
	}
}

// apply stores the results of the calls that ask made.
func (s *State) apply(info Info, st *runtimeapi.StatusResponse, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.info.Ready || err != nil && s.poll == 0 {
		return // the version isn't stored: the runtime may return as another one
	}
	statusError := ""
	can, unready := s.can, []string(nil)
	if err != nil {
		statusError = err.Error()
		unready = []string{"container runtime is down: " + statusError}
	} else {
		s.info.Name, s.info.Version = info.Name, info.Version
		can, unready = translate.FeaturesOf(st), unreadyConditions(st)
	}
	switch {
	case statusError != "" && s.statusError == "":
		s.log.Error(err, "The container runtime doesn't answer; probes that need it count for nothing, and pods go "+
			"on running")
	case statusError == "" && s.statusError != "":
		s.log.Info("The container runtime answers again")
	}
	changed := !s.known || !reflect.DeepEqual(s.can, can) || !slices.Equal(s.unready, unready)
	s.can, s.unready, s.known, s.statusError = can, unready, true, statusError
	if changed {
		s.changed.Wake()
	}
}

// unreadyConditions returns descriptions, in the kubelet's wording, of the conditions that prevent pods from
// running.
func unreadyConditions(st *runtimeapi.StatusResponse) []string {
	var list []string
	for _, kind := range []struct{ condition, what string }{{runtimeapi.RuntimeReady, "container runtime"}, {
		runtimeapi.NetworkReady, "container runtime network"}} {
		for _, c := range st.GetStatus().GetConditions() {
			if c.Type == kind.condition && !c.Status {
				list = append(list, fmt.Sprintf("%s not ready: %s=false reason:%s message:%s", kind.what, c.Type,
					c.Reason, c.Message))
			}
		}
	}
	return list
}

// Subscribe returns a channel on which a value arrives after the result of NotReady or Features has changed. stop
// ends the subscription.
func (s *State) Subscribe() (woken <-chan struct{}, stop func()) { return s.changed.Subscribe() }

// NotReady lists the reasons why the runtime can't run pods; it is empty if the runtime is ready.
func (s *State) NotReady() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.info.Ready:
		return []string{"container runtime is down: " + s.info.Message}
	case !s.known:
		return []string{"container runtime status check may not have completed yet"}
	}
	return s.unready
}

// Relisted records the result of a complete list of the runtime's sandboxes and containers; err is nil if it succeeded.
// It returns true for the first list that succeeds, and for the first one that succeeds after a failure.
func (s *State) Relisted(err error) (again bool) {
	s.mu.Lock()
	was := s.info
	if s.info.Ready = err == nil; s.info.Ready {
		s.info.Message = ""
		if s.info.Version == "" {
			s.listed.Wake()
		}
	} else {
		// The runtime may return as another version.
		s.info.Version, s.info.Message, s.known, s.statusError = "", err.Error(), false, ""
	}
	changed, again := s.info != was, s.info.Ready && !was.Ready
	s.mu.Unlock()
	if changed {
		s.changed.Wake()
	}
	return again
}

// SetMessage sets the message of a runtime that isn't ready.
func (s *State) SetMessage(text string) {
	s.mu.Lock()
	s.info.Message = text
	s.mu.Unlock()
	s.changed.Wake()
}

// Features returns the runtime's features; nil until it has reported them.
func (s *State) Features() *translate.Features {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.can
}

// Info returns the current information on the runtime.
func (s *State) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := s.info
	if s.statusError != "" {
		info.Ready, info.Message = false, s.statusError
	}
	return info
}

// Check calls the runtime and returns an error if it can't run pods.
func (s *State) Check(ctx context.Context) error {
	st, err := s.runtime.Status(ctx)
	if err != nil {
		return err
	}
	if l := unreadyConditions(st); len(l) > 0 {
		return errors.New(strings.Join(l, "; "))
	}
	return nil
}

// CgroupDriver returns the runtime's cgroup driver (KEP-4033) as the value of cgroupDriver in the configuration. It
// returns false if the runtime doesn't report one, or ctx ended. It blocks until the runtime answers.
func (s *State) CgroupDriver(ctx context.Context) (string, bool) {
	var last logging.LastError
	for {
		answer, err := s.runtime.RuntimeConfig(ctx)
		switch linux := answer.GetLinux(); {
		case ctx.Err() != nil, cri.IsUnimplemented(err), err == nil && linux == nil:
			return "", false
		case err == nil && linux.CgroupDriver == runtimeapi.CgroupDriver_SYSTEMD:
			return validation.CgroupDriverSystemd, true
		case err == nil:
			return validation.CgroupDriverCgroupfs, true
		case !cri.IsUnavailable(err):
			last.Log(s.log, err, "The runtime can't be asked for its cgroup driver; it is asked again")
		}
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
}
