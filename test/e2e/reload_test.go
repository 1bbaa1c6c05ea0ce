package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/test/e2e/node"
	"github.com/deckhand-node/deckhand/test/registry"
)

// reloads are how many reloads there were, by what came of them, and as "success" whether
// what was read last is in force.
func reloads(n *node.Node) (map[string]int, error) {
	body, _, err := get(n.ReadOnlyURL("metrics"))
	if err != nil {
		return nil, err
	}
	line := regexp.MustCompile(`(?m)^deckhand_config_(?:reloads_total\{result="(\w+)"\}|last_reload_(success)) (\d+)$`)
	out := map[string]int{}
	for _, m := range line.FindAllStringSubmatch(body, -1) {
		out[m[1]+m[2]], _ = strconv.Atoi(m[3]) // the expression lets nothing else through
	}
	if _, ok := out["success"]; !ok {
		return nil, errors.New("the metrics tell nothing of reloads")
	}
	return out, nil
}

// reload does something that has the agent read its configuration, and waits until that
// has this result.
func reload(t *testing.T, n *node.Node, result string, do func()) {
	t.Helper()
	before, err := reloads(n)
	if err != nil {
		t.Fatal(err)
	}
	do()
	success := 0
	if result == "applied" || result == "unchanged" {
		success = 1
	}
	n.Eventually("the configuration is read, which is "+result, func() error {
		now, err := reloads(n)
		if err == nil && (now[result] == before[result] || now["success"] != success) {
			err = fmt.Errorf("reloads until now: %v, before: %v", now, before)
		}
		return err
	})
}

// settings are fields of a KubeletConfiguration with their values.
type settings map[string]string

func (s settings) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s: %s\n", name, s[name])
	}
	return b.String()
}

// put writes a file at one stroke.
func put(t *testing.T, path, text string) {
	t.Helper()
	part := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
	if err := os.WriteFile(part, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(part, path); err != nil {
		t.Fatal(err)
	}
}

// watched is a node that reloads its configuration when that changes.
type watched struct {
	*node.Node
	registry *registry.Registry
	// file is what the configuration file sets beyond the usual, dir that of the drop-ins.
	file settings
	dir  string
}

// set changes a field in the file and waits until that is in force.
func (w *watched) set(t *testing.T, changes settings) {
	t.Helper()
	maps.Copy(w.file, changes)
	reload(t, w.Node, "applied", func() { put(t, w.ConfigFile(), w.ConfigText(w.file.String())) })
}

// drop writes a drop-in where it stands.
func (w *watched) drop(t *testing.T, name string, s settings) {
	t.Helper()
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + s.String()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// With --watch-config, every change that can be made live is in force soon after it was
// written, however it was written, and containers run on.
func TestConfigurationIsWatched(t *testing.T) {
	t.Parallel()
	w := &watched{Node: node.New(t, binary, node.Options{FileVerbosity: true}), registry: registry.New(t), file: settings{
		"imageGCHighThresholdPercent": "100", "containerLogMonitorInterval": "3s"}}
	w.dir = filepath.Join(w.Base, "config.d")
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w.AddFlags("--watch-config", "--config-dir", w.dir)
	w.Configure(w.file.String())
	w.Write("talks.yaml", pod("talks", "args: [logs, '1000000', 5ms]"))
	w.Write("crashes.yaml", pod("crashes", "args: [exit, '3']"))
	w.Start()
	w.Await("the pods run", node.Ready("talks"), restarted("crashes", 1))
	before := w.RunningIDs()
	delete(before, "crashes-"+node.Name+"/web") // it may just run

	w.refused(t)
	w.verbosity(t)
	w.unused(t, "low:1", settings{"imageGCHighThresholdPercent": "1", "imageGCLowThresholdPercent": "0", "imageMinimumGCAge": "1ms"})
	w.parallelPulls(t)
	w.goes(t, "low:1", "space")
	w.set(t, settings{"imageGCHighThresholdPercent": "100"})
	w.unused(t, "old:1", settings{"imageMaximumGCAge": "2ms"})
	w.pullRate(t)
	w.fewerLogs(t)
	w.mounted(t)
	w.shorterBackoff(t)
	w.goes(t, "old:1", "age")

	w.Remove("crashes.yaml")
	w.Await("the other pod was left alone", gone("crashes"), node.Ready("talks"), noRestarts)
	unchanged(t, before, w.RunningIDs())
}

// refused changes what can't be changed live along with what can: nothing of it is
// done. It leaves the log rotated, which that was to bring about.
func (w *watched) refused(t *testing.T) {
	t.Helper()
	was := w.values(t, "podPidsLimit", "containerLogMaxSize", "logging.verbosity")
	maps.Copy(w.file, settings{"containerLogMaxSize": "1Ki", "logging": "{verbosity: 4}"})
	wrong := maps.Clone(w.file)
	maps.Copy(wrong, settings{"syncFrequency": "31s", "podPidsLimit": "999"})
	reload(t, w.Node, "refused", func() { put(t, w.ConfigFile(), w.ConfigText(wrong.String())) })
	w.AwaitNodeEvent("ConfigurationNotReloaded", "podPidsLimit, syncFrequency")
	if is := w.values(t, "podPidsLimit", "containerLogMaxSize", "logging.verbosity"); !maps.Equal(is, was) {
		t.Errorf("a refused configuration is in force: %v instead of %v", is, was)
	}
	w.stir(t)
	if files := w.logFiles(t); len(files) != 1 || strings.Contains(w.Logged(), noticed) {
		t.Errorf("a refused configuration has an effect: the logs are %q, more is logged: %v", files, strings.Contains(w.Logged(), noticed))
	}
	w.set(t, nil)
	w.AwaitNodeEvent("ConfigurationReloaded", "containerLogMaxSize, logging.verbosity")
	w.stir(t)
	if !strings.Contains(w.Logged(), noticed) {
		t.Errorf("with logging.verbosity 4, nobody logged that %s", noticed)
	}
	w.Eventually("a log that is too large now is rotated", func() error {
		if files := w.logFiles(t); len(files) < 2 {
			return fmt.Errorf("there is only %q", files)
		}
		return nil
	})
}

// noticed is logged with verbosity 4 where something happens to the configuration's files.
const noticed = `filewatch.go:`

// burstFile is the drop-in of stir.
const burstFile = "50-burst.conf"

// stir makes and removes a file beside the drop-ins, and waits until the agent has looked:
// another change after it is in force.
func (w *watched) stir(t *testing.T) {
	t.Helper()
	path := filepath.Join(w.dir, "no-drop-in")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	burst, err := strconv.Atoi(w.values(t, "registryBurst")["registryBurst"])
	if err != nil {
		t.Fatal(err)
	}
	// Where the file isn't good, a drop-in doesn't fix it.
	result := "applied"
	if now, err := reloads(w.Node); err == nil && now["success"] == 0 {
		result = "refused"
	}
	reload(t, w.Node, result, func() { w.drop(t, burstFile, settings{"registryBurst": strconv.Itoa(burst + 1)}) })
}

// values are those of fields in /configz.
func (w *watched) values(t *testing.T, fields ...string) map[string]string {
	return configured(t, w.Node, fields...)
}

func (w *watched) logFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(w.PodLogs, "*_talks-*", "web", "0.log*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	return files
}

// verbosity has drop-ins say how much is logged: one that comes, one that goes before it, and none.
func (w *watched) verbosity(t *testing.T) {
	t.Helper()
	// says is what of these files of the agent is in the log of what follows a change.
	says := func(change func()) (watch, volumes bool) {
		t.Helper()
		reload(t, w.Node, "applied", change)
		mark := len(w.Logged())
		w.Write("new.yaml", pod("new"))
		w.Await("a pod runs", node.Ready("new"))
		w.stir(t)
		w.Remove("new.yaml")
		w.Await("it has gone", gone("new"))
		text := w.Logged()[mark:]
		return strings.Contains(text, noticed), strings.Contains(text, "] \"Volumes are ready\"")
	}
	for _, step := range []struct {
		name           string
		change         func()
		watch, volumes bool
	}{
		{"quiet", func() { w.drop(t, "20-log.conf", settings{"logging": "{verbosity: 0}"}) }, false, false},
		{"one file speaks", func() {
			w.drop(t, "10-log.conf", settings{"logging": "{verbosity: 9}"}) // 20-log.conf goes before it
			w.drop(t, "20-log.conf", settings{"logging": "{verbosity: 0, vmodule: [{filePattern: 'filew*', verbosity: 4}]}"})
		}, true, false},
		{"only the file is left", func() {
			for _, name := range []string{"10-log.conf", "20-log.conf"} {
				if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}, true, true},
	} {
		if watch, volumes := says(step.change); watch != step.watch || volumes != step.volumes {
			t.Errorf("%s: the agent logs about its files: %v, about volumes: %v; want %v and %v", step.name, watch, volumes, step.watch, step.volumes)
		}
	}
}

// fewerLogs lets logs that refused had rotated pile up, and then go.
func (w *watched) fewerLogs(t *testing.T) {
	t.Helper()
	w.Eventually("the log is rotated again and again", func() error {
		if files := w.logFiles(t); len(files) < 4 {
			return fmt.Errorf("there are only %q", files)
		}
		return nil
	})
	w.set(t, settings{"containerLogMaxFiles": "2"})
	w.Eventually("two files are left", func() error {
		if files := w.logFiles(t); len(files) != 2 {
			return fmt.Errorf("there are %q", files)
		}
		return nil
	})
	w.set(t, settings{"containerLogMaxSize": "10Mi"})
}

// mounted makes the file a link as in a mounted ConfigMap, and changes where that leads.
func (w *watched) mounted(t *testing.T) {
	t.Helper()
	mount := filepath.Join(w.Base, "mount")
	version := func(name, burst string) {
		t.Helper()
		dir := filepath.Join(mount, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		w.file["kubeAPIBurst"] = burst
		put(t, filepath.Join(dir, "config.yaml"), w.ConfigText(w.file.String()))
		link(t, name, filepath.Join(mount, "..data"))
	}
	version("..1", "101")
	link(t, filepath.Join("..data", "config.yaml"), filepath.Join(mount, "config.yaml"))
	reload(t, w.Node, "applied", func() { link(t, filepath.Join("mount", "config.yaml"), w.ConfigFile()) })
	reload(t, w.Node, "applied", func() {
		version("..2", "102")
		if err := os.RemoveAll(filepath.Join(mount, "..1")); err != nil {
			t.Fatal(err)
		}
	})
	if got := w.values(t, "kubeAPIBurst")["kubeAPIBurst"]; got != "102" {
		t.Errorf("kubeAPIBurst is %s, want 102 as in the newer version", got)
	}
}

// link makes a link to a target, in place of what was there.
func link(t *testing.T, target, path string) {
	t.Helper()
	part := path + ".part"
	if err := os.Symlink(target, part); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(part, path); err != nil {
		t.Fatal(err)
	}
}

// shorterBackoff has a container restarted that would have had to wait for longer.
func (w *watched) shorterBackoff(t *testing.T) {
	t.Helper()
	const long = 8 * time.Second
	var next time.Time
	w.Eventually("the next restart is far off", func() error {
		e, err := firstWait(w.Node, "crashes")
		if next = e.Next; err == nil && time.Until(next) < long {
			err = fmt.Errorf("it is at %s: %s", next, e.Text)
		}
		return err
	})
	w.set(t, settings{"crashLoopBackOff": "{maxContainerRestartPeriod: 1s}"})
	s := w.Await("it is started again", node.Ready("talks"))
	had := status(t, s, "crashes", "web").RestartCount
	w.Await("and again", restarted("crashes", had+2))
	if now := time.Now(); now.After(next) {
		t.Errorf("it was started again at %s, no sooner than with the long wait (%s)", now, next)
	}
}
