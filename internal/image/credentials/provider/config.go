package provider

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kubeletv1 "k8s.io/kubelet/config/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// Provider is one plugin as it is configured.
type Provider struct {
	kubeletv1.CredentialProvider
	// Match is what MatchImages says.
	Match []credentials.Pattern
	// Program is the plugin's path.
	Program string
}

// InvalidError reports what is wrong with a configuration.
type InvalidError struct {
	// Problems are shown to a person, one line each, with file and line.
	Problems []string

	// causes are errors of the system behind some of them.
	causes []error
}

// Unwrap returns the errors of the system behind the problems, such as fs.ErrPermission.
func (e *InvalidError) Unwrap() []error { return e.causes }

func (e *InvalidError) Error() string {
	if len(e.Problems) == 1 {
		return "invalid credential provider configuration: " + e.Problems[0]
	}
	return fmt.Sprintf("invalid credential provider configuration, %d problems:\n  %s", len(e.Problems),
		strings.Join(e.Problems, "\n  "))
}

// maxSize bounds a configuration file, in bytes.
const maxSize = 1 << 20

// Load reads the file at path, or in a directory all that end in .json, .yaml and
// .yml, in the order of their names (--image-credential-provider-config). The plugins' programs
// have to be in binDir (--image-credential-provider-bin-dir). Both empty means that
// there are none. What is wrong comes back together, as an *InvalidError; a file
// that can't be read is the only other error.
func Load(path, binDir string) ([]Provider, error) {
	if path == "" && binDir == "" {
		return nil, nil
	}
	if path == "" || binDir == "" {
		return nil, errors.New("--image-credential-provider-config and --image-credential-provider-bin-dir belong " +
			"together: give both or none")
	}
	files, err := find(path)
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-config: %w", err)
	}
	l := loader{binDir: binDir, names: map[string]string{}}
	for _, file := range files {
		data, err := safeopen.ReadRegular(file, maxSize)
		if err != nil {
			return nil, fmt.Errorf("--image-credential-provider-config: %s: %w", file, err)
		}
		l.add(file, data)
	}
	if len(l.problems) > 0 {
		return nil, &InvalidError{Problems: l.problems, causes: l.causes}
	}
	return l.providers, nil
}

func find(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	found, err := os.ReadDir(path) // by name
	if err != nil {
		return nil, err
	}
	var files []string
	for _, f := range found {
		file := filepath.Join(path, f.Name())
		if !slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(f.Name())) {
			continue
		}
		info, err := os.Stat(file) // of what a link leads to
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("directory %s has no file that ends in .json, .yaml or .yml", path)
	}
	return files, nil
}

// loader carries what the files of one Load have in common.
type loader struct {
	binDir    string
	providers []Provider
	// names is where each name is from.
	names    map[string]string
	problems []string
	causes   []error
}

// add reads one file.
func (l *loader) add(file string, data []byte) {
	doc, problems := decode(data)
	if doc == nil {
		l.fail(file, problems)
		return
	}
	for i := range doc.config.Providers {
		at := fmt.Sprintf("providers[%d]", i)
		in := &doc.config.Providers[i]
		p := Provider{CredentialProvider: *in, Program: filepath.Join(l.binDir, in.Name)}
		for _, e := range validate(doc.config.APIVersion, at, &p) {
			problems = append(problems, doc.problem(e.Field, e.ErrorBody()))
		}
		switch before, isKnown := l.names[in.Name]; {
		case in.Name == "": // reported by validate
		case isKnown:
			problems = append(problems,
				doc.problem(at+".name", fmt.Sprintf(
					"%q is also the name of a provider in %s; link the program under another name to use it twice",
					in.Name, before)))
		default:
			l.names[in.Name] = file
			if err := executable(p.Program); err != nil && validName(in.Name) {
				problems, l.causes = append(problems, doc.problem(at+".name", err.Error())), append(l.causes, err)
			}
		}
		l.providers = append(l.providers, p)
	}
	l.fail(file, problems)
}

func (l *loader) fail(file string, problems []string) {
	for _, p := range problems {
		l.problems = append(l.problems, file+": "+p)
	}
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("there has to be a program of this name in --image-credential-provider-bin-dir: %w", err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s isn't a program: it has to be a regular file that may be executed", path)
	}
	return nil
}
