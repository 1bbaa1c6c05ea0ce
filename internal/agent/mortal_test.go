package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/agent"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/host/process"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// mortalDir, in the environment, makes the test's binary an agent that can be
// killed: a process of its own, with everything in that directory.
const mortalDir = "DECKHAND_TEST_MORTAL"

// runMortal is that process. It ends with its parent at the latest.
func runMortal(dir string) int {
	if err := runMortalAgent(dir); err != nil {
		fmt.Fprintln(os.Stderr, "the agent ended:", err)
	}
	return 1 // it wasn't asked to end
}

func runMortalAgent(dir string) error {
	if os.Getenv(threadsEnv) != "" {
		process.PrepareThreads(process.ThreadsAhead())
	}
	cfg, err := loadConfig(dir)
	if err != nil {
		return err
	}
	// One write a line, as a line of a process that is killed is there or isn't.
	log := funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{Verbosity: 2, LogTimestamp: true})
	b := &brink{asked: map[int]chan struct{}{}}
	a, err := agent.NewBetween(cfg, agent.Options{Log: log}, agent.Between{Workers: func(c *worker.Config) {
		c.Desired = &apiObjects{Desired: c.Desired, versions: map[*pod.Desired]*pod.Desired{}, deleted: map[types.UID]time.Time{}}
		c.Executor = brinkEffects{c.Executor, b}
		c.Statuses = brinkStatuses{c.Statuses, b}
	}})
	if err != nil {
		return err
	}
	go b.listen()
	return a.Run(context.Background())
}

// graceAnnotation makes a manifest's pod an object of an API server: one that is being deleted with so many seconds, unless it is empty.
const graceAnnotation = "test.example/grace"

// apiObjects is a source of such objects. It hears of a deletion when it first sees it.
type apiObjects struct {
	worker.Desired
	mu       sync.Mutex
	versions map[*pod.Desired]*pod.Desired
	deleted  map[types.UID]time.Time
}

func (o *apiObjects) Current() *desired.Set {
	o.mu.Lock()
	defer o.mu.Unlock()
	wanted := *o.Desired.Current()
	pods := slices.Clone(wanted.Pods)
	versions := make(map[*pod.Desired]*pod.Desired, len(pods))
	for i, d := range pods {
		grace, ok := d.Pod.Annotations[graceAnnotation]
		if !ok {
			continue
		}
		next := o.versions[d]
		if next == nil {
			object := *d
			next = &object
			next.RequiresTerminalPhase, next.UIDIsIdentity = true, true
			if seconds, err := strconv.Atoi(grace); err == nil {
				if o.deleted[d.Pod.UID].IsZero() {
					o.deleted[d.Pod.UID] = time.Now()
				}
				next.Deletion = &pod.Deletion{At: o.deleted[d.Pod.UID], Grace: time.Duration(seconds) * time.Second}
			}
		}
		versions[d], pods[i] = next, next
	}
	o.versions, wanted.Pods = versions, pods
	return &wanted
}

// brink is where the agent waits before and after each action until it hears from
// its parent that it may live on. It writes "NUMBER POINT" and reads "NUMBER".
type brink struct {
	mu    sync.Mutex
	last  int
	asked map[int]chan struct{}
}

func (b *brink) pass(point string) {
	b.mu.Lock()
	b.last++
	n, answer := b.last, make(chan struct{})
	b.asked[n] = answer
	fmt.Printf("%d %s\n", n, point)
	b.mu.Unlock()
	<-answer
}

func (b *brink) listen() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			break
		}
		b.mu.Lock()
		answer := b.asked[n]
		delete(b.asked, n)
		b.mu.Unlock()
		close(answer)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // the parent is gone
}

// brinkEffects puts the brink before and after each action.
type brinkEffects struct {
	worker.Executor
	*brink
}

func (e brinkEffects) Do(ctx context.Context, d *pod.Desired, o *pod.Observed, uid types.UID, a pod.Action) pod.Result {
	name := strings.TrimSpace(string(a.Kind) + " " + a.Container + written(a.Checkpoint))
	e.pass("before " + name)
	r := e.Executor.Do(ctx, d, o, uid, a)
	e.pass("after " + name)
	return r
}

// written reports what is in a record, to distinguish the writes of it.
func written(k *pod.Checkpoint) string {
	if k == nil {
		return ""
	}
	words := fmt.Sprintf("hooked%d ready%d renew%d resized%d carried%d %s", len(k.PostStartDone), len(k.Ready), len(k.Renew), len(k.Resized), len(k.Carried), k.Terminal)
	if k.RestartAll != nil {
		words += "restart-all"
	}
	return strings.TrimSpace(words)
}

// brinkStatuses puts it before and after each status.
type brinkStatuses struct {
	worker.Statuses
	*brink
}

func (s brinkStatuses) Publish(uid types.UID, r pod.Report) {
	s.pass("before " + statusPoint)
	s.Statuses.Publish(uid, r)
	s.pass("after " + statusPoint)
}

// statusPoint names the publication of a status among the actions.
const statusPoint = "Status"

func logOfMortal(dir string) string { return filepath.Join(dir, "agent.log") }
