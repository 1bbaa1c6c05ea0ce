// Command reference writes the pages of this directory that say what the program knows of itself: its
// commands and flags, the fields of its configuration, its metrics, the reasons it gives, and the consequences of failed
// writes.
//
//	go run ./docs/reference          write them
//	go run ./docs/reference -check   name those that aren't as they would be written, and fail
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	dir := flag.String("dir", filepath.Join("docs", "reference"), "the `directory` of the pages")
	source := flag.String("source", ".", "the `directory` of the sources")
	check := flag.Bool("check", false, "write nothing, and fail if a page isn't as it would be written")
	flag.Parse()
	if err := run(*dir, *source, *check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pages makes every page, by its file's name, from the sources in a directory.
func pages(source string) (map[string]string, error) {
	events, err := eventsPage(source)
	if err != nil {
		return nil, err
	}
	configuration, err := configurationPage()
	if err != nil {
		return nil, err
	}
	metrics, err := metricsPage(source)
	if err != nil {
		return nil, err
	}
	files, err := filesPage(source)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"commands.md":      commandsPage(),
		"configuration.md": configuration,
		"events.md":        events,
		"files.md":         files,
		"metrics.md":       metrics,
	}, nil
}

func run(dir, source string, check bool) error {
	made, err := pages(source)
	if err != nil {
		return err
	}
	var stale []error
	for name, text := range made {
		path := filepath.Join(dir, name)
		old, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		switch {
		case bytes.Equal(old, []byte(text)):
		case check:
			stale = append(stale, fmt.Errorf("%s is out of date: run `make docs`", path))
		default:
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
			fmt.Println("wrote", path)
		}
	}
	return errors.Join(stale...)
}

// generated stands at the top of each page.
const generated = "<!-- Made by `make docs`: edits are lost. -->\n\n"

// cell is text for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", "\n", " ").Replace(text)
}
