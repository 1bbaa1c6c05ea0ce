// Package docs reads the documents of the repository, and its tests hold them to what is so. The
// commands in them are run by package packaging, on machines of their own.
//
// A command stands in a fenced block, never in an indented one:
//
//	```sh              a script, run as root; it has to succeed
//	```console         lines that begin with "# " are commands, the others what they print
//	```sh elsewhere    not run: Elsewhere says why
//	```console screen  what a person sees in passing: on a machine of its own, where the pods of the pages quickstart and
//	                   debug run
//
// The blocks of a page are run in their order on one machine. What a console block shows has to be printed but for
// times, addresses and other things that differ from run to run; a line "..." stands for any lines. A
// command that shows how things are is run again until it shows what is expected. One that goes on by itself is
// left running, unless "^C" follows what it prints.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Block is a fenced block of a document.
type Block struct {
	// File is the document's path in the repository, Line that of the fence.
	File string
	Line int
	// Language is the first word after the fence, Mark what follows it.
	Language, Mark string
	Text           string
}

// Commands reports whether the block is one of commands.
func (b *Block) Commands() bool { return b.Language == "sh" || b.Language == "console" }

// Run reports whether the block is to be run with the others of its page.
func (b *Block) Run() bool { return b.Commands() && b.Mark == "" }

// Screen reports whether the block is one that shows how it looks.
func (b *Block) Screen() bool { return b.Language == "console" && b.Mark == "screen" }

// Key names the block in Elsewhere: its file and its first line.
func (b *Block) Key() string {
	first, _, _ := strings.Cut(strings.TrimPrefix(b.Text, "# "), "\n")
	return b.File + ": " + first
}

// String is where the block is.
func (b *Block) String() string { return fmt.Sprintf("%s:%d", b.File, b.Line) }

// elsewhere is the mark of a block that isn't run.
const elsewhere = "elsewhere"

// Documents lists the documents of the repository below root, by their paths in it.
func Documents(root string) ([]string, error) {
	var list []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && (slices.Contains([]string{"bin", "dist", ".git", ".cache"}, name) || d.Name() == "testdata"):
			return fs.SkipDir
		case !d.IsDir() && filepath.Ext(name) == ".md":
			list = append(list, name)
		}
		return nil
	})
	return list, err
}

// Blocks reads the fenced blocks of a document.
func Blocks(root, file string) ([]Block, error) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	var blocks []Block
	var open *Block
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		info, fence := strings.CutPrefix(strings.TrimRight(line, "\n"), "```")
		switch {
		case !fence && open != nil:
			open.Text += line
		case fence && open != nil:
			blocks = append(blocks, *open)
			open = nil
		case fence:
			open = &Block{File: file, Line: number}
			open.Language, open.Mark, _ = strings.Cut(info, " ")
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s: the block isn't closed", open)
	}
	return blocks, nil
}
