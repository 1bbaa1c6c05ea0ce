package provider

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// bin makes a directory with programs of these names.
func bin(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		write(t, filepath.Join(dir, name), "#!/bin/false\n", 0o755)
	}
	return dir
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

const good = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr
  matchImages: ["*.dkr.ecr.*.amazonaws.com", registry.io:8080/path]
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get-credentials]
  env:
  - {name: AWS_PROFILE, value: example}
  tokenAttributes:
    serviceAccountTokenAudience: me
    cacheType: Token
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [domain.io/id]
    optionalServiceAccountAnnotationKeys: [domain.io/Other]
`

func TestLoad(t *testing.T) {
	dir := bin(t, "ecr")
	list, err := Load(write(t, filepath.Join(t.TempDir(), "config"), good, 0o600), dir)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	p := list[0]
	if p.Program != filepath.Join(dir, "ecr") || len(p.Match) != 2 || p.DefaultCacheDuration.Duration != 12*time.Hour || p.TokenAttributes.CacheType != "Token" ||
		!*p.TokenAttributes.RequireServiceAccount || p.Env[0].Value != "example" {
		t.Errorf("it reads %+v", p)
	}
	if list, err := Load("", ""); list != nil || err != nil {
		t.Errorf("nothing configured: %v, %v", list, err)
	}
	for _, c := range [][2]string{{"", dir}, {"x", ""}} {
		if _, err := Load(c[0], c[1]); err == nil || !strings.Contains(err.Error(), "belong together") {
			t.Errorf("one of two flags: %v", err)
		}
	}
	if _, err := Load(filepath.Join(dir, "gone"), dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that isn't there: %v", err)
	}
}

// other is a configuration of one plain provider.
func other(name, version string) string {
	return "apiVersion: kubelet.config.k8s.io/" + version + "\nkind: CredentialProviderConfig\nproviders:\n- name: " + name +
		"\n  matchImages: [a.io]\n  defaultCacheDuration: 0s\n  apiVersion: credentialprovider.kubelet.k8s.io/" + version + "\n"
}

func TestLoadDir(t *testing.T) {
	dir, directory := bin(t, "ecr", "b", "c"), t.TempDir()
	if _, err := Load(directory, dir); err == nil || !strings.Contains(err.Error(), "no file that ends in") {
		t.Errorf("an empty directory: %v", err)
	}
	write(t, filepath.Join(directory, "20.yml"), good, 0o600)
	write(t, filepath.Join(directory, "10.yaml"), other("c", "v1beta1"), 0o600)
	write(t, filepath.Join(directory, "30.json"), `{"apiVersion": "kubelet.config.k8s.io/v1alpha1", "kind": "CredentialProviderConfig", "providers": [{"name": "b",
		"matchImages": ["a.io"], "defaultCacheDuration": "0", "apiVersion": "credentialprovider.kubelet.k8s.io/v1alpha1"}]}`, 0o600)
	write(t, filepath.Join(directory, "README"), "not read", 0o600)
	if err := os.Mkdir(filepath.Join(directory, "40.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := Load(directory, dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	if strings.Join(names, " ") != "c ecr b" {
		t.Errorf("the providers are %v", names)
	}
	write(t, filepath.Join(directory, "50.yaml"), other("c", "v1"), 0o600)
	if _, err := Load(directory, dir); err == nil || !strings.Contains(err.Error(), `50.yaml: line 4: providers[0].name: "c" is also the name of a provider in `+directory+"/10.yaml") {
		t.Errorf("a name twice: %v", err)
	}
}

func TestLoadReportsAllProblems(t *testing.T) {
	dir := bin(t, "ok", "old")
	write(t, filepath.Join(dir, "noexec"), "", 0o644)
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"header", "apiVersion: v1\nkind: Pod\nprovider: []\n", []string{
			`line 3: provider: unknown field`,
			`line 1: apiVersion: "v1" isn't supported; it must be one of kubelet.config.k8s.io/v1, kubelet.config.k8s.io/v1beta1, kubelet.config.k8s.io/v1alpha1`,
			`line 2: kind: "Pod" isn't supported; it must be "CredentialProviderConfig"`,
			`providers: at least one provider is required`}},
		{"everything missing", "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- tokenAttributes: {}\n", []string{
			`line 4: providers[0].name: Required value: it is the name of a program in --image-credential-provider-bin-dir`,
			`line 4: providers[0].matchImages: Required value: it says for which images the provider is asked`,
			`line 4: providers[0].defaultCacheDuration: Required value: it says how long credentials are kept; 0s for not at all`,
			`line 4: providers[0].apiVersion: Required value: it must be one of credentialprovider.kubelet.k8s.io/v1, credentialprovider.kubelet.k8s.io/v1beta1, credentialprovider.kubelet.k8s.io/v1alpha1`,
			`line 4: providers[0].tokenAttributes: Forbidden: it needs apiVersion credentialprovider.kubelet.k8s.io/v1 of the provider`,
			"line 4: providers[0].tokenAttributes.serviceAccountTokenAudience: Required value: it is the audience of " +
				"the token",
			`line 4: providers[0].tokenAttributes.cacheType: Required value: it must be Token or ServiceAccount`,
			`line 4: providers[0].tokenAttributes.requireServiceAccount: Required value: it says whether pods without a service account are left out`}},
		{"everything wrong", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: CredentialProviderConfig
providers:
- name: ../ok
  matchImages: ["*.io/*", ""]
  defaultCacheDuration: -1s
  apiVersion: v2
  args: ["a\0b"]
  env:
  - {name: "A=B", value: "geheim\0"}
  extra: 1
  tokenAttributes:
    serviceAccountTokenAudience: me
    cacheType: Pod
    requireServiceAccount: false
    requiredServiceAccountAnnotationKeys: [a, a, "b c"]
    optionalServiceAccountAnnotationKeys: [a]
- name: gone
  matchImages: [a.io]
  defaultCacheDuration: 1s
  apiVersion: credentialprovider.kubelet.k8s.io/v1
- name: noexec
  matchImages: [a.io]
  defaultCacheDuration: 1s
  apiVersion: credentialprovider.kubelet.k8s.io/v1
`, []string{
			`line 11: providers[0].extra: unknown field`,
			`line 4: providers[0].name: Invalid value: "../ok": it must be the name of a program: no directory, no blanks, neither . nor ..`,
			`line 5: providers[0].matchImages[0]: Invalid value: "*.io/*": its path may have letters, digits and . _ - / only; globs (*) are for the host`,
			`line 5: providers[0].matchImages[1]: Invalid value: "": its host isn't a name of letters, digits, - and _ between dots, with * as a glob`,
			`line 6: providers[0].defaultCacheDuration: Invalid value: "-1s": it must not be negative`,
			`line 7: providers[0].apiVersion: Unsupported value: "v2": supported values: "credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1beta1", "credentialprovider.kubelet.k8s.io/v1alpha1"`,
			`line 8: providers[0].args[0]: Invalid value: "": no argument of a program can have a NUL`,
			`line 10: providers[0].env[0].name: Invalid value: "A=B": the name of a variable must not be empty, and has neither = nor NUL`,
			`line 10: providers[0].env[0].value: Invalid value: "": no variable can have a NUL`,
			`line 12: providers[0].tokenAttributes: Forbidden: it needs apiVersion kubelet.config.k8s.io/v1 of the configuration`,
			`line 12: providers[0].tokenAttributes: Forbidden: it needs apiVersion credentialprovider.kubelet.k8s.io/v1 of the provider`,
			`line 14: providers[0].tokenAttributes.cacheType: Unsupported value: "Pod": supported values: "Token", "ServiceAccount"`,
			`line 16: providers[0].tokenAttributes.requiredServiceAccountAnnotationKeys: Forbidden: it needs requireServiceAccount: true`,
			`line 16: providers[0].tokenAttributes.requiredServiceAccountAnnotationKeys[1]: Duplicate value: "a"`,
			`line 16: providers[0].tokenAttributes.requiredServiceAccountAnnotationKeys[2]: Invalid value: "b c": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			`line 17: providers[0].tokenAttributes.optionalServiceAccountAnnotationKeys[0]: Invalid value: "a": it is also in requiredServiceAccountAnnotationKeys; a key is either required or optional`,
			`line 18: providers[1].name: there has to be a program of this name in --image-credential-provider-bin-dir: stat ` + dir + `/gone: no such file or directory`,
			`line 22: providers[2].name: ` + dir + `/noexec isn't a program: it has to be a regular file that may be executed`}},
		{"a field twice", "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nkind: CredentialProviderConfig\n", []string{`yaml: unmarshal errors: line 3: key "kind" already set in map`}},
		{"a wrong type", "providers:\n- name: [geheim]\n", []string{"line 1: providers.name: it has to be a string"}},
		{"no duration", strings.Replace(good, "12h", "soon", 1), []string{`time: invalid duration "soon"`}},
		{"two documents", "a: 1\n---\nb: 1\n", []string{"line 3: a second document begins here; the file must hold exactly one"}},
		{"empty", "# nothing\n", []string{`it is empty; it should start with "apiVersion: kubelet.config.k8s.io/v1" and "kind: CredentialProviderConfig"`}},
		{"no YAML", "a: [", []string{"line 1: a value is expected here: is a bracket left open?"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, filepath.Join(t.TempDir(), "f.yaml"), c.text, 0o600)
			_, err := Load(file, dir)
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("the error is %v", err)
			}
			var want []string
			for _, w := range c.want {
				want = append(want, file+": "+w)
			}
			if diff := cmp.Diff(want, invalid.Problems); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			for _, p := range want {
				if !strings.Contains(err.Error(), p) {
					t.Errorf("%q isn't told", p)
				}
			}
			if strings.Contains(err.Error(), "geheim") {
				t.Errorf("it gives a value away: %v", err)
			}
		})
	}
}

// TestLoadTooMuch: a file is read up to a bound, and a pipe isn't waited for.
func TestLoadTooMuch(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		write(t, filepath.Join(dir, "large.yaml"), strings.Repeat("#", maxSize+1), 0o600): "it has more than 1048576 bytes, which is the most that is read",
		pipe: "it is not a regular file",
	} {
		if _, err := Load(file, dir); err == nil || err.Error() != "--image-credential-provider-config: "+file+": "+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("providers: [{name: x, env: [{}], matchImages: ['*']}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, problems := decode(data)
		if doc == nil {
			if len(problems) == 0 {
				t.Fatal("it can't be read, and nothing says why")
			}
			return
		}
		for i := range doc.config.Providers {
			p := Provider{CredentialProvider: doc.config.Providers[i]}
			for _, e := range validate(doc.config.APIVersion, "providers[0]", &p) {
				doc.problem(e.Field, e.ErrorBody())
			}
		}
	})
}
