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

// gcPercent is the default of GOGC. It is lower than Go's default of 100, because an agent is idle nearly always, so
// that memory matters more than CPU time at a start. With 500 pods, a value of 20 needs 6 MiB less memory than 50, and
// as much CPU time for starting the pods (bench scale).
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
