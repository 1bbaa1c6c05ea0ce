// Package buildinfo describes the running build of deckhand: its version, the commit that it was built from, and the
// Kubernetes release whose kubelet it replaces.
package buildinfo

import (
	"runtime"
	"runtime/debug"
	"time"
)

// version is set by the Makefile:
// -ldflags "-X github.com/deckhand-node/deckhand/internal/kit/buildinfo.version=v0.1.0".
var version string

// Kubernetes is the version of the kubelet that this build replaces, and of the Kubernetes libraries that it is built
// with.
const Kubernetes = "v1.36.3"

// Info describes a build.
type Info struct {
	// Version is a release such as "v0.1.0", or "devel".
	Version string `json:"version"`
	// Commit is the revision from which the program was built, with "+dirty" if the working tree was modified; empty if
	// the build didn't record it.
	Commit string `json:"commit,omitempty"`
	// Time is when that revision was committed; zero if the build didn't record it.
	Time time.Time `json:"time,omitzero"`
	// Go is the version of the Go toolchain, such as "go1.26.0".
	Go string `json:"go"`
	// Platform is GOOS/GOARCH.
	Platform string `json:"platform"`
}

// Get returns the version and the source revision of the running binary.
func Get() Info {
	info := Info{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if ok {
		info.Commit, info.Time = commit(build.Settings)
		if info.Version == "" && build.Main.Version != "(devel)" {
			info.Version = build.Main.Version
		}
	}
	if info.Version == "" {
		info.Version = "devel"
	}
	return info
}

// String is the one-line form, as `deckhand version` prints it.
func (i Info) String() string {
	s := i.Version
	if i.Commit != "" {
		s += " (" + i.Commit + ")"
	}
	return s + " " + i.Go + " " + i.Platform
}

// commit returns the revision and when it was committed.
func commit(settings []debug.BuildSetting) (revision string, at time.Time) {
	dirty := ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		case s.Key == "vcs.time":
			at, _ = time.Parse(time.RFC3339, s.Value) // at is zero if the value isn't a time
		}
	}
	if revision == "" {
		return "", at
	}
	return revision + dirty, at
}
