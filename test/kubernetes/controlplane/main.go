// Command controlplane is a Kubernetes control plane in one program, for tests: etcd, kube-apiserver, kube-scheduler,
// kube-controller-manager, kube-proxy, kubectl, kubeadm, CoreDNS, metrics-server and Prometheus' queries, each under its
// own name. One program is linked once.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/cmd"
	metrics "sigs.k8s.io/metrics-server/cmd/metrics-server/app"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-proxy":              proxy.NewProxyCommand,
		"kubectl":                 cmd.NewDefaultKubectlCommand,
		"metrics-server":          func() *cobra.Command { return metrics.NewMetricsServerCommand(server.SetupSignalHandler()) },
		"promql":                  newPromQLCommand,
		"kubeadm":                 func() *cobra.Command { return kubeadm.NewKubeadmCommand(os.Stdin, os.Stdout, os.Stderr) },
	}
	name := filepath.Base(os.Args[0])
	switch command, ok := commands[name]; {
	case name == "etcd":
		etcdmain.Main(os.Args)
	case name == "coredns":
		// Not with cli.Run: it sends Go's log to klog, and CoreDNS sends klog to Go's log.
		if err := newCoreDNSCommand().Execute(); err != nil {
			os.Exit(1)
		}
	case ok:
		os.Exit(cli.Run(command()))
	default:
		fmt.Fprintf(os.Stderr, "%s: call it etcd, kube-apiserver, kube-scheduler, kube-controller-manager, kube-proxy, kubectl, "+
			"kubeadm, coredns, metrics-server or promql (a link with that name will do)\n", name)
		os.Exit(2)
	}
}
