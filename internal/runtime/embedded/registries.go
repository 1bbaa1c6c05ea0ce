package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/distribution/reference"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// loopbackHosts is the hosts.toml for a registry on a loopback address that has no such file yet: without the file,
// containerd would accept any certificate there. A registry without TLS is still contacted by plain HTTP: containerd
// tries both if the scheme is http and a TLS option is set.
const loopbackHosts = `# Written by deckhand, for containerd accepts any certificate of a registry on loopback otherwise.
# It isn't written again over changes: ca = "/path/of/ca.pem" names an authority, skip_verify = true accepts all.
server = "%s://%s"
skip_verify = false
`

// VerifyRegistry makes containerd verify the certificate of the image's registry on loopback, as it does for all
// other registries, unless a hosts.toml (or another file for that registry, or for all) exists. Call it before a
// pull.
func (c Config) VerifyRegistry(image string) error {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return err
	}
	l, err := c.Layout()
	if err != nil {
		return err
	}
	host := reference.Domain(named)
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, ""
	}
	if ip := net.ParseIP(name); name != "localhost" && !ip.IsLoopback() || port == "80" { // port 80 has no TLS
		return nil
	}
	scheme := "http"
	if port == "" || port == "443" {
		scheme = "https"
	}
	if err := describe(l.Certs(), host, fmt.Appendf(nil, loopbackHosts, scheme, host)); err != nil {
		return fmt.Errorf("have the certificate of registry %s verified: %w", host, err)
	}
	return nil
}

// describe writes a registry's hosts.toml, unless containerd already has any configuration file for the registry.
func describe(certs, host string, text []byte) error {
	dir := filepath.Join(certs, host)
	// containerd searches these directories (docs/hosts.md); HOST_PORT_ is an alternative to HOST:PORT.
	other := dir
	if at := strings.LastIndexByte(dir, ':'); at > 0 {
		other = dir[:at] + "_" + dir[at+1:] + "_"
	}
	for _, dir := range []string{dir, other, filepath.Join(certs, "_default")} {
		entries, err := os.ReadDir(dir)
		if len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, "hosts.toml"), text, 0o644)
}
