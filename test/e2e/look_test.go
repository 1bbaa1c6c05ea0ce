package e2e

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/deckhand-node/deckhand/test/e2e/node"
	"github.com/deckhand-node/deckhand/test/registry"
)

// sight is what a container that looks around finds: see images/tools/look.go.
type sight struct {
	Dir         string
	Status      map[string]string
	Namespaces  map[string]string
	Streams     [3]string
	Processes   map[int]string
	Files, Made map[string]string
}

// sees waits until a container has printed what it finds, and returns that.
func sees(t *testing.T, n *node.Node, pod, container string) sight {
	t.Helper()
	var s sight
	n.Eventually("what "+container+" of "+pod+" sees", func() error {
		out, code := n.Deckhand("logs", pod, container)
		s = sight{}
		if err := json.Unmarshal([]byte(out), &s); err != nil || code != 0 {
			return fmt.Errorf("its log ended with %d and is %q: %w", code, out, err)
		}
		return nil
	})
	return s
}

// who is the user, the group and the further groups that a container runs as: "1000 2000 [3000 4000]".
func (s sight) who() string {
	groups := strings.Fields(s.Status["Groups"])
	slices.SortFunc(groups, func(a, b string) int { return len(a) - len(b) + strings.Compare(a, b) })
	return fmt.Sprint(one(s.Status["Uid"]), " ", one(s.Status["Gid"]), " ", groups)
}

// one is the value if real, effective, saved and file system IDs are the same one; else all of them.
func one(ids string) string {
	list := strings.Fields(ids)
	if list = slices.Compact(list); len(list) == 1 {
		return list[0]
	}
	return ids
}

// capabilities are a set of them, such as CapEff.
func (s sight) capabilities(t *testing.T, set string) uint64 {
	t.Helper()
	bits, err := strconv.ParseUint(s.Status[set], 16, 64)
	if err != nil {
		t.Fatalf("%s: %v", set, err)
	}
	return bits
}

// mounts are the options of what is mounted at each path, as the container sees it.
func (s sight) mounts() map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(s.Files["/proc/self/mountinfo"]) {
		if f := strings.Fields(line); len(f) > 5 {
			out[f[4]] = f[5]
		}
	}
	return out
}

// Images with users: crew:named runs as "sailor", crew:numbered as 1000, who is the
// same one; both know the groups that /etc/group has that user in, and begin in /home/sailor.
const (
	crewNamed, crewNumbered = "deckhand.local/crew:named", "deckhand.local/crew:numbered"
	crewUsers               = "root:x:0:0::/:\nsailor:x:1000:1000::/home/sailor:\n"
	crewGroups              = "root:x:0:\nsailor:x:1000:\ndeck:x:7000:sailor\nbridge:x:7001:root\n"
)

// crewArchive makes an archive of them.
func crewArchive(t *testing.T) string {
	t.Helper()
	base, err := mutate.AppendLayers(registry.FromArchive(t, tools, tools1), crewLayer(t))
	if err != nil {
		t.Fatal(err)
	}
	file, err := base.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	images := map[name.Tag]v1.Image{}
	for ref, user := range map[string]string{crewNamed: "sailor", crewNumbered: "1000"} {
		config := file.DeepCopy()
		config.Config.User, config.Config.WorkingDir = user, "/home/sailor"
		tag, err := name.NewTag(ref)
		if err != nil {
			t.Fatal(err)
		}
		if images[tag], err = mutate.ConfigFile(base, config); err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(t.TempDir(), "crew.tar")
	if err := tarball.MultiWriteToFile(archive, images); err != nil {
		t.Fatal(err)
	}
	return archive
}

func crewLayer(t *testing.T) v1.Layer {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range []struct{ path, text string }{{"etc/passwd", crewUsers}, {"etc/group", crewGroups}, {"home/sailor/log", "fair wind\n"}} {
		if err := w.WriteHeader(&tar.Header{Name: f.path, Mode: 0o644, Size: int64(len(f.text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// crew is a tool in another image.
func crew(image, name, command string, fields ...string) string {
	return strings.Replace(tool(name, command, fields...), tools1, image, 1)
}

// secured is the field of a container with these of its securityContext.
func secured(fields ...string) string {
	return "securityContext: {" + strings.Join(fields, ", ") + "}"
}

// hostNamespace is the host's namespace of a kind, which the agent is in as this test is.
func hostNamespace(t *testing.T, kind string) string {
	t.Helper()
	link, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		t.Fatal(err)
	}
	return link
}
