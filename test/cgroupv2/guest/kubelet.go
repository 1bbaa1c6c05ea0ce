package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/test/cgroupv2/machine"
	"github.com/deckhand-node/deckhand/test/figures"
)

// kubeletLog is where the kubelet writes.
const kubeletLog = "/var/log/kubelet.log"

// forKubelet is what a kubelet that is alone has to be told beside what deckhand is.
const forKubelet = `authentication: {webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
enableServer: false
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
`

// askKubelet has a kubelet run the pods for as long as it takes it to measure them, and tells what it says. It has a root directory of its own:
// it mounts that onto itself, and the runtime's is in deckhand's.
func askKubelet(ctx context.Context, config []byte, pods int) error {
	const file = "/etc/kubelet.yaml"
	if err := os.WriteFile(file, append(config, forKubelet...), 0o600); err != nil {
		return err
	}
	if err := showClock(); err != nil {
		return err
	}
	log, err := os.Create(kubeletLog)
	if err != nil {
		return err
	}
	defer log.Close()
	const socket = rootDir + "/containerd/containerd.sock"
	cmd := exec.CommandContext(ctx, machine.BinDir+"/kubelet", "--config", file, "--root-dir", "/var/lib/kubelet", "--cert-dir", "/etc/pki", "--pod-manifest-path", manifestDir,
		"--container-runtime-endpoint", "unix://"+socket, "--containerd", socket, "--hostname-override", "guest", "--node-ip", "127.0.0.1", "--runtime-cgroups", runtimeGroup, "-v", "2")
	cmd.Stdout, cmd.Stderr = log, log
	since := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- cmd.Wait()
	}()
	err = machine.Await(ctx, leg, ended, func(ctx context.Context) error {
		all, err := said(ctx)
		if err == nil {
			err = figures.Comparison{Idle: func(string) bool { return true }}.Measured(all, pods, since)
		}
		if err == nil {
			tellSaid("kubelet", all)
		}
		return err
	})
	machine.Tell(time.Since(since).Round(time.Millisecond).String(), "the kubelet took")
	if err != nil {
		text, _ := os.ReadFile(kubeletLog)
		err = fmt.Errorf("%w; the kubelet's log ends with:\n%s", err, text[max(0, len(text)-logTail):])
	}
	_ = cmd.Process.Kill() // it may have ended
	for range ended {
	}
	return err
}

// showClock adds the CPU's clock rate to what this kernel says of its CPUs, which it leaves out: a kubelet doesn't start without.
func showClock() error {
	const file, shown = "/proc/cpuinfo", "/etc/cpuinfo"
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := os.WriteFile(shown, append(text, "cpu MHz\t\t: 1000.000\n"...), 0o600); err != nil {
		return err
	}
	return unix.Mount(shown, file, "", unix.MS_BIND, "")
}

// said is what the agent that runs says that pods use.
func said(ctx context.Context) (figures.Said, error) {
	all := figures.Said{}
	for _, page := range figures.Pages {
		text, err := machine.Get(ctx, readOnlyURL+page)
		if err != nil {
			return nil, err
		}
		all[page] = text
	}
	return all, nil
}

// tellSaid reports that.
func tellSaid(agent string, all figures.Said) {
	for page, text := range all {
		machine.Tell(string(text), "%s's %s", agent, page)
	}
}
