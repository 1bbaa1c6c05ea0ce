// Command deckhand is a Kubernetes node agent. Called as `kubelet` it takes the
// kubelet's place.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/deckhand-node/deckhand/internal/agent"
	"github.com/deckhand-node/deckhand/internal/cli"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		cancel() // the first signal asks for an orderly stop
		<-signals
		os.Exit(130) // the second one insists
	}()
	os.Exit(cli.Main(ctx, os.Args[1:], os.Args[0], os.Stdin, os.Stdout, os.Stderr, agent.Commands(os.Args[0])))
}
