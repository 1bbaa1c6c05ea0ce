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

// Provider is the configuration of one plugin.
type Provider struct {
	kubeletv1.CredentialProvider
	// Match are the parsed patterns of CredentialProvider.MatchImages.
	Match []credentials.Pattern
	// Program is the path of the plugin's executable.
	Program string
}

// InvalidError lists the problems of a configuration.
type InvalidError struct {
	// Problems are messages for users, one line each, with file and line.
	Problems []string

	// causes are system errors behind some of the problems.
	causes []error
}

// Unwrap returns the system errors behind the problems, such as fs.ErrPermission.
func (e *InvalidError) Unwrap() []error { return e.causes }

func (e *InvalidError) Error() string {
	if len(e.Problems) == 1 {
		return "invalid credential provider configuration: " + e.Problems[0]
	}
	return fmt.Sprintf("invalid credential provider configuration, %d problems:\n  %s", len(e.Problems),
		strings.Join(e.Problems, "\n  "))
}

// maxSize limits the size of a configuration file, in bytes.
const maxSize = 1 << 20

// Load reads the file at path or, if it is a directory, its .json, .yaml and .yml files in the order of their names
// (--image-credential-provider-config). The plugins' programs have to be in binDir
// (--image-credential-provider-bin-dir). If both are empty, there are no plugins. All problems are reported together
// as an *InvalidError; the only other errors are a missing option and a file that can't be read.
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
	found, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, err
	}
	var files []string
	for _, f := range found {
		file := filepath.Join(path, f.Name())
		if !slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(f.Name())) {
			continue
		}
		info, err := os.Stat(file) // follows symbolic links
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

// loader collects the results of one Load.
type loader struct {
	binDir    string
	providers []Provider
	// names maps each provider's name to its file.
	names    map[string]string
	problems []string
	causes   []error
}

// add parses one configuration file and adds its providers and problems.
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
