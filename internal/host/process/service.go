package process

import "sync"

// Service reports the agent's state to the service manager: it starts, it is up, it ends. A reload may come at any
// time, and ends with the same message that reports that the agent is up. Sent too early, that message would start
// units that need the agent, and would make the service manager expect watchdog notifications. So a reload is reported
// in full only while the agent is up. Its methods may be called concurrently.
type Service struct {
	manager *Notifier

	mu    sync.Mutex
	stage stage
}

// NewService returns a service that starts.
func NewService(manager *Notifier) *Service { return &Service{manager: manager} }

type stage int

const (
	starting stage = iota
	up
	stopping
)

// Ready says that the agent is up.
func (s *Service) Ready(status string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = up
	return s.manager.Ready(status)
}

// Reloading says that a reload begins; Reloaded has to follow.
func (s *Service) Reloading() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage != up {
		return nil
	}
	return s.manager.Reloading()
}

// Reloaded says what came of a reload.
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

// Stopping says that the end begins.
func (s *Service) Stopping() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = stopping
	return s.manager.Stopping()
}
