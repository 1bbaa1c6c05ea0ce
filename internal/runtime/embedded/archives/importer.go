// Package archives imports the image archives of a directory into containerd: at the start, and whenever one
// appears or changes.
package archives

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
)

// Importer imports the archives (*.tar, docker's or OCI's format) of one directory. Its methods may be called
// concurrently; archive files are imported one at a time.
type Importer struct {
	dir      string
	files    *filewatch.Instance
	record   string
	connect  func() (*grpc.ClientConn, error)
	onImport func(refs []string)
	log      logr.Logger

	// importing is held while archives are checked and imported.
	importing sync.Mutex
	// full says that the last Sync failed because the disk was full.
	full atomic.Bool
	// mu guards the fields below: errors by file name, and the free disk space at the start of the last Sync.
	mu       sync.Mutex
	problems map[string]string
	before   room.FileSystem
}

// New returns an importer for dir that records its imports in the file record; files reports changes of dir. connect
// opens a connection to containerd; each is closed after use. onImport, unless nil, is called with the references of
// each imported archive; it must not block, nor call the importer.
func New(dir string, files *filewatch.Instance, record string, connect func() (*grpc.ClientConn, error),
	onImport func(refs []string), log logr.Logger) *Importer {
	if onImport == nil {
		onImport = func([]string) {}
	}
	return &Importer{dir: dir, files: files, record: record, connect: connect, onImport: onImport, log: log,
		problems: map[string]string{}}
}

// Problems lists the archives that can't be imported, each in a sentence.
func (im *Importer) Problems() []string {
	im.mu.Lock()
	defer im.mu.Unlock()
	out := make([]string, 0, len(im.problems))
	for _, name := range slices.Sorted(maps.Keys(im.problems)) {
		out = append(out, im.problems[name])
	}
	return out
}

// Import imports the archive at path, in any directory, and returns the references of its images.
func (im *Importer) Import(ctx context.Context, path string) ([]string, error) {
	im.importing.Lock()
	defer im.importing.Unlock()
	conn, err := im.connect()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	refs, _, err := im.importFile(ctx, conn, path)
	return refs, err
}

// Ensure imports the archive at path, in any directory, unless the image ref exists.
func (im *Importer) Ensure(ctx context.Context, ref, path string) error {
	im.importing.Lock()
	defer im.importing.Unlock()
	conn, err := im.connect()
	if err != nil {
		return fmt.Errorf("image archive %s: %w", path, err)
	}
	defer conn.Close()
	present, err := references(ctx, conn)
	if err != nil || present[ref] {
		return err
	}
	_, _, err = im.importFile(ctx, conn, path)
	return err
}

// ImportFrom imports the archive in r, and returns the references of its images. It doesn't exclude concurrent
// imports, so that a slow r doesn't delay them.
func (im *Importer) ImportFrom(ctx context.Context, r io.Reader) ([]string, error) {
	conn, err := im.connect()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return im.importArchive(ctx, conn, "image archive", r)
}

// Archived lists the images of archives in the directory, as of the last Sync.
func (im *Importer) Archived() []string {
	var names []string
	for file, e := range readRecord(im.record, im.log) {
		if _, err := os.Stat(filepath.Join(im.dir, file)); err == nil {
			names = append(names, e.Images...)
		}
	}
	return names
}

// Sync imports each archive of the directory that is new, has changed, or has an image that no longer exists. An
// invalid archive becomes a Problem, not an error.
func (im *Importer) Sync(ctx context.Context) error {
	im.importing.Lock()
	defer im.importing.Unlock()
	names, err := im.list()
	if err != nil {
		return fmt.Errorf("image archives: %w", err)
	}
	im.forgetProblems(names)
	im.measure()
	if len(names) == 0 {
		return nil
	}
	conn, err := im.connect()
	if err != nil {
		return fmt.Errorf("image archives: %w", err)
	}
	defer conn.Close()
	present, err := references(ctx, conn)
	if err != nil {
		return fmt.Errorf("image archives: %w", err)
	}
	known := readRecord(im.record, im.log)
	next := imported{}
	for _, name := range names {
		entry, ok := known[name]
		if ok && entry.holds(filepath.Join(im.dir, name), present) {
			im.identify(ctx, conn, entry.Images) // an agent of an earlier version may have omitted this
		} else {
			var away error
			if entry, ok, away = im.importNew(ctx, conn, name); away != nil {
				return fmt.Errorf("image archives: %w", away)
			}
		}
		if ok {
			next[name] = entry
		}
	}
	if maps.EqualFunc(known, next, entry.equal) {
		return nil
	}
	err = next.write(im.record)
	if atomicfile.DiskFull(err) {
		// Without the record, the next agent imports these archives again. This agent has to continue: it may be the
		// only one that can free disk space.
		im.log.Error(err, "The record of imported images can't be written")
		im.full.Store(true)
		return nil
	}
	return err
}

// measure measures the free disk space before archives are imported.
func (im *Importer) measure() {
	before, _ := room.Measure(im.record) // after an error, the next attempt is only a minute later
	im.full.Store(false)
	im.mu.Lock()
	defer im.mu.Unlock()
	im.before = before
}

// roomier reports whether the disk has more free space than before the last Sync. Otherwise, another attempt to import
// a large archive would only fill the disk again.
func (im *Importer) roomier() bool {
	now, err := room.Measure(im.record)
	im.mu.Lock()
	defer im.mu.Unlock()
	return err != nil || now.Roomier(im.before)
}

// importNew imports an archive of the directory. An error in the archive becomes its entry in problems; the returned
// error means that containerd became unavailable.
func (im *Importer) importNew(ctx context.Context, conn *grpc.ClientConn, name string) (entry, bool, error) {
	refs, file, err := im.importFile(ctx, conn, filepath.Join(im.dir, name))
	if ctx.Err() != nil {
		return entry{}, false, ctx.Err()
	}
	if status.Code(err) == codes.Unavailable {
		return entry{}, false, err
	}
	if err != nil {
		im.setProblem(name, err)
		if atomicfile.DiskFull(err) {
			im.full.Store(true)
		}
		return entry{}, false, nil
	}
	im.mu.Lock()
	delete(im.problems, name)
	im.mu.Unlock()
	im.log.V(2).Info("Imported an image archive", "path", name, "images", refs)
	return entry{Size: file.Size(), Modified: file.ModTime(), Images: refs}, true, nil
}

func (im *Importer) setProblem(name string, err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	text := err.Error()
	if im.problems[name] == text {
		return
	}
	im.problems[name] = text
	im.log.Error(err, "An image archive can't be imported", "path", name)
}

// forgetProblems drops the problems of files that are gone.
func (im *Importer) forgetProblems(names []string) {
	im.mu.Lock()
	defer im.mu.Unlock()
	maps.DeleteFunc(im.problems, func(name, _ string) bool { return !slices.Contains(names, name) })
}

// list returns the names of the directory's archives. Names that start with a dot are incomplete files.
func (im *Importer) list() ([]string, error) {
	entries, err := os.ReadDir(im.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if isArchive(e.Name()) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func isArchive(name string) bool {
	return strings.HasSuffix(name, ".tar") && !strings.HasPrefix(name, ".")
}

// importFile imports the file at path, and returns its file info.
func (im *Importer) importFile(ctx context.Context, conn *grpc.ClientConn, path string) ([]string, fs.FileInfo, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("image archive: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("image archive: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("image archive %s: isn't a regular file", path)
	}
	refs, err := im.importArchive(ctx, conn, "image archive "+path, f)
	return refs, info, err
}

// importArchive imports an archive, and calls onImport with its images.
func (im *Importer) importArchive(ctx context.Context, conn *grpc.ClientConn, what string,
	r io.Reader) ([]string, error) {
	before, err := stored(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	refs, err := send(ctx, conn, r)
	if atomicfile.DiskFull(err) {
		return nil, fmt.Errorf("%s: %w", what, room.Explain(err, im.dir))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: containerd can't import it, is it a docker or OCI archive? %w", what, err)
	}
	if len(refs) == 0 {
		return nil, fmt.Errorf("%s: no image in it has a name; save it by its name instead of its ID", what)
	}
	if wrong := check(ctx, conn, refs); wrong != nil {
		err := fmt.Errorf("%s: none of it is taken: %w", what, wrong)
		return nil, errors.Join(err, takeBack(ctx, conn, refs, before))
	}
	im.identify(ctx, conn, refs)
	im.onImport(refs)
	return refs, nil
}

// identify makes images mountable as volumes. If it fails, they still work for containers.
func (im *Importer) identify(ctx context.Context, conn *grpc.ClientConn, refs []string) {
	if err := identify(ctx, conn, refs); err != nil && ctx.Err() == nil {
		im.log.Error(err, "Imported images can't be used as volumes", "images", refs)
	}
}

// references returns the names of all images in the CRI.
func references(ctx context.Context, conn *grpc.ClientConn) (map[string]bool, error) {
	list, err := cri.NewImageServiceClient(conn).ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the images: %w", err)
	}
	names := map[string]bool{}
	for _, img := range list.GetImages() {
		for _, tag := range img.GetRepoTags() {
			names[tag] = true
		}
	}
	return names, nil
}
