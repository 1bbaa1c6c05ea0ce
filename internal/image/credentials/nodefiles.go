package credentials

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

// NodeFiles is the node's own Docker configuration, which every pod may use. Its files are checked on each use, and
// read again after a change; there is no watch and no timer. It is safe for concurrent use.
type NodeFiles struct {
	paths []string
	log   logr.Logger

	mu   sync.Mutex
	read map[string]nodeFile
}

// nodeFile is the result of reading a file.
type nodeFile struct {
	version version
	config  DockerConfig
	// err is why the file can't be used at all.
	err error
}

// version identifies the content of a file at one path.
type version struct {
	device, inode    uint64
	size             int64
	modified, change time.Time
}

// NewNodeFiles searches the kubelet's paths
// (https://kubernetes.io/docs/concepts/containers/images/#configuring-nodes-to-authenticate-to-a-private-registry):
// config.json in the agent's root directory, its working directory, .docker in the home directory and /.docker, and
// then .dockercfg in the root, working and home directories and in /. Only the first usable file counts. Empty
// directory names are skipped.
func NewNodeFiles(rootDir, workDir, home string, log logr.Logger) *NodeFiles {
	f := &NodeFiles{log: log, read: map[string]nodeFile{}}
	add := func(dir string, path ...string) {
		file := filepath.Join(append([]string{dir}, path...)...)
		if dir != "" && !slices.Contains(f.paths, file) {
			f.paths = append(f.paths, file)
		}
	}
	add(rootDir, "config.json")
	add(workDir, "config.json")
	add(home, ".docker", "config.json")
	add("/", ".docker", "config.json")
	for _, dir := range []string{rootDir, workDir, home, "/"} {
		add(dir, legacyName)
	}
	return f
}

const legacyName = ".dockercfg"

// Entries returns the current entries. Problems are logged once for each version of a file.
func (f *NodeFiles) Entries() []Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range f.paths {
		if entries, ok := f.entries(path); ok {
			return entries
		}
	}
	return nil
}

// entries returns the entries of one file; false if there is no usable file.
func (f *NodeFiles) entries(path string) ([]Entry, bool) {
	info, err := os.Stat(path)
	known, isKnown := f.read[path]
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		delete(f.read, path)
		return nil, false
	case err == nil && isKnown && known.version == versionOf(info):
		return known.config.Entries, known.err == nil
	}
	now := readNodeFile(path)
	f.read[path] = now
	// A file that can't be opened has no version: its error is logged again only when the error changes.
	if now.err != nil && (known.err == nil || known.err.Error() != now.err.Error() || known.version != now.version) {
		f.log.Error(now.err, "A docker configuration of this node can't be used", "path", path)
	}
	for _, problem := range now.config.Problems {
		f.log.Info("A part of this node's docker configuration can't be used", "path", path, "message", problem)
	}
	return now.config.Entries, now.err == nil
}

func readNodeFile(path string) nodeFile {
	// O_NONBLOCK avoids waiting for a writer if the file is a pipe.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nodeFile{err: err}
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nodeFile{err: err}
	}
	read := nodeFile{version: versionOf(info)}
	if !info.Mode().IsRegular() {
		read.err = errors.New("it isn't a regular file")
		return read
	}
	data, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	if err != nil {
		read.err = fmt.Errorf("read it: %w", err)
		return read
	}
	parse := ParseDockerConfig
	if strings.HasSuffix(path, legacyName) {
		parse = ParseLegacyDockerConfig
	}
	read.config, read.err = parse(data, Origin{Kind: FromNode})
	return read
}

func versionOf(info fs.FileInfo) version {
	v := version{size: info.Size(), modified: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		v.device, v.inode, v.change = sys.Dev, sys.Ino, time.Unix(sys.Ctim.Unix())
	}
	return v
}
