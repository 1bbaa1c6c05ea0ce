package process

import "sync"

// Service reports the agent's state to the service manager: starting, ready, stopping. A reload may happen at any time.
// The protocol uses the same notification (READY=1) for the end of a reload and the end of the start. If it were sent
// too early, units that need the agent would start, and the service manager would expect watchdog notifications. So a
// reload is reported in full only while the agent is ready. The methods of Service may be called concurrently.
type Service struct {
	manager *Notifier

	mu    sync.Mutex
	stage stage
}

// NewService returns a Service in the state starting.
func NewService(manager *Notifier) *Service { return &Service{manager: manager} }

type stage int

const (
	starting stage = iota
	up
	stopping
)

// Ready reports that the agent is ready. status is a line for users.
func (s *Service) Ready(status string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = up
	return s.manager.Ready(status)
}

// Reloading reports the start of a reload; Reloaded has to follow.
func (s *Service) Reloading() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage != up {
		return nil
	}
	return s.manager.Reloading()
}

// Reloaded reports the end of a reload, with its result as a line for users.
func (s *Service) Reloaded(status string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.stage {
	case up:
		return s.manager.Ready(status)
	case starting:
		return s.manager.Status(status)
	default:
		return nil
	}
}

// Stopping reports that the agent is stopping.
func (s *Service) Stopping() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = stopping
	return s.manager.Stopping()
}
