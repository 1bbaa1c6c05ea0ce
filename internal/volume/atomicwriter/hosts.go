package atomicwriter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Hosts writes the pod's hosts file, as documented in
// https://kubernetes.io/docs/tasks/network/customize-hosts-file-for-pods/, and returns its path. The pod's
// directory has to exist.
func (f *Files) Hosts(p *v1.Pod, podIPs []string) (string, error) {
	content, err := f.hosts(p, podIPs)
	if err != nil {
		return "", fmt.Errorf("make /etc/hosts: %w", err)
	}
	file := filepath.Join(f.podDir(p.UID), "etc-hosts")
	if holds(file, content) {
		return file, nil
	}
	// The file is replaced, not changed: running containers keep the file that they have mounted.
	if err := atomicfile.WriteVolatile(file, content, 0o644); err != nil {
		return "", fmt.Errorf("make /etc/hosts: %w", err)
	}
	return file, nil
}

// holds reports whether the file has this content. Containers can write to the file and make it large, so at most
// one byte more than the content is read.
func holds(file string, content []byte) bool {
	opened, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer opened.Close()
	old, err := io.ReadAll(io.LimitReader(opened, int64(len(content))+1))
	return err == nil && bytes.Equal(old, content)
}

func (f *Files) hosts(p *v1.Pod, podIPs []string) ([]byte, error) {
	var b bytes.Buffer
	if p.Spec.HostNetwork {
		node, err := os.ReadFile(f.nodeHosts)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(node)
		if len(node) > 0 && node[len(node)-1] != '\n' {
			b.WriteByte('\n')
		}
	} else {
		b.WriteString(`# Kubernetes-managed hosts file.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`)
		names := f.podNames(p)
		for _, ip := range podIPs {
			fmt.Fprintf(&b, "%s\t%s\n", ip, names)
		}
	}
	if len(p.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, alias := range p.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return b.Bytes(), nil
}

// podNames returns the pod's host names: the FQDN first, if it has one.
func (f *Files) podNames(p *v1.Pod) string {
	host, fqdn := pod.HostNames(p, f.clusterDomain)
	if fqdn == "" {
		return host
	}
	return fqdn + "\t" + host
}
