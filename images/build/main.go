// Command build makes images of one static program each as archives that need no
// registry: pause and the example web server, and tools, which tests run. The same
// sources give the same bytes.
//
//	go run ./images/build -o bin/images pause web
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// product is an image of one static program.
type product struct {
	name string
	// refs are what the archive's images are called. Of several, each knows by VERSION which it is.
	refs []string
	// compile makes the program at the given path.
	compile func(out string) *exec.Cmd
	ports   []string
}

func main() {
	out := flag.String("o", "bin/images", "directory for the archives")
	source := flag.String("C", ".", "root of the deckhand checkout")
	flag.Parse()
	if err := run(*source, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(source, out string, names []string) error {
	products := []product{
		{name: "pause", refs: []string{"deckhand.local/pause:1"}, compile: func(to string) *exec.Cmd { return compileC(source, to) }},
		{name: "web", refs: []string{"deckhand.local/web:1"}, compile: func(to string) *exec.Cmd { return compileGo(source, to, "web") }, ports: []string{"8080/tcp"}},
		{name: "tools", refs: []string{"deckhand.local/tools:1", "deckhand.local/tools:2"}, compile: func(to string) *exec.Cmd { return compileGo(source, to, "tools") }},
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "deckhand-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, name := range names {
		i := slices.IndexFunc(products, func(p product) bool { return p.name == name })
		if i < 0 {
			return fmt.Errorf("there is no image %q", name)
		}
		if err := products[i].build(work, filepath.Join(out, name+".tar")); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// compileC links without a C library; see images/pause/pause.c.
func compileC(source, out string) *exec.Cmd {
	return exec.Command("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Os",
		"-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-asynchronous-unwind-tables",
		"-Wl,--build-id=none", "-Wl,-z,noseparate-code", "-Wl,-z,noexecstack", "-s",
		"-o", out, filepath.Join(source, "images/pause/pause.c"))
}

func compileGo(source, out, name string) *exec.Cmd {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", out, "./images/"+name)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd
}

func (p product) build(work, archive string) error {
	program := filepath.Join(work, p.name)
	cmd := p.compile(program)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd.Args[0], err, text)
	}
	layer, err := p.layer(program)
	if err != nil {
		return err
	}
	images := map[name.Tag]v1.Image{}
	for _, ref := range p.refs {
		tag, err := name.NewTag(ref, name.StrictValidation)
		if err != nil {
			return err
		}
		if images[tag], err = p.image(layer, tag); err != nil {
			return err
		}
	}
	// Written aside and renamed, so that an agent watching the directory never sees half of it.
	half := filepath.Join(filepath.Dir(archive), "."+filepath.Base(archive)+".new")
	if err := tarball.MultiWriteToFile(half, images); err != nil {
		return err
	}
	return os.Rename(half, archive)
}

func (p product) image(layer v1.Layer, tag name.Tag) (v1.Image, error) {
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	file.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	file.Config.Entrypoint = []string{"/" + p.name}
	file.Config.Env = []string{"PATH=/"}
	if len(p.refs) > 1 {
		file.Config.Env = append(file.Config.Env, "VERSION="+tag.TagStr())
	}
	file.Config.WorkingDir = "/"
	for _, port := range p.ports {
		if file.Config.ExposedPorts == nil {
			file.Config.ExposedPorts = map[string]struct{}{}
		}
		file.Config.ExposedPorts[port] = struct{}{}
	}
	return mutate.ConfigFile(img, file)
}

// layer holds the program and a /tmp, with no times and no owner but root.
func (p product) layer(program string) (v1.Layer, error) {
	text, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	entries := []tar.Header{
		{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777},
		{Typeflag: tar.TypeReg, Name: p.name, Mode: 0o755, Size: int64(len(text))},
	}
	for i := range entries {
		entries[i].Format, entries[i].ModTime = tar.FormatPAX, time.Unix(0, 0)
		if err := w.WriteHeader(&entries[i]); err != nil {
			return nil, err
		}
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
}
