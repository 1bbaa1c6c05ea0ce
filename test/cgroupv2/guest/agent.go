package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/cgroupv2/machine"
)

const (
	manifestDir  = "/etc/pods"
	rootDir      = "/var/lib/deckhand"
	agentLog     = "/var/log/deckhand.log"
	runtimeGroup = "/runtime"
	readOnlyURL  = "http://127.0.0.1:10255"
)

// logTail is how much of the agent's log is shown after a failure, in bytes.
const logTail = 8 << 10

// leg is how long one step may take. A container takes some seconds to start here; on a busy host, a minute.
const leg = 4 * time.Minute

// agent is deckhand running in the guest.
type agent struct {
	process *os.Process
	config  string
	// ended gets what Wait says, once.
	ended chan error
}

func (a *agent) start() error {
	log, err := os.OpenFile(agentLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(machine.Dir+"/deckhand", "agent",
		"--config", a.config,
		"--root-dir", rootDir,
		"--pod-manifest-path", manifestDir,
		"--embedded-bin-dir", machine.BinDir,
		"--hostname-override", "guest",
		"--node-ip", "127.0.0.1",
		"--runtime-cgroups", runtimeGroup,
		"-v", "4")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	a.process, a.ended = cmd.Process, make(chan error, 1)
	go func() { a.ended <- cmd.Wait() }()
	return nil
}

// kill ends the agent at once, wherever it is.
func (a *agent) kill() error {
	if err := a.process.Kill(); err != nil {
		return err
	}
	var killed *exec.ExitError
	if err := <-a.ended; !errors.As(err, &killed) {
		return fmt.Errorf("the killed agent ended with %v", err)
	}
	return nil
}

// stop asks the agent to end and says how it did.
func (a *agent) stop() (string, error) {
	if err := a.process.Signal(os.Interrupt); err != nil {
		return "", err
	}
	if err := <-a.ended; err != nil {
		return err.Error(), nil
	}
	return "exit status 0", nil
}

// printLog shows the end of the agent's log.
func (a *agent) printLog() {
	text, err := os.ReadFile(agentLog)
	if err != nil {
		return
	}
	fmt.Printf("The end of deckhand's log:\n%s\n", text[max(0, len(text)-logTail):])
}

// pods asks the agent for its pods, by name without the node's.
func (a *agent) pods(ctx context.Context) (map[string]v1.Pod, error) {
	text, err := machine.Get(ctx, readOnlyURL+"/pods")
	if err != nil {
		return nil, err
	}
	var list v1.PodList
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("the agent's pods: %w", err)
	}
	pods := map[string]v1.Pod{}
	for _, p := range list.Items {
		pods[p.Name] = p
	}
	return pods, nil
}

// awaitReady waits until each named pod is ready and returns them in that order.
func (a *agent) awaitReady(ctx context.Context, names []string) ([]v1.Pod, error) {
	var ready []v1.Pod
	err := machine.Await(ctx, leg, a.ended, func(ctx context.Context) error {
		pods, err := a.pods(ctx)
		if err != nil {
			return err
		}
		ready = ready[:0]
		for _, name := range names {
			p, ok := pods[name+"-guest"]
			if !ok {
				return fmt.Errorf("there is no pod %s", name)
			}
			if !isReady(&p) {
				return notReady(&p)
			}
			ready = append(ready, p)
		}
		return nil
	})
	return ready, err
}

func notReady(p *v1.Pod) error {
	status, err := json.Marshal(p.Status)
	if err != nil {
		return err
	}
	return fmt.Errorf("pod %s isn't ready: %s", p.Name, status)
}

// awaitNone waits until the agent has no pod.
func (a *agent) awaitNone(ctx context.Context) error {
	return machine.Await(ctx, leg, a.ended, func(ctx context.Context) error {
		pods, err := a.pods(ctx)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods are there", len(pods))
		}
		return err
	})
}

func isReady(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
