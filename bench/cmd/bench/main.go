// Command bench measures deckhand:
//
//	bench pods    against plain CRI calls, on a containerd of its own
//	bench scale   alone with many pods, on an in-memory runtime
//	bench memcri  serve that runtime on a socket
//	bench probes  many HTTP probes, beside bare system calls and net/http
//	bench probed  serve what those ask
//	bench volumes volumes, beside bare system calls, many at rest, and edits until all pods have them
//	bench images  pulls, beside plain CRI calls, from a registry of its own
//	bench exec    commands in a container, beside plain CRI calls
//	bench cluster pods of a real control plane, beside the kubelet
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/bench/cluster"
	"github.com/deckhand-node/deckhand/bench/exec"
	"github.com/deckhand-node/deckhand/bench/images"
	"github.com/deckhand-node/deckhand/bench/pods"
	"github.com/deckhand-node/deckhand/bench/probes"
	"github.com/deckhand-node/deckhand/bench/scale"
	"github.com/deckhand-node/deckhand/bench/volumes"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "bench", Short: "Measure deckhand.", SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	bin := root.PersistentFlags().String("bin", "bin", "the `directory` with deckhand, the runtime's programs and its images")
	root.AddCommand(podsCommand(bin), scaleCommand(bin), memcriCommand(), probesCommand(), probedCommand(), imagesCommand(bin), volumesCommand(bin), execCommand(bin), clusterCommand(bin))
	return root
}

func podsCommand(bin *string) *cobra.Command {
	var o pods.Options
	cmd := &cobra.Command{
		Use: "pods", Short: "Start, restart and remove pods, beside plain CRI calls for the same.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.BinDir, err = filepath.Abs(*bin); err != nil {
				return err
			}
			o.Out = cmd.OutOrStdout()
			return pods.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.Counts, "pods", []int{20, 50, 100}, "`numbers` of pods to start")
	f.IntSliceVar(&o.Concurrencies, "concurrency", []int{1, 2, 4, 8}, "`numbers` of pods the floor starts at a time; the best counts")
	f.IntVar(&o.Rounds, "rounds", 3, "how `often` floor and deckhand take turns")
	f.IntSliceVar(&o.IdleCounts, "idle-pods", []int{20, 100}, "`numbers` of pods to idle with")
	f.DurationVar(&o.Idle, "idle", 30*time.Second, "how `long` to look at the idle agent")
	f.BoolVar(&o.FloorOnly, "floor-only", false, "measure the floor alone")
	return cmd
}

func execCommand(bin *string) *cobra.Command {
	var o exec.Options
	cmd := &cobra.Command{
		Use: "exec", Short: "Run a command in a container, beside plain CRI calls for the same.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.BinDir, err = filepath.Abs(*bin); err != nil {
				return err
			}
			o.Out = cmd.OutOrStdout()
			return exec.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().IntVar(&o.Rounds, "rounds", 100, "how `often` each way takes its turn")
	return cmd
}

func clusterCommand(bin *string) *cobra.Command {
	var o cluster.Options
	cmd := &cobra.Command{
		Use: "cluster", Short: "Have pods of a real control plane run, and say what they use, beside the kubelet.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.BinDir, err = filepath.Abs(*bin); err != nil {
				return err
			}
			o.Out = cmd.OutOrStdout()
			return cluster.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().IntSliceVar(&o.Counts, "pods", []int{1, 20, 100}, "`numbers` of pods to create at once")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 3, "how `often` deckhand and the kubelet take turns")
	return cmd
}

func scaleCommand(bin *string) *cobra.Command {
	var o scale.Options
	cmd := &cobra.Command{
		Use: "scale", Short: "Give deckhand many pods on an in-memory runtime.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.BinDir, err = filepath.Abs(*bin); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.MemCRI = []string{self, "memcri"}
			o.Out = cmd.OutOrStdout()
			return scale.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().IntSliceVar(&o.Counts, "pods", []int{100, 500, 2000}, "`numbers` of pods")
	cmd.Flags().BoolVar(&o.Kubelet, "kubelet", false, "measure the kubelet (make kubelet) in deckhand's place")
	cmd.Flags().DurationVar(&o.Idle, "idle", 25*time.Second, "how `long` to look at the idle agent")
	return cmd
}

func memcriCommand() *cobra.Command {
	return &cobra.Command{
		Use: "memcri SOCKET", Short: "Serve an in-memory runtime until SIGTERM.", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := memcri.New(memcri.Options{
				WriteLogs: true, // whose sizes the agent looks at
				Images:    []string{scale.Image}, EventQueue: 200_000, CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS,
			})
			if err != nil {
				return err
			}
			if err := s.Start(args[0]); err != nil {
				return err
			}
			<-cmd.Context().Done()
			s.Close()
			return nil
		},
	}
}

func probesCommand() *cobra.Command {
	var o probes.Options
	cmd := &cobra.Command{
		Use: "probes", Short: "Try many HTTP probes a second.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.Server = []string{self, "probed"}
			o.Out = cmd.OutOrStdout()
			return probes.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Count, "probes", 1000, "the `number` of probes")
	f.DurationVar(&o.Period, "period", time.Second, "how `often` each is tried")
	f.DurationVar(&o.For, "for", 10*time.Second, "how `long` each way of probing is looked at")
	f.IntVar(&o.Rounds, "rounds", 2, "how `often` the ways take turns")
	return cmd
}

func probedCommand() *cobra.Command {
	return &cobra.Command{
		Use: "probed", Short: "Serve what the probes ask, until SIGTERM.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return probes.Serve(cmd.Context(), cmd.OutOrStdout()) },
	}
}

func imagesCommand(bin *string) *cobra.Command {
	var o images.Options
	cmd := &cobra.Command{
		Use: "images", Short: "Pull images, beside plain CRI calls for the same.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.BinDir, err = filepath.Abs(*bin); err != nil {
				return err
			}
			o.Out = cmd.OutOrStdout()
			return images.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Layers, "layers", 4, "the `number` of layers to pull")
	f.Int64Var(&o.LayerSize, "layer-size", 8<<20, "how many random `bytes` each has")
	f.IntVar(&o.Rounds, "rounds", 9, "how `often` floor and deckhand take turns to pull")
	f.IntVar(&o.Pods, "pods", 100, "the `number` of pods that want one image")
	f.IntVar(&o.PodRounds, "pod-rounds", 1, "how `often` they are started")
	f.BoolVar(&o.FloorOnly, "floor-only", false, "measure the floor alone")
	return cmd
}

func volumesCommand(bin *string) *cobra.Command {
	var o volumes.Options
	cmd := &cobra.Command{
		Use: "volumes", Short: "Make volumes beside bare system calls, look at many of them at rest, and edit what they are made from.", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.BinDir, err = filepath.Abs(*bin); err != nil {
				return err
			}
			o.Out = cmd.OutOrStdout()
			return volumes.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Pods, "pods", 100, fmt.Sprintf("the `number` of pods with %d volumes each", volumes.PerPod))
	f.IntVar(&o.Single, "single", 200, "the `number` of volumes to make one by one")
	f.IntVar(&o.Edits, "edits", 5, "how `often` the ConfigMap is edited in a round")
	f.IntVar(&o.Rounds, "rounds", 3, "how `often` all is measured")
	f.DurationVar(&o.Idle, "idle", 25*time.Second, "how `long` to look at the idle agent")
	return cmd
}
