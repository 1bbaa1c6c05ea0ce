package volumes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/deckhand-node/deckhand/bench/report"
	benchrig "github.com/deckhand-node/deckhand/bench/rig"
)

// load is what the pods have.
type load struct {
	name, what string
	// volumes are the pod's, with names v0 to v5; none for pods without.
	volumes []string
	// rest says that the agent is looked at when all is done, edits that the ConfigMap is edited.
	rest, edits bool
}

// Names of loads, by which the tables find them.
const (
	without    = "without"
	configMaps = "ConfigMaps"
	mixed      = "mixed"
)

// loads are what is compared.
var loads = []load{
	{name: without, what: "no volumes", rest: true},
	{name: configMaps, what: "6 ConfigMap volumes each", edits: true, volumes: []string{
		"configMap: {name: bench}", "configMap: {name: bench}", "configMap: {name: bench}", "configMap: {name: bench}", "configMap: {name: bench}", "configMap: {name: bench}",
	}},
	{name: mixed, what: "6 volumes of 6 kinds each", rest: true, edits: true, volumes: []string{
		"configMap: {name: bench}", "secret: {secretName: bench}", "downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}",
		"projected: {sources: [{configMap: {name: bench}}, {secret: {name: bench}}]}", "emptyDir: {}", "emptyDir: {medium: Memory, sizeLimit: 1Mi}",
	}},
}

// life is what an agent's run came to.
type life struct {
	// running is how long it took from the first manifest until all pods were reported as running,
	// and cpu what that cost the agent.
	running, cpu time.Duration
	rest         report.Rest
	// edits are how long it took from an edit until a pod's volume had it, for each edit and pod.
	edits []time.Duration
	// mounts are how many there were with all pods; leftMounts and leftDirs what was left when they were gone.
	mounts, leftMounts, leftDirs int
}

// rig is one agent with its pods.
type rig struct {
	Options
	load  load
	agent *benchrig.Agent
	watch *benchrig.Watcher
	dir   string // the agent's
}

func (r *rig) pods() string { return filepath.Join(r.dir, "root", "pods") }

func (r *rig) measure(ctx context.Context) (l life, err error) {
	if err := r.define("0"); err != nil {
		return l, err
	}
	for i := range r.Pods {
		name := fmt.Sprintf("bench-%04d", i)
		if err := os.WriteFile(filepath.Join(r.dir, "staged", name+".yaml"), r.pod(name), 0o644); err != nil {
			return l, err
		}
	}
	before, err := report.CPUTime(r.agent.PID)
	if err != nil {
		return l, err
	}
	began := time.Now()
	if err := r.agent.Drop(); err != nil {
		return l, err
	}
	if _, err := r.watch.Await(ctx, func(s benchrig.State) bool { return len(s.Pods) >= r.Pods && s.Running() >= r.Pods }); err != nil {
		return l, fmt.Errorf("wait until all containers run: %w", err)
	}
	at, err := r.agent.Await(ctx, 20*time.Millisecond, func(c benchrig.Counts) bool { return c.Running >= r.Pods })
	if err != nil {
		return l, err
	}
	after, err := report.CPUTime(r.agent.PID)
	if err != nil {
		return l, err
	}
	l.running, l.cpu = at.Sub(began), after-before
	if l.mounts, _, err = r.left(); err != nil {
		return l, err
	}
	if r.load.rest {
		if l.rest, err = report.MeasureRest(ctx, r.agent.PID, r.Idle); err != nil {
			return l, err
		}
	}
	if r.load.edits {
		if l.edits, err = r.edit(ctx); err != nil {
			return l, err
		}
	}
	return l, r.clear(ctx, &l)
}

// define writes the objects that the volumes are made from, at one stroke.
func (r *rig) define(version string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: bench}
data: {version: %q, app.conf: "listen = 8080\n", greeting: ahoy}
---
apiVersion: v1
kind: Secret
metadata: {name: bench}
stringData: {password: secret}
`, version)
	part := filepath.Join(r.dir, "objects.yaml")
	if err := os.WriteFile(part, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(r.dir, "manifests", "objects.yaml"))
}

// pod is a pod's manifest.
func (r *rig) pod(name string) []byte {
	var mounts, volumes strings.Builder
	for i, source := range r.load.volumes {
		fmt.Fprintf(&mounts, "    - {name: v%d, mountPath: /v%d}\n", i, i)
		fmt.Fprintf(&volumes, "  - {name: v%d, %s}\n", i, source)
	}
	text := string(benchrig.Manifest(name, image, []string{"serve"}))
	if len(r.load.volumes) > 0 {
		text += "    volumeMounts:\n" + mounts.String() + "  volumes:\n" + volumes.String()
	}
	return []byte(text)
}

// edit edits the ConfigMap again and again, and waits each time until all pods have it.
func (r *rig) edit(ctx context.Context) ([]time.Duration, error) {
	dirs, err := filepath.Glob(filepath.Join(r.pods(), "*", "volumes", "kubernetes.io~configmap", "v0"))
	if err != nil || len(dirs) != r.Pods {
		return nil, fmt.Errorf("%d pods have the volume, want %d: %w", len(dirs), r.Pods, err)
	}
	var all []time.Duration
	for n := range r.Edits {
		version := fmt.Sprint(n + 1)
		began := time.Now()
		if err := r.define(version); err != nil {
			return nil, err
		}
		took, err := visible(ctx, dirs, version, began)
		if err != nil {
			return nil, err
		}
		all = append(all, took...)
	}
	return all, nil
}

// visible looks again and again until every volume has the version, and returns how long each took.
func visible(ctx context.Context, dirs []string, version string, began time.Time) ([]time.Duration, error) {
	var took []time.Duration
	for waiting := append([]string(nil), dirs...); len(waiting) > 0; {
		var next []string
		for _, dir := range waiting {
			text, err := os.ReadFile(filepath.Join(dir, "version"))
			if err != nil {
				return nil, fmt.Errorf("a volume can't be read during an edit: %w", err)
			}
			if string(text) == version {
				took = append(took, time.Since(began))
			} else {
				next = append(next, dir)
			}
		}
		waiting = next
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d volumes don't have the edit: %w", len(waiting), ctx.Err())
		case <-time.After(time.Millisecond): // looking costs CPU that the agent needs
		}
	}
	return took, nil
}

// clear takes the pods away and counts what they leave.
func (r *rig) clear(ctx context.Context, l *life) error {
	if err := r.agent.Clear(); err != nil {
		return err
	}
	if _, err := r.agent.Await(ctx, 20*time.Millisecond, func(c benchrig.Counts) bool { return c.Pods == 0 }); err != nil {
		return err
	}
	var err error
	l.leftMounts, l.leftDirs, err = r.left()
	return err
}

// left counts mounts below the pods' directories, and these.
func (r *rig) left() (mounts, directories int, err error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(r.pods()))
	if err != nil {
		return 0, 0, err
	}
	entries, err := os.ReadDir(r.pods())
	return len(infos), len(entries), err
}
