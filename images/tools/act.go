package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// role is what a process is told to do.
type role struct {
	name          string
	diary         diary
	web, tcp, rpc string
	well, first   string
	exit          int
	after, linger time.Duration
	eat           int
}

func (r *role) flags() *flag.FlagSet {
	f := flag.NewFlagSet("act", flag.ContinueOnError)
	f.StringVar(&r.name, "name", os.Getenv("HOSTNAME"), "who it is in the diary")
	f.StringVar((*string)(&r.diary), "diary", "", "`file` to tell starts, signals and ends in")
	f.StringVar(&r.web, "http", "", "`address` to answer HTTP at: /healthz, /guarded (with the header X-Ship: deckhand), /append?TEXT")
	f.StringVar(&r.tcp, "tcp", "", "`address` to accept connections at, while it is well")
	f.StringVar(&r.rpc, "grpc", "", "`address` of a gRPC health service")
	f.StringVar(&r.well, "well", "", "it is well only while this `file` exists")
	f.IntVar(&r.exit, "exit", 0, "exit code")
	f.DurationVar(&r.after, "after", 0, "end after a while (0: never)")
	f.StringVar(&r.first, "first", "", "if this `file` exists, forget -exit and -after; else make it")
	f.DurationVar(&r.linger, "linger", 0, "go on for a while after a signal")
	f.IntVar(&r.eat, "eat", 0, "use so many `MiB` of memory")
	return f
}

// isWell reports whether its probes are to succeed.
func (r *role) isWell() bool { return r.well == "" || exists(r.well) }

func act(args []string) error {
	var r role
	if err := r.flags().Parse(args); err != nil {
		return err
	}
	if r.first != "" && failOnce(r.first, "1") == nil {
		r.exit, r.after = 0, 0
	}
	// All that a stopSignal may be in these tests. As PID 1 a process without
	// handlers would ignore them.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGHUP, unix.SIGQUIT)
	fmt.Println(r.name, "version", os.Getenv("VERSION"))
	memory := eat(r.eat)
	if err := r.diary.add(r.name + " started"); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	served := make(chan error, 3)
	var all sync.WaitGroup
	for _, serve := range []func(context.Context) error{r.serveHTTP, r.serveTCP, r.serveGRPC} {
		all.Go(func() { served <- serve(ctx) })
	}
	err := r.live(signals, served)
	stop()
	all.Wait()
	if ended := r.diary.add(r.name + " ended"); ended != nil {
		return ended
	}
	clear(memory) // it was in use until here
	if err == nil && r.exit != 0 {
		return exitCode(r.exit)
	}
	return err
}

// live returns when the time is up, a signal has come, or something couldn't be served.
func (r *role) live(signals <-chan os.Signal, served <-chan error) error {
	var end <-chan time.Time
	if r.after > 0 {
		end = time.After(r.after)
	}
	for {
		select {
		case <-end:
			return nil
		case err := <-served:
			if err != nil {
				return err
			}
		case s := <-signals:
			if err := r.diary.add(r.name + " got " + unix.SignalName(s.(unix.Signal))); err != nil {
				return err
			}
			if r.linger == 0 {
				return nil
			}
			end = time.After(r.linger)
		}
	}
}

// eat returns so many MiB, each page of them touched.
func eat(mib int) []byte {
	memory := make([]byte, mib<<20)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return memory
}

var errSick = errors.New("not well")
