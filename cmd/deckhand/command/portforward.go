package command

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/cmd/deckhand/command/streams"
)

func (a *app) portForwardCommand() *cobra.Command {
	var addresses []string
	cmd := &cobra.Command{
		Use:     "port-forward POD [LOCAL:]REMOTE...",
		GroupID: groupReach,
		Short:   "Carry connections on this machine to ports of a pod",
		Long: `Listen on this machine, and carry each connection to a port of the pod, until Ctrl-C or the end of
the pod. REMOTE is a number, or the name of a port in the pod's spec. LOCAL is the same number if
it isn't given; 0, or nothing before the colon, is any that is free.

` + namesOfPods,
		Example: `  deckhand port-forward web 8080                     127.0.0.1:8080 is the pod's port 8080
  deckhand port-forward web 8000:http 9000:9090      two of them
  deckhand port-forward --address 0.0.0.0 web :80    for other machines, on any port`,
		Args: arguments(cobra.MinimumNArgs(2)),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return a.completePods(cmd, args, typed)
			}
			return a.completePorts(cmd, args[0]), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			defer outliveReaders()() // keep forwarding if the reader of the output exits
			ctx, end := untilHangUp(cmd.Context())
			defer end()
			if err := checkAddresses(cmd, addresses); err != nil {
				return err
			}
			client := a.client(cmd)
			snapshot, err := client.Snapshot(ctx)
			if err != nil {
				return err
			}
			p, err := show.FindPod(snapshot, flagValue(cmd, "namespace"), args[0])
			if err != nil {
				return err
			}
			var ports []streams.Port
			for _, arg := range args[1:] {
				port, err := parsePort(p, arg)
				if err != nil {
					return usagef(cmd, "%w", err)
				}
				ports = append(ports, port)
			}
			conn, err := client.PortForward(ctx, p.Namespace, p.Name, streams.ForwardProtocol)
			if err != nil {
				return err
			}
			defer conn.Close()
			f := streams.Forward{Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}
			defer f.Close()
			var failed []error
			for _, port := range ports {
				if err := f.Listen(ctx, addresses, port); err != nil {
					failed = append(failed, err)
				}
			}
			if len(failed) == len(ports) {
				return errors.Join(failed...)
			}
			for _, err := range failed {
				f.Fail(err)
			}
			return f.Run(ctx, conn)
		},
	}
	cmd.Flags().StringSliceVar(&addresses, "address", []string{"localhost"},
		"listen on these `ADDRESSES`, separated by commas: IP addresses, or localhost")
	return cmd
}

func checkAddresses(cmd *cobra.Command, addresses []string) error {
	for _, address := range addresses {
		if _, err := netip.ParseAddr(address); err != nil && address != "localhost" {
			return usagef(cmd, "--address: %q is neither an IP address nor localhost", address)
		}
	}
	if len(addresses) == 0 {
		return usagef(cmd, "--address needs a value")
	}
	return nil
}

// parsePort parses [LOCAL:]REMOTE.
func parsePort(p *v1.Pod, arg string) (streams.Port, error) {
	local, remote, two := strings.Cut(arg, ":")
	if !two {
		remote = local
	}
	to, err := strconv.ParseUint(remote, 10, 16)
	if named := namedPorts(p); err != nil && named[remote] > 0 {
		to = uint64(named[remote])
	} else if err != nil || to == 0 {
		return streams.Port{}, fmt.Errorf(
			"%q: %q is neither a port's number (1 to 65535) nor its name in the pod's spec", arg, remote)
	}
	if !two {
		return streams.Port{Local: uint16(to), Remote: uint16(to)}, nil
	}
	if local == "" {
		local = "0"
	}
	from, err := strconv.ParseUint(local, 10, 16)
	if err != nil {
		return streams.Port{}, fmt.Errorf("%q: %q isn't a port's number (0 to 65535)", arg, local)
	}
	return streams.Port{Local: uint16(from), Remote: uint16(to)}, nil
}

// namedPorts returns the named ports of a pod's containers.
func namedPorts(p *v1.Pod) map[string]int32 {
	named := map[string]int32{}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			for _, port := range list[i].Ports {
				if port.Name != "" {
					named[port.Name] = port.ContainerPort
				}
			}
		}
	}
	return named
}

// completePorts completes the ports of a pod's containers.
func (a *app) completePorts(cmd *cobra.Command, name string) []string {
	snapshot, err := a.client(cmd).Snapshot(cmd.Context())
	if err != nil {
		return nil
	}
	p, err := show.FindPod(snapshot, flagValue(cmd, "namespace"), name)
	if err != nil {
		return nil
	}
	var list []string
	for i := range p.Spec.Containers {
		for _, port := range p.Spec.Containers[i].Ports {
			list = append(list, strconv.Itoa(int(port.ContainerPort)))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
