package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/deckhand-node/deckhand/test/cgroupv2/machine"
)

// overLimit is a pod of which a child process uses more memory than the container may.
const overLimit = `apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: deckhand.local/web:1
      command: [/guest/guest, parent]
      resources: {limits: {memory: 32Mi}}
      volumeMounts: [{name: guest, mountPath: /guest, readOnly: true}]
  volumes: [{name: guest, hostPath: {path: ` + machine.Dir + `}}]
`

// exceedLimit runs the pod and tells how its container ended.
func exceedLimit(ctx context.Context, a *agent, name string) error {
	if err := os.WriteFile(manifest(name), []byte(strings.ReplaceAll(overLimit, "NAME", name)), 0o600); err != nil {
		return err
	}
	err := machine.Await(ctx, leg, a.ended, func(ctx context.Context) error {
		pods, err := a.pods(ctx)
		if err != nil {
			return err
		}
		p := pods[name+"-guest"]
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Terminated == nil {
			return fmt.Errorf("pod %s hasn't ended: %+v", name, p.Status)
		}
		end := p.Status.ContainerStatuses[0].State.Terminated
		machine.Tell(fmt.Sprint(end.Reason, " ", end.ExitCode), "end of %s", name)
		return nil
	})
	if err = errors.Join(err, os.Remove(manifest(name))); err != nil {
		return err
	}
	return machine.Await(ctx, leg, a.ended, func(ctx context.Context) error {
		pods, err := a.pods(ctx)
		if _, there := pods[name+"-guest"]; there {
			return fmt.Errorf("pod %s is still there", name)
		}
		return err
	})
}

// inContainer is what the pod's processes do.
func inContainer(what string) {
	if what == "parent" {
		err := exec.Command(os.Args[0], "eat").Run()
		fmt.Println("the child ended with", err)
		os.Exit(3)
	}
	var eaten [][]byte
	for range 128 {
		more := make([]byte, 1<<20)
		for i := 0; i < len(more); i += 4096 {
			more[i] = 1
		}
		eaten = append(eaten, more)
	}
	fmt.Println("it could have", len(eaten), "MiB")
}
