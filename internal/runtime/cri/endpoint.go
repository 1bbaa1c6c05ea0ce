package cri

import (
	"fmt"
	"net/url"
	"path/filepath"
)

// maxSocketPath is the maximum length of a unix socket's path on Linux (sun_path without its final NUL).
const maxSocketPath = 107

// endpoint validates a --container-runtime-endpoint and adds the scheme to a bare path.
func endpoint(text string) (string, error) {
	if text == "" {
		return "", fmt.Errorf("no container runtime endpoint given: use unix:///PATH/TO/SOCKET")
	}
	if filepath.IsAbs(text) {
		text = "unix://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("container runtime endpoint %q: %w: use unix:///PATH/TO/SOCKET", text, err)
	}
	switch {
	case u.Scheme != "unix":
		return "", fmt.Errorf("container runtime endpoint %q: only unix sockets are supported: use "+
			"unix:///PATH/TO/SOCKET", text)
	case u.Host != "" || !filepath.IsAbs(u.Path):
		return "", fmt.Errorf("container runtime endpoint %q: the socket's path must be absolute, with three "+
			"slashes: unix:///PATH/TO/SOCKET", text)
	case len(u.Path) > maxSocketPath:
		return "", fmt.Errorf("container runtime endpoint %q: the path has %d bytes and Linux takes %d for a socket: "+
			"use a shorter root directory", text, len(u.Path), maxSocketPath)
	}
	return text, nil
}
