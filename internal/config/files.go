package config

import (
	"errors"
	"fmt"
	"github.com/deckhand-node/deckhand/internal/config/document"
	"path/filepath"
)

// readFiles reads the configuration file and the drop-ins, if there are any. It sets the documented defaults between
// the two, so that a drop-in with one eviction threshold changes only that threshold ("Kubelet Configuration Directory
// Merging").
func (l *loader) readFiles() error {
	fileErr := l.readFile()
	dropIns, dirErr := l.readDropIns()
	if err := errors.Join(fileErr, dirErr); err != nil {
		return err
	}
	merged := l.config.merged
	if l.file != nil {
		l.lay(document.File, *l.file)
	}
	SetDefaults(merged.Config())
	for _, f := range dropIns {
		l.lay(document.DropIn, f)
	}
	return nil
}

func (l *loader) readFile() error {
	if l.file != nil || l.flags.ConfigFile == "" {
		return nil
	}
	path, err := filepath.Abs(l.flags.ConfigFile)
	if err != nil {
		return fmt.Errorf("--config %s: %w", l.flags.ConfigFile, err)
	}
	l.config.Sources = append(l.config.Sources, path)
	data, err := document.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	l.file = &document.DropInFile{Path: path, Data: data}
	return nil
}

func (l *loader) readDropIns() ([]document.DropInFile, error) {
	if l.flags.ConfigDir == "" {
		return nil, nil
	}
	dir, err := filepath.Abs(l.flags.ConfigDir)
	if err != nil {
		return nil, fmt.Errorf("--config-dir %s: %w", l.flags.ConfigDir, err)
	}
	l.config.Sources = append(l.config.Sources, dir)
	files, err := document.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("--config-dir: %w", err)
	}
	return files, nil
}

// lay merges a file into the configuration.
func (l *loader) lay(kind document.Kind, f document.DropInFile) {
	l.files = append(l.files, f.Path)
	doc, errs := document.Decode(f.Data)
	for _, e := range errs {
		l.problems = append(l.problems, Problem{File: f.Path, Line: e.Line, Field: e.Path, Message: e.Message})
		if e.Path != "" {
			l.unread[e.Path] = true
		}
	}
	l.config.merged.Lay(kind, f.Path, doc)
	l.given.Lay(kind, f.Path, doc)
}
