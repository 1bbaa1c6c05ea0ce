package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	manifestDir = "/etc/pods"
	rootDir     = "/var/lib/deckhand"
	agentLog    = "/var/log/deckhand.log"
	readOnlyURL = "http://127.0.0.1:10255"
)

// logTail is how much of the agent's log is shown after a failure, in bytes.
const logTail = 8 << 10

// between is the pause between two looks at something that can't be awaited.
const between = 100 * time.Millisecond

// agent is deckhand running in the guest.
type agent struct {
	cmd *exec.Cmd
}

func (a *agent) start() error {
	log, err := os.OpenFile(agentLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	a.cmd = exec.Command(guestDir+"/deckhand", "agent",
		"--root-dir", rootDir,
		"--pod-manifest-path", manifestDir,
		"--embedded-bin-dir", binDir,
		"--hostname-override", "guest",
		"--node-ip", "127.0.0.1",
		"-v", "4")
	a.cmd.Stdout, a.cmd.Stderr = log, log
	return a.cmd.Start()
}

// kill ends the agent at once, wherever it is.
func (a *agent) kill() error {
	if err := a.cmd.Process.Kill(); err != nil {
		return err
	}
	var ended *exec.ExitError
	if err := a.cmd.Wait(); !errors.As(err, &ended) {
		return fmt.Errorf("the killed agent ended with %w", err)
	}
	return nil
}

// stop asks the agent to end and says how it did.
func (a *agent) stop() (string, error) {
	if err := a.cmd.Process.Signal(os.Interrupt); err != nil {
		return "", err
	}
	if err := a.cmd.Wait(); err != nil {
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
	text, err := get(ctx, readOnlyURL+"/pods")
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
func (a *agent) awaitReady(ctx context.Context, names ...string) ([]v1.Pod, error) {
	var ready []v1.Pod
	err := await(ctx, func() error {
		pods, err := a.pods(ctx)
		if err != nil {
			return err
		}
		ready = ready[:0]
		for _, name := range names {
			p, ok := pods[name+"-guest"]
			if !ok || !isReady(&p) {
				status, _ := yaml.Marshal(p.Status)
				return fmt.Errorf("pod %s isn't ready:\n%s", name, status)
			}
			ready = append(ready, p)
		}
		return nil
	})
	return ready, err
}

func isReady(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// await tries until there is no error; when time is up, the last one tells why.
func await(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), err)
		case <-time.After(between):
		}
	}
}

func get(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	return text, nil
}
