// Command web is the one program of the image deckhand.local/web:1: a small web
// server for the examples, and small commands that tests give a container to do.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const usage = `web [COMMAND]

  serve [-listen ADDRESS] [-delay DURATION]
                       answer HTTP (the default; -listen defaults to :8080)
  sleep DURATION       do nothing for a while, then exit 0; SIGTERM ends it at once
  exit CODE [AFTER]    exit with CODE, after a while if AFTER is given
  env                  print the environment, sorted
  logs N [INTERVAL]    print N numbered lines, odd ones to stdout and even ones to stderr
  burst BYTES          print so many bytes as lines of 100
  write FILE TEXT      write TEXT and a newline to FILE
  cat FILE             print FILE
  get URL              print what an HTTP server answers, once it does within 10 seconds
  clock FILE [INTERVAL]
                       write the time to FILE again and again (1s), until SIGTERM
  watch FILE           print FILE whenever its text changes, until SIGTERM
  hog MIB [INTERVAL]   take so much memory, a MiB at a time (20ms), and keep it until SIGTERM
  threads N            start N threads, and keep them until SIGTERM
  fill DIR N BYTES     write N files of BYTES to DIR, as long as they fit, and wait for SIGTERM
  ignore-term [DURATION]
                       ignore SIGTERM and SIGINT for DURATION (1h)
`

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"serve"}
	}
	// As PID 1 a process without handlers ignores SIGTERM, so every command needs this.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, args[0], args[1:])
	stop()
	var code exitCode
	switch {
	case err == nil:
	case errors.As(err, &code):
		os.Exit(int(code))
	default:
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(2)
	}
}

// exitCode is an ending that a command was asked for.
type exitCode int

func (c exitCode) Error() string { return "exit " + strconv.Itoa(int(c)) }

func run(ctx context.Context, name string, args []string) error {
	commands := map[string]struct {
		min, max int
		do       func(context.Context, []string) error
	}{
		"serve":       {0, 4, serve},
		"sleep":       {1, 1, sleep},
		"exit":        {1, 2, exit},
		"env":         {0, 0, env},
		"logs":        {1, 2, logs},
		"burst":       {1, 1, burst},
		"write":       {2, 2, write},
		"cat":         {1, 1, cat},
		"get":         {1, 1, get},
		"clock":       {1, 2, clock},
		"watch":       {1, 1, watch},
		"hog":         {1, 2, hog},
		"threads":     {1, 1, threads},
		"fill":        {3, 3, fill},
		"ignore-term": {0, 1, ignoreTerm},
	}
	c, ok := commands[name]
	if !ok || len(args) < c.min || len(args) > c.max {
		return fmt.Errorf("no command %q\n\n%s", strings.Join(append([]string{name}, args...), " "), usage)
	}
	return c.do(ctx, args)
}

// wait sleeps until d has passed or ctx ends; it reports whether d passed.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func sleep(ctx context.Context, args []string) error {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	wait(ctx, d)
	return nil
}

func exit(ctx context.Context, args []string) error {
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if len(args) == 2 {
		d, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		if !wait(ctx, d) {
			return nil
		}
	}
	return exitCode(code)
}

func env(context.Context, []string) error {
	vars := os.Environ()
	sort.Strings(vars)
	_, err := fmt.Println(strings.Join(vars, "\n"))
	return err
}

func logs(ctx context.Context, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	var every time.Duration
	if len(args) == 2 {
		if every, err = time.ParseDuration(args[1]); err != nil {
			return err
		}
	}
	for i := 1; i <= n; i++ {
		var w io.Writer = os.Stdout
		if i%2 == 0 {
			w = os.Stderr
		}
		if _, err := fmt.Fprintf(w, "line %d\n", i); err != nil {
			return err
		}
		if every > 0 && !wait(ctx, every) {
			return nil
		}
	}
	return nil
}

func burst(_ context.Context, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	line := []byte(strings.Repeat("x", 99) + "\n")
	for ; n > 0; n -= len(line) {
		if _, err := os.Stdout.Write(line[max(0, len(line)-n):]); err != nil {
			return err
		}
	}
	return nil
}

func write(_ context.Context, args []string) error {
	return os.WriteFile(args[0], []byte(args[1]+"\n"), 0o644)
}

func cat(_ context.Context, args []string) error {
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

func get(ctx context.Context, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	// A Service's address is forwarded a second after its pod is ready.
	for (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENETUNREACH)) && wait(ctx, time.Second/4) {
		response, err = http.DefaultClient.Do(request)
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s", args[0], response.Status)
	}
	return nil
}

// clock replaces the file as a whole, so that a reader never sees half a line.
func clock(ctx context.Context, args []string) error {
	every := time.Second
	if len(args) == 2 {
		var err error
		if every, err = time.ParseDuration(args[1]); err != nil {
			return err
		}
	}
	for {
		if err := os.WriteFile(args[0]+".new", []byte(time.Now().UTC().Format(time.RFC3339)+"\n"), 0o644); err != nil {
			return err
		}
		if err := os.Rename(args[0]+".new", args[0]); err != nil {
			return err
		}
		if !wait(ctx, every) {
			return nil
		}
	}
}

// watch looks at the file four times a second: the simplest thing that sees a
// change made by another container, a volume's symlink swap included.
func watch(ctx context.Context, args []string) error {
	last := "\x00"
	for {
		text, err := os.ReadFile(args[0])
		if err == nil && string(text) != last {
			last = string(text)
			fmt.Print(last)
		}
		if !wait(ctx, 250*time.Millisecond) {
			return nil
		}
	}
}

// hog writes to each page, since memory that is only asked for isn't used.
func hog(ctx context.Context, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	every := 20 * time.Millisecond
	if len(args) == 2 {
		if every, err = time.ParseDuration(args[1]); err != nil {
			return err
		}
	}
	var taken [][]byte
	for len(taken) < n && wait(ctx, every) {
		page := make([]byte, 1<<20)
		for i := range page {
			page[i] = byte(i)
		}
		taken = append(taken, page)
	}
	fmt.Println("took", len(taken))
	<-ctx.Done()
	fmt.Println("gives back", len(taken))
	return nil
}

func threads(ctx context.Context, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			runtime.LockOSThread() // ends with the goroutine
			<-ctx.Done()
		})
	}
	fmt.Println("started", n)
	all.Wait()
	return nil
}

func fill(ctx context.Context, args []string) error {
	n, errN := strconv.Atoi(args[1])
	size, errSize := strconv.Atoi(args[2])
	if err := errors.Join(errN, errSize); err != nil {
		return err
	}
	i := 0
	for ; i < n; i++ {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", args[0], i), make([]byte, size), 0o644); err != nil {
			fmt.Println(err)
			break
		}
	}
	fmt.Println("wrote", i)
	<-ctx.Done()
	return nil
}

func ignoreTerm(_ context.Context, args []string) error {
	d := time.Hour
	if len(args) == 1 {
		var err error
		if d, err = time.ParseDuration(args[0]); err != nil {
			return err
		}
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	fmt.Println("ignoring SIGTERM")
	time.Sleep(d)
	return nil
}
