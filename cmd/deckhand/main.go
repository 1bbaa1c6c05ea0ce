// Command deckhand is a Kubernetes node agent. Called as `kubelet` it replaces the kubelet.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command"
)

// gcPercent is the default of GOGC. An agent is idle nearly always, so that its memory matters more than the CPU time
// that Go's default of 100 saves at starts: with 500 pods, 20 needs 6 MiB less than 50, and as much CPU time for
// starting them (bench scale).
const gcPercent = 20

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		command.AwaitSignals(signals, cancel)
		os.Exit(130)
	}()
	os.Exit(command.Main(ctx, os.Args[1:], os.Args[0], os.Stdin, os.Stdout, os.Stderr, command.Commands(os.Args[0])))
}
