package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/deckhand-node/deckhand/test/cgroupv2/machine"
)

// podsMiB is the memory limit of all pods together. The agent evicts when less than availableMiB of it is available. The
// hog fills the page cache up to the limit, and then takes hogMiB.
const podsMiB, availableMiB, hogMiB = 200, 80, 140

// hog is a pod that takes memory. Its own limit is so high that it isn't slowed down (MemoryQoS): without a limit,
// memory.high would be 0.9 of the node's allocatable memory, and the hog would reach the threshold after minutes.
const hog = `apiVersion: v1
kind: Pod
metadata: {name: hog}
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: deckhand.local/web:1
      command: [/guest/guest, hog]
      resources: {requests: {memory: 0}, limits: {memory: 1Gi}}
      volumeMounts: [{name: guest, mountPath: /guest, readOnly: true}, {name: bin, mountPath: /bin, readOnly: true}]
  volumes: [{name: guest, hostPath: {path: ` + machine.Dir + `}}, {name: bin, hostPath: {path: ` + machine.BinDir + `}}]
`

// evict limits the memory of all pods, runs the hog, and reports its eviction.
func evict(ctx context.Context, a *agent) error {
	if err := limitPods(ctx, a); err != nil {
		return err
	}
	if err := os.WriteFile(manifest("hog"), []byte(hog), 0o600); err != nil {
		return err
	}
	err := machine.Await(ctx, leg, a.ended, func(ctx context.Context) error {
		pods, err := a.pods(ctx)
		if err != nil {
			return err
		}
		st := pods["hog-guest"].Status
		if st.Reason == "" {
			return fmt.Errorf("the hog isn't evicted: %+v", st)
		}
		text := fmt.Sprintf("%s %s: %s", st.Phase, st.Reason, st.Message)
		machine.Tell(amount.ReplaceAllString(text, "${1}N"), "the hog")
		return nil
	})
	if err != nil {
		return err
	}
	text, err := exec.CommandContext(ctx, machine.Dir+"/deckhand", "node", "--root-dir", rootDir, "-o", "json").Output()
	if err != nil {
		return err
	}
	var node struct{ Evictions struct{ Alarm string } }
	if err := json.Unmarshal(text, &node); err != nil {
		return err
	}
	machine.Tell(node.Evictions.Alarm, "the kernel's alarm")
	return os.Remove(manifest("hog"))
}

// amount matches the amounts of a message that vary.
var amount = regexp.MustCompile(`(available: |using )\d+[a-zA-Z]*`)

// limitPods reserves all memory but podsMiB for the system, and waits until the kernel enforces that.
func limitPods(ctx context.Context, a *agent) error {
	total, err := memTotal()
	if err != nil {
		return err
	}
	config, err := os.ReadFile(a.config)
	if err != nil {
		return err
	}
	config = fmt.Appendf(config, "evictionHard: {memory.available: %dMi}\nsystemReserved: {memory: %dKi}\n",
		availableMiB, total-podsMiB<<10)
	if err := errors.Join(os.WriteFile(a.config, config, 0o600), a.process.Signal(syscall.SIGHUP)); err != nil {
		return err
	}
	return machine.Await(ctx, leg, a.ended, func(context.Context) error {
		limit, err := os.ReadFile(kubepods + "/memory.max")
		if err == nil && strings.TrimSpace(string(limit)) != strconv.Itoa(podsMiB<<20) {
			err = fmt.Errorf("the memory limit of all pods is %s", limit)
		}
		return err
	})
}

// memTotal is the machine's memory in KiB.
func memTotal() (kib int, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err == nil {
		_, err = fmt.Sscanf(string(text), "MemTotal: %d kB", &kib)
	}
	return kib, err
}

// takeMemory is the hog's program. It runs until SIGTERM.
func takeMemory() error {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	files, err := filepath.Glob("/guest/*.test")
	if err != nil {
		return err
	}
	for _, path := range append(files, "/bin/kubelet") {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close() // at the end: the kernel (hostfs) drops the page cache of closed files
		if _, err := io.Copy(io.Discard, f); err != nil {
			return err
		}
	}
	taken := make([]byte, hogMiB<<20)
	for i := 0; i < len(taken); i += 4096 {
		taken[i] = 1
	}
	<-term
	return nil
}
