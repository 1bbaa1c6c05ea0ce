package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrarTimeout is how long the registrar waits for the driver's name.
const registrarTimeout = 2 * time.Minute

// runRegistrar registers the driver of another process, with the flags of node-driver-registrar.
func runRegistrar(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("registrar", flag.ContinueOnError)
	address := f.String("csi-address", "/csi/csi.sock", "unix socket of the driver")
	path := f.String("kubelet-registration-path", "", "path of that socket for the node")
	dir := f.String("plugin-registration-path", "/registration", "directory of the socket for the node")
	timeout := f.Duration("timeout", registrarTimeout, "how long to wait for the driver")
	_ = f.String("v", "", "ignored")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *path == "" || f.NArg() > 0 {
		return errors.New("--kubelet-registration-path is needed, and no arguments")
	}
	conn, err := grpc.NewClient("unix://"+*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, *timeout)
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(asking, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	cancel()
	if err := errors.Join(err, conn.Close()); err != nil {
		return err
	}
	s := grpc.NewServer()
	c := config{registeredName: info.GetName(), registeredPath: *path, versions: "1.0.0"}
	registration.RegisterRegistrationServer(s, &registrar{config: c, journal: &journal{}})
	socket := filepath.Join(*dir, info.GetName()+"-reg.sock")
	return serve(ctx, []server{{socket, s.Serve, s.Stop}}, func() {})
}

// runLivenessProbe serves the health of the driver of another process, with the flags of livenessprobe.
func runLivenessProbe(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("livenessprobe", flag.ContinueOnError)
	address := f.String("csi-address", "/csi/csi.sock", "unix socket of the driver")
	port := f.String("health-port", "9808", "TCP port of the HTTP server")
	_ = f.String("v", "", "ignored")
	if err := f.Parse(args); err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	s := http.Server{Addr: ":" + *port, Handler: health(csi.NewIdentityClient(conn)), ReadHeaderTimeout: time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	err = s.ListenAndServe()
	return errors.Join(ignoreClosed(ctx, err), conn.Close())
}

// health answers GET /healthz with the answer to a Probe.
func health(driver csi.IdentityClient) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if _, err := driver.Probe(r.Context(), &csi.ProbeRequest{}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}

// proxy connects each client of the CSI socket with a connection to another address, so that a driver elsewhere, which
// makes connections to that address, serves the clients. Kubernetes' csi-mock works like that.
func proxy(ctx context.Context, endpoint, remote string, ready func()) error {
	network, address, ok := strings.Cut(remote, "://")
	if !ok {
		return errors.New("--proxy-endpoint needs a form like tcp://:9000")
	}
	drivers, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	clients, err := listen(endpoint)
	if err != nil {
		_ = drivers.Close()
		return err
	}
	defer func() { _ = os.Remove(endpoint) }()
	stop := context.AfterFunc(ctx, func() { _, _ = drivers.Close(), clients.Close() })
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	ready()
	for {
		client, err := clients.Accept()
		if err != nil {
			return ignoreClosed(ctx, err)
		}
		driver, err := drivers.Accept()
		if err != nil {
			_ = client.Close()
			return ignoreClosed(ctx, err)
		}
		running.Go(func() { join(ctx, client, driver) })
	}
}

// ignoreClosed returns the error of a listener that wasn't closed because ctx ended.
func ignoreClosed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// join copies in both directions until one connection or ctx ends.
func join(ctx context.Context, a, b net.Conn) {
	closed := func() { _, _ = a.Close(), b.Close() }
	stop := context.AfterFunc(ctx, closed)
	defer stop()
	var running sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{a: b, b: a} {
		running.Go(func() {
			_, _ = io.Copy(to, from)
			closed()
		})
	}
	running.Wait()
}
