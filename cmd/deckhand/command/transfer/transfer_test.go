package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// archive is one with these entries: a file where there is neither a type nor a slash at the end of its name.
func archive(t testing.TB, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := ""
		switch {
		case strings.HasSuffix(h.Name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		case h.Typeflag == 0:
			content = "content"
			h.Typeflag, h.Size = tar.TypeReg, int64(len(content))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func file(name string) tar.Header { return tar.Header{Name: name} }

func link(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to}
}

func hard(name, as string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: as}
}

// unpack takes from of an archive as to, into a directory beside which there is a file that nobody may touch.
func unpack(t testing.TB, dir string, archive io.Reader, from, to string) (remarks []string, err error) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	u := Unpacking{Into: root, From: from, To: to, Remark: func(r string) { remarks = append(remarks, r) }}
	return remarks, u.Read(archive)
}

// place makes a directory to copy into, and a file beside it.
func place(t testing.TB) (into, beside string) {
	t.Helper()
	dir := t.TempDir()
	into, beside = filepath.Join(dir, "into"), filepath.Join(dir, "beside")
	if err := os.Mkdir(into, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(beside, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	return into, beside
}

// listed is what is below a directory: paths, with what links lead to.
func listed(t testing.TB, dir string) string {
	t.Helper()
	var list []string
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if d.Type() == fs.ModeSymlink {
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			name += "->" + to
		}
		list = append(list, name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " ")
}

// TestUnpack: what a container packs comes to be here, as it is there or as it is to be called.
func TestUnpack(t *testing.T) {
	for _, c := range []struct {
		entries        []tar.Header
		from, to, want string
	}{
		{[]tar.Header{file("./hosts")}, "hosts", "hosts", "hosts"},
		{[]tar.Header{file("hosts")}, "hosts", "copy", "copy"},
		{[]tar.Header{file("./d/"), file("./d/f"), file("./d/e/"), file("./d/e/g")}, "d", "d", "d d/e d/e/g d/f"},
		{[]tar.Header{file("d/f")}, "d", "x", "x x/f"},
		{[]tar.Header{file("./"), file("./f"), file("./e/g")}, ".", ".", "e e/g f"},
		{[]tar.Header{file("./"), file("./f")}, ".", "x", "x x/f"},
		{[]tar.Header{file("d/f"), link("d/l", "f"), link("d/e/up", "../f"), link("d/self", "."), hard("d/h", "./d/f")}, "d", "d", "d d/e d/e/up->../f d/f d/h d/l->f d/self->."},
		{[]tar.Header{file("f"), file("f")}, "f", "f", "f"},
		{[]tar.Header{link("l", "l2"), file("l")}, "l", "l", "l"},
	} {
		into, _ := place(t)
		remarks, err := unpack(t, into, archive(t, c.entries...), c.from, c.to)
		if got := listed(t, into); err != nil || got != c.want || len(remarks) > 0 && !strings.Contains(remarks[0], "l2") {
			t.Errorf("%v: %q, %v, remarks %q, want %q", c.entries, got, err, remarks, c.want)
		}
	}
	into, _ := place(t)
	if _, err := unpack(t, into, archive(t, tar.Header{Name: "f", Mode: 0o6750}), "f", "f"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(into, "f")); err != nil || info.Mode() != 0o750 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}

// TestNothingGetsOut: an archive can't touch what is outside of the place that it is to have.
func TestNothingGetsOut(t *testing.T) {
	device := tar.Header{Name: "d/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}
	for _, c := range []struct {
		name    string
		entries []tar.Header
		// refused is whether it is an error, left what is there afterwards.
		refused bool
		left    string
	}{
		{"up", []tar.Header{file("d/../../beside")}, true, ""},
		{"up at once", []tar.Header{file("../beside")}, true, ""},
		{"up within", []tar.Header{file("d/x/../f")}, true, ""},
		{"absolute", []tar.Header{file("/d/f")}, true, ""},
		{"another name", []tar.Header{file("other")}, true, ""},
		{"a name that begins so", []tar.Header{file("data")}, true, ""},
		{"nothing", nil, true, ""},
		{"a long name", []tar.Header{file("d/" + strings.Repeat("x/", 4096))}, true, ""},
		{"a link up", []tar.Header{link("d/l", "../../beside"), file("d/f")}, false, "d d/f"},
		{"an absolute link", []tar.Header{link("d/l", "/etc/passwd"), file("d/f")}, false, "d d/f"},
		{"a link beside", []tar.Header{link("d/l", "../other"), file("d/f")}, false, "d d/f"},
		{"the whole is a link", []tar.Header{link("d", "../beside")}, false, ""},
		{"through a link up", []tar.Header{link("d/l", "../.."), file("d/l/beside")}, false, "d d/l d/l/beside"},
		{"through a link within", []tar.Header{file("d/e/"), link("d/l", "e"), file("d/l/f")}, true, "d d/e d/l->e"},
		{"through a link to itself", []tar.Header{link("d/l", "."), file("d/l/f")}, true, "d d/l->."},
		{"a link that goes up behind another", []tar.Header{file("d/a/b/"), link("d/a/b/s", "../.."), link("d/e", "a/b/s/../../../beside")}, false, "d d/a d/a/b d/a/b/s->../.."},
		{"a link that goes up behind itself", []tar.Header{link("d/e", "x/../../beside")}, false, "d"},
		{"a link of slashes", []tar.Header{link("d/e", "..//etc"), link("d/f", "..///etc")}, false, "d"},
		{"a file over a link", []tar.Header{link("d/l", "f"), file("d/l")}, false, "d d/l"},
		{"a directory over a link", []tar.Header{file("d/e/"), link("d/l", "e"), file("d/l/")}, true, "d d/e d/l->e"},
		{"a link over a directory", []tar.Header{file("d/e/"), link("d/e", "f")}, true, "d d/e"},
		{"another name of what is outside", []tar.Header{hard("d/h", "../beside")}, true, "d"},
		{"another name of an absolute path", []tar.Header{hard("d/h", "/etc/passwd")}, true, "d"},
		{"another name of a link", []tar.Header{file("d/f"), link("d/l", "f"), hard("d/h", "d/l")}, true, "d d/f d/l->f"},
		{"another name of nothing", []tar.Header{hard("d/h", "d/none")}, true, "d"},
		{"a device", []tar.Header{device, file("d/f")}, false, "d d/f"},
		{"a pipe", []tar.Header{{Name: "d/p", Typeflag: tar.TypeFifo}}, false, "d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			into, beside := place(t)
			remarks, err := unpack(t, into, archive(t, c.entries...), "d", "d")
			if (err != nil) != c.refused {
				t.Errorf("refused: %v", err)
			}
			if got := listed(t, into); got != c.left {
				t.Errorf("there is %q, want %q", got, c.left)
			}
			if !c.refused && len(remarks) == 0 && !strings.Contains(c.name, "over") {
				t.Error("nobody is told what is left out")
			}
			if text, err := os.ReadFile(beside); err != nil || string(text) != "mine" {
				t.Errorf("the file beside is %q, %v", text, err)
			}
		})
	}
}

// TestWhatIsThereIsReplaced: a file gives way as a whole, with its other names left alone; links that a person has aren't written through.
func TestWhatIsThereIsReplaced(t *testing.T) {
	into, beside := place(t)
	for name, make := range map[string]func(string) error{
		"same":   func(at string) error { return os.Link(beside, at) },
		"link":   func(at string) error { return os.Symlink(beside, at) },
		"linked": func(at string) error { return os.Symlink(filepath.Dir(beside), at) },
	} {
		if err := make(filepath.Join(into, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"same", "link"} {
		if _, err := unpack(t, into, archive(t, file(name)), name, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := os.ReadFile(filepath.Join(into, name)); err != nil || string(text) != "content" {
			t.Errorf("%s is %q, %v", name, text, err)
		}
	}
	if _, err := unpack(t, into, archive(t, file("d/beside")), "d", "linked"); err == nil || !strings.Contains(err.Error(), "is a symbolic link here") {
		t.Errorf("through a person's link: %v", err)
	}
	if text, err := os.ReadFile(beside); err != nil || string(text) != "mine" {
		t.Errorf("the file beside is %q, %v", text, err)
	}
}

// FuzzUnpack: whatever an archive's names are, nothing outside changes.
func FuzzUnpack(f *testing.F) {
	for _, s := range []string{"../beside", "/beside", "d/../..", ".", "d", "d/l", "d/l/beside", ""} {
		f.Add("d/l", s, "d/l/beside", s)
	}
	f.Fuzz(func(t *testing.T, link1, to1, name, as string) {
		into, beside := place(t)
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []tar.Header{link(link1, to1), file(name), hard(as, name), link(as, link1), file(as + "/beside")} {
			if h.Typeflag == 0 {
				h.Typeflag, h.Mode = tar.TypeReg, 0o644
			}
			_ = w.WriteHeader(&h) // names that no archive can have
		}
		_ = w.Close()
		_, _ = unpack(t, into, &b, "d", "d")
		entries, err := os.ReadDir(filepath.Dir(into))
		if err != nil || len(entries) != 2 {
			t.Fatalf("%v, %v", entries, err)
		}
		if text, err := os.ReadFile(beside); err != nil || string(text) != "mine" {
			t.Fatalf("the file beside is %q, %v", text, err)
		}
		if list := listed(t, into); list != "" && list != "d" && !strings.HasPrefix(list, "d ") && !strings.HasPrefix(list, "d->") {
			t.Fatal(list)
		}
	})
}

// TestPack: what is packed here and unpacked is the same.
func TestPack(t *testing.T) {
	into, _ := place(t)
	source := filepath.Join(t.TempDir(), "source")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(source, "empty"), 0o750), os.MkdirAll(filepath.Join(source, "full/er"), 0o755),
		os.WriteFile(filepath.Join(source, "full/er/file"), []byte("content"), 0o640), os.Symlink("full/er", filepath.Join(source, "link")),
		os.WriteFile(filepath.Join(source, "no-bytes"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(filepath.Dir(source))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	pass := func(name, as string) (err error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(Pack(w, root, name, as, func(r string) { t.Error(r) })) }()
		_, err = unpack(t, into, r, as, as)
		return err
	}
	if err := pass("source", "copy"); err != nil || listed(t, into) != "copy copy/empty copy/full copy/full/er copy/full/er/file copy/link->full/er copy/no-bytes" {
		t.Errorf("%s, %v", listed(t, into), err)
	}
	if info, err := os.Stat(filepath.Join(into, "copy/full/er/file")); err != nil || info.Mode() != 0o640 {
		t.Errorf("the file's mode is %v, %v", info, err)
	}
	if err := pass("source/full/er/file", "one"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(into, "one")); err != nil || string(text) != "content" {
		t.Errorf("%q, %v", text, err)
	}
	if err := pass("none", "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what isn't there: %v", err)
	}
	if err := pass("source/link", "link"); err != nil || !strings.HasSuffix(listed(t, into), "link") {
		t.Logf("a link alone: %s, %v", listed(t, into), err)
	}
}

// TestPackStaysInTheTree: a directory that becomes a link while the tree is packed leads nowhere.
func TestPackStaysInTheTree(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.MkdirAll(at("source/b"), 0o755), os.Mkdir(at("beside"), 0o755), os.WriteFile(at("beside/file"), []byte("secret"), 0o600), syscall.Mkfifo(at("source/a"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var packed bytes.Buffer
	// Of the pipe, it is told when the directory has been found, and not been read.
	err = Pack(&packed, root, "source", "source", func(string) {
		if err := errors.Join(os.Remove(at("source/b")), os.Symlink("../beside", at("source/b"))); err != nil {
			t.Error(err)
		}
	})
	if err == nil || strings.Contains(packed.String(), "secret") {
		t.Errorf("what is beside the tree is packed: %v", err)
	}
}

// TestSparse: what stands for more than is sent is refused.
func TestSparse(t *testing.T) {
	sparse := tar.Header{Name: "f", PAXRecords: map[string]string{"GNX.sparse.size": "1000000", "GNX.sparse.numblocks": "1", "GNX.sparse.map": "0,7"}}
	b := bytes.ReplaceAll(archive(t, sparse).Bytes(), []byte("GNX"), []byte("GNU")) // which a writer refuses
	into, _ := place(t)
	if _, err := unpack(t, into, bytes.NewReader(b), "f", "f"); err == nil || !strings.Contains(err.Error(), "is sparse") || listed(t, into) != "" {
		t.Errorf("%v, there is %q", err, listed(t, into))
	}
}

// TestPipesStay: of what is here, files and links are replaced alone.
func TestPipesStay(t *testing.T) {
	into, _ := place(t)
	if err := syscall.Mkfifo(filepath.Join(into, "p"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(t, into, archive(t, file("d/p")), "d", "."); err == nil || listed(t, into) != "p" {
		t.Errorf("%v, there is %q", err, listed(t, into))
	}
}
