package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/deckhand-node/deckhand/internal/host/room"
)

// The part of files.md between these lines is generated.
const (
	filesBegin = "<!-- Made by `make docs` from internal/host/room/uses.go: edits are lost. -->\n"
	filesEnd   = "<!-- End of the generated part. -->\n"
)

// filesPage is the page about files with the generated part replaced.
func filesPage(source string) (string, error) {
	text, err := os.ReadFile(filepath.Join(source, "docs", "reference", "files.md"))
	if err != nil {
		return "", err
	}
	before, rest, begins := strings.Cut(string(text), filesBegin)
	_, after, ends := strings.Cut(rest, filesEnd)
	if !begins || !ends {
		return "", errors.New("files.md lacks the lines around its generated part")
	}
	return before + filesBegin + "\n" + failures(room.Uses()) + "\n" + filesEnd + after, nil
}

// failures is the table of the consequences of failed writes, with one row for all files with the same ones.
func failures(uses []room.Use) string {
	var order []room.Failure
	paths := map[room.Failure][]string{}
	for _, u := range uses {
		if len(paths[u.Failure]) == 0 {
			order = append(order, u.Failure)
		}
		path := "`" + u.Path + "`"
		if words, ok := strings.CutPrefix(u.Path, "/ "); ok {
			path = words
		}
		paths[u.Failure] = append(paths[u.Failure], path)
	}
	var b strings.Builder
	b.WriteString("| files | what goes on | what waits | where it is reported |\n| --- | --- | --- | --- |\n")
	for _, f := range order {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strings.Join(paths[f], ", "), f.GoesOn, f.Waits, f.Reported)
	}
	return b.String()
}
