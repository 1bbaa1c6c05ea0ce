package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// volumes are the persistent volumes: directories of the state directory, named by the hash of their handles, with the
// data and a record of the controller.
type volumes struct {
	dir string
	mu  sync.Mutex
}

// record is a volume as the controller knows it.
type record struct {
	ID       string
	Name     string
	Capacity int64
	// Nodes are the nodes that it is attached to, with the arguments.
	Nodes map[string]string `json:",omitempty"`
}

func (v *volumes) path(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(v.dir, hex.EncodeToString(sum[:16]))
}

// data returns the directory with a volume's files, and makes it if it isn't there.
func (v *volumes) data(id string) (string, error) {
	dir := filepath.Join(v.path(id), "data")
	return dir, os.MkdirAll(dir, 0o755)
}

// exists reports whether a volume was created or used.
func (v *volumes) exists(id string) bool {
	_, err := os.Stat(v.path(id))
	return err == nil
}

// read returns the record of a volume; ok is false if it has none.
func (v *volumes) read(id string) (r record, ok bool, err error) {
	data, err := os.ReadFile(filepath.Join(v.path(id), "volume.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err == nil, err
}

func (v *volumes) write(r record) error {
	if _, err := v.data(r.ID); err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return replace(filepath.Join(v.path(r.ID), "volume.json"), data, 0o600)
}

// list returns the records in the order of their directories' names.
func (v *volumes) list() (list []record, err error) {
	entries, err := os.ReadDir(v.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		var r record
		data, err := os.ReadFile(filepath.Join(v.dir, e.Name(), "volume.json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, err
}

// replace writes a file whose readers see the old or the new content.
func replace(path string, data []byte, mode fs.FileMode) error {
	if err := os.WriteFile(path+".new", data, mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
