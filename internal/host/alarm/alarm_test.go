package alarm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/alarm"
)

// asChild is set in the environment of a child process that uses memory.
const asChild = "DECKHAND_TEST_ALARM_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		if err := useMemory(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	mi = 1 << 20
	// patience is how long an event may take on a slow machine.
	patience = time.Minute
	v1Memory = "/sys/fs/cgroup/memory"
	machine  = "/proc/pressure/memory"
)

// useMemory obeys orders: "use N" and "free" for N bytes of memory, "swing N" for both in turn for a second, "thrash
// FILE" to read a file again and again. It answers each with a line, thrash before it begins.
func useMemory(orders io.Reader, answers io.Writer) error {
	var used []byte
	use := func(text string) error {
		n, err := strconv.Atoi(text)
		if err == nil {
			used, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		}
		for i := 0; i < len(used); i += os.Getpagesize() {
			used[i] = 1
		}
		return err
	}
	lines := bufio.NewScanner(orders)
	for lines.Scan() {
		what, argument, _ := strings.Cut(lines.Text(), " ")
		var err error
		switch what {
		case "use":
			err = use(argument)
		case "free":
			err = unix.Munmap(used)
		case "swing":
			for began := time.Now(); err == nil && time.Since(began) < time.Second; {
				if err = use(argument); err == nil {
					err = unix.Munmap(used)
				}
			}
		case "thrash":
			fmt.Fprintln(answers, "begun")
			return thrash(argument)
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(answers, "done")
	}
	return lines.Err()
}

// thrash reads a file in endless loops, for at most a minute. Several readers wait for each other's memory, however fast
// the machine is.
func thrash(path string) error {
	const readers = 16
	ended := make(chan error, readers)
	for i := range readers {
		go func() { ended <- read(path, int64(i)*4*mi) }()
	}
	var errs []error
	for range readers {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// read reads a file again and again, first from an offset.
func read(path string, offset int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	buffer := make([]byte, mi/16)
	for began := time.Now(); time.Since(began) < patience; {
		_, err := f.Read(buffer)
		if errors.Is(err, io.EOF) {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// child is a process that uses memory in groups.
type child struct {
	cmd     *exec.Cmd
	orders  io.Writer
	answers *bufio.Reader
}

// start starts a child in the groups. It ends with the test, before the groups.
func start(t *testing.T, groups ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asChild+"=1")
	cmd.Stderr = os.Stderr
	orders, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd, orders, bufio.NewReader(answers)}
	t.Cleanup(c.end)
	for _, dir := range groups {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// do gives the child an order and waits for the answer.
func (c *child) do(format string, arguments ...any) error {
	_, err := fmt.Fprintf(c.orders, format+"\n", arguments...)
	if err == nil {
		_, err = c.answers.ReadString('\n')
	}
	return err
}

func (c *child) must(t *testing.T, format string, arguments ...any) {
	t.Helper()
	if err := c.do(format, arguments...); err != nil {
		t.Fatalf("the child doesn't answer: %v", err)
	}
}

// end may be called repeatedly.
func (c *child) end() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// makeGroup creates a group that is removed at the end of the test. It skips the test if the host has no such groups.
func makeGroup(t *testing.T, dir string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes real cgroups: run it as root")
	}
	if unix.Access(filepath.Join(filepath.Dir(dir), "cgroup.procs"), unix.F_OK) != nil {
		t.Skipf("this host has no groups in %s", filepath.Dir(dir))
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

func name(t *testing.T) string {
	return fmt.Sprintf("deckhand-alarm-test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))
}

// limited makes a group on cgroup v1 whose processes may use so much memory: the machine isn't in danger.
func limited(t *testing.T, bytes int) string {
	t.Helper()
	dir := makeGroup(t, filepath.Join(v1Memory, name(t)))
	write(t, filepath.Join(dir, "memory.limit_in_bytes"), strconv.Itoa(bytes))
	return dir
}

// v2Dir is where groups of cgroup v2 are, on hosts that have them beside cgroup v1, too.
func v2Dir() string {
	const beside = "/sys/fs/cgroup/unified"
	if unix.Access(beside, unix.F_OK) == nil {
		return beside
	}
	return "/sys/fs/cgroup"
}

// run runs an alarm until the test ends.
func run(t *testing.T) *alarm.Alarm {
	t.Helper()
	a := alarm.New()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return a
}

// set sets triggers that have to hold.
func set(t *testing.T, a *alarm.Alarm, triggers ...alarm.Trigger) {
	t.Helper()
	if failed := a.Set(triggers); len(failed) > 0 {
		t.Fatalf("these triggers don't hold: %v", failed)
	}
}

// await waits for an event of each name, and returns how long the first took.
func await(t *testing.T, a *alarm.Alarm, names ...string) time.Duration {
	t.Helper()
	began := time.Now()
	var first time.Duration
	timeout := time.After(patience)
	for missing := names; len(missing) > 0; {
		select {
		case <-a.Woken():
			if first == 0 {
				first = time.Since(began)
			}
			for _, name := range a.Drain() {
				t.Logf("%s after %v", name, time.Since(began))
				missing = slices.DeleteFunc(slices.Clone(missing), func(m string) bool { return m == name })
			}
		case <-timeout:
			t.Fatalf("no event of %q", missing)
		}
	}
	return first
}

// descriptors counts this process's open files.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestUsage(t *testing.T) {
	dir := limited(t, 64*mi)
	c := start(t, dir)
	a := run(t)
	at := alarm.Trigger{Name: "32 MiB", Kind: alarm.Usage, Path: dir, Bytes: 32 * mi}
	never := alarm.Trigger{Name: "60 MiB", Kind: alarm.Usage, Path: dir, Bytes: 60 * mi}
	set(t, a, at, never)
	c.must(t, "use %d", 40*mi)
	await(t, a, at.Name)
	set(t, a, at) // loses nothing
	c.must(t, "free")
	await(t, a, at.Name)
	c.end()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	await(t, a, at.Name)
	if failed := a.Set([]alarm.Trigger{at}); !errors.Is(failed[at.Name], fs.ErrNotExist) {
		t.Errorf("the group was removed: %v", failed)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	set(t, a, at)
	c = start(t, dir)
	c.must(t, "use %d", 40*mi)
	await(t, a, at.Name)
}

// TestUsageSwings: the number of events is bounded, however often the threshold is crossed.
func TestUsageSwings(t *testing.T) {
	dir := limited(t, 64*mi)
	c := start(t, dir)
	c.must(t, "use %d", mi)
	text, err := os.ReadFile(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		t.Fatal(err)
	}
	usage, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	a := run(t)
	set(t, a, alarm.Trigger{Name: "usage", Kind: alarm.Usage, Path: dir, Bytes: uint64(usage + mi/2)})
	began, done := time.Now(), make(chan error, 1)
	go func() { done <- c.do("swing %d", mi) }()
	for events := 0; ; {
		select {
		case <-a.Woken():
			events++
		case err := <-done:
			if most := 1 + int(time.Since(began)/(10*time.Millisecond)); err != nil || events == 0 || events > most {
				t.Errorf("%d events in %v, want at most %d (%v)", events, time.Since(began), most, err)
			}
			t.Logf("%d events in %v", events, time.Since(began))
			return
		}
	}
}

func TestStalls(t *testing.T) {
	if unix.Access(machine, unix.F_OK) != nil {
		t.Skip("this kernel has no PSI")
	}
	memory := limited(t, 16*mi)
	dir := makeGroup(t, filepath.Join(v2Dir(), name(t)))
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	if err := os.Truncate(file, 64*mi); err != nil {
		t.Fatal(err)
	}
	a := run(t)
	group := alarm.Trigger{Name: "group", Kind: alarm.Stalls, Path: filepath.Join(dir, "memory.pressure")}
	set(t, a, alarm.Trigger{Name: "machine", Kind: alarm.Stalls, Path: machine}, group)
	c := start(t, memory, dir)
	c.must(t, "thrash %s", file)
	await(t, a, "machine", group.Name)
	await(t, a, "machine", group.Name) // while it lasts
	c.end()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	await(t, a, group.Name)
	if failed := a.Set([]alarm.Trigger{group}); !errors.Is(failed[group.Name], fs.ErrNotExist) {
		t.Errorf("the group was removed: %v", failed)
	}
}

func TestChanges(t *testing.T) {
	dir := makeGroup(t, filepath.Join(v2Dir(), name(t)))
	a := run(t)
	populated := alarm.Trigger{Name: "populated", Kind: alarm.Changes, Path: filepath.Join(dir, "cgroup.events")}
	set(t, a, populated)
	for range 3 {
		c := start(t, dir)
		await(t, a, populated.Name)
		set(t, a, populated)
		c.end()
		await(t, a, populated.Name)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	await(t, a, populated.Name)
	if failed := a.Set([]alarm.Trigger{populated}); !errors.Is(failed[populated.Name], fs.ErrNotExist) {
		t.Errorf("the group was removed: %v", failed)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	set(t, a, populated)
	start(t, dir)
	await(t, a, populated.Name)
}

// TestEnds: Run ends whenever its context does, also if it waits for a Set before it polls.
func TestEnds(t *testing.T) {
	missing := []alarm.Trigger{{Name: "missing", Kind: alarm.Changes, Path: "/none"}}
	for i := range 20_000 {
		a := alarm.New()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		for range i % 40 {
			a.Set(missing) // each one lets Run poll again
		}
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(patience):
			t.Fatal("it never ended")
		}
	}
}

// TestSet: triggers come and go at run time, and leave nothing open.
func TestSet(t *testing.T) {
	before := descriptors(t)
	dir := limited(t, 64*mi)
	c := start(t, dir)
	during := descriptors(t)
	a := alarm.New()
	at := func(bytes uint64) alarm.Trigger {
		return alarm.Trigger{Name: "usage", Kind: alarm.Usage, Path: dir, Bytes: bytes}
	}
	set(t, a, at(30*mi), at(31*mi))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	c.must(t, "use %d", 40*mi)
	await(t, a, "usage")
	c.must(t, "free")
	await(t, a, "usage")
	for n := range uint64(1000) {
		set(t, a, at(30*mi+n*4096), at(20*mi))
	}
	set(t, a, at(50*mi))
	c.must(t, "use %d", 40*mi)
	c.must(t, "free")
	if names := a.Drain(); len(names) > 0 {
		t.Errorf("events of %q though usage is below the only threshold", names)
	}
	set(t, a, at(20*mi))
	c.must(t, "use %d", 25*mi)
	await(t, a, "usage")
	// Those of the trigger and of Run, and of the Go runtime for timers.
	if n := descriptors(t); n > during+4 {
		t.Errorf("%d descriptors are open, %d before", n, during)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if failed := a.Set([]alarm.Trigger{at(20 * mi)}); len(failed) > 0 {
		t.Errorf("after the end: %v", failed)
	}
	c.end()
	if n := descriptors(t); n > before+1 {
		t.Errorf("%d descriptors are open at the end, %d before", n, before)
	}
}

// TestSetExplains: the reason why a trigger isn't in force is for a person.
func TestSetExplains(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	a := run(t)
	for want, trigger := range map[string]alarm.Trigger{
		"/nowhere/memory.pressure: no such file":       {Kind: alarm.Stalls, Path: "/nowhere/memory.pressure"},
		"/nowhere/memory.usage_in_bytes: no such file": {Kind: alarm.Usage, Path: "/nowhere", Bytes: mi},
		"/nowhere/memory.events: no such file":         {Kind: alarm.Changes, Path: "/nowhere/memory.events"},
		"is a directory":                               {Kind: alarm.Changes, Path: filepath.Dir(file)},
	} {
		trigger.Name = want
		if failed := a.Set([]alarm.Trigger{trigger}); failed[want] == nil || !strings.Contains(failed[want].Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", trigger, failed, want)
		}
	}
}
