package main

import (
	"os"

	"github.com/coredns/caddy"
	_ "github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
)

// newCoreDNSCommand serves DNS as a Corefile says, with the plugins above: CoreDNS' own program has some fifty.
func newCoreDNSCommand() *cobra.Command {
	return &cobra.Command{
		Use: "coredns COREFILE", Args: cobra.ExactArgs(1), SilenceUsage: true,
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			server, err := caddy.Start(caddy.CaddyfileInput{Filepath: args[0], Contents: text, ServerTypeName: "dns"})
			if err != nil {
				return err
			}
			server.Wait()
			return nil
		},
	}
}
