package orphans

import (
	"context"
	"errors"
	"os"
	"time"

	"google.golang.org/grpc"
)

// forgetIn is how long containerd may take to delete a container.
const forgetIn = 20 * time.Second

// remove kills the orphan's processes and removes its mounts, cgroups and files. It continues after errors; a later
// Sweep tries again.
func (s *Sweeper) remove(ctx context.Context, conn *grpc.ClientConn, o *orphan) {
	err := s.kill(o)
	if o.container != nil {
		asking, cancel := context.WithTimeout(ctx, forgetIn)
		err = errors.Join(err, newRegistry(conn).forget(asking, o.id, o.container))
		cancel()
	}
	err = errors.Join(err, s.clean(o.id))
	if err != nil {
		s.log.Error(err, "Failed to remove a pod sandbox that containerd has lost",
			"podSandboxID", o.id)
		return
	}
	delete(s.unknown, o.id)
	s.log.Info("Removed a pod sandbox that containerd had lost", "podSandboxID", o.id,
		"shims", pids(o.shims))
}

// kill kills the shims first, so that they start no processes and send no reports, then the processes that they and
// runc have started.
func (s *Sweeper) kill(o *orphan) error {
	var errs []error
	var shims, others []Process
	for _, shim := range o.shims {
		shims = append(shims, shim.Process)
		// Before the shim dies, because its children get another parent then.
		started, err := Descendants(shim.Process)
		errs = append(errs, err)
		others = append(others, started...)
	}
	errs = append(errs, Kill(shims))
	c, _ := ReadContainer(s.layout.RuncState(o.id))
	errs = append(errs, Kill(append(others, c.Init)))
	hierarchies := Hierarchies()
	for _, dir := range c.Cgroups {
		if ContainerCgroup(dir, hierarchies, o.id) && exists(dir) {
			errs = append(errs, KillCgroup(dir), RemoveCgroup(dir))
		}
	}
	return errors.Join(errs...)
}

func (s *Sweeper) clean(id string) error {
	dirs := s.layout.Of(id)
	errs := []error{Unmount(dirs...)}
	for _, dir := range dirs {
		errs = append(errs, RemoveTree(dir))
	}
	return errors.Join(errs...)
}

func exists(dir string) bool {
	_, err := os.Lstat(dir)
	return err == nil
}

func pids(shims []Shim) []int {
	all := make([]int, 0, len(shims))
	for _, shim := range shims {
		all = append(all, shim.PID)
	}
	return all
}
