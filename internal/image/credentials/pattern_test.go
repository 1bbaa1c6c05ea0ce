package credentials

import (
	"strings"
	"testing"
)

func image(t *testing.T, ref string) Image {
	t.Helper()
	i, err := ParseImage(ref)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func pattern(t *testing.T, text string) Pattern {
	t.Helper()
	p, err := ParsePattern(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, image string
		want           bool
	}{
		// The examples of the documentation of images, "Interpretation of config.json".
		{"*.kubernetes.io", "kubernetes.io/a", false},
		{"*.kubernetes.io", "abc.kubernetes.io/a", true},
		{"*.*.kubernetes.io", "abc.kubernetes.io/a", false},
		{"*.*.kubernetes.io", "abc.def.kubernetes.io/a", true},
		{"prefix.*.io", "prefix.kubernetes.io/a", true},
		{"*-good.kubernetes.io", "prefix-good.kubernetes.io/a", true},
		{"my-registry.example/images", "my-registry.example/images", true},
		{"my-registry.example/images", "my-registry.example/images/my-image", true},
		{"my-registry.example/images", "my-registry.example/other/my-image", false},
		{"*.my-registry.example/images", "sub.my-registry.example/images/my-image", true},
		{"*.my-registry.example/images", "a.sub.my-registry.example/images/my-image", false},
		// Those of CredentialProvider.MatchImages.
		{"*.io", "k8s.io/pause", true},
		{"*.io", "registry.k8s.io/pause", false},
		{"k8s.*", "k8s.io/pause", true},
		{"app*.k8s.io", "app1.k8s.io/pause", true},
		{"app*.k8s.io", "1app.k8s.io/pause", false},
		{"a*b*c.io", "aXbYc.io/x", true},
		{"a*b*c.io", "abYd.io/x", false},
		{"registry.io:8080/path", "registry.io:8080/path/x:1", true},
		{"registry.io:8080/path", "registry.io/path/x:1", false},
		{"registry.io:8080", "registry.io:8081/x", false},
		{"registry.io", "registry.io:8080/x", false}, // another server
		{"registry.io/pa", "registry.io/path/x", true},
		// What docker writes.
		{"https://registry.io", "registry.io/x", true},
		{"http://registry.io/v2/", "registry.io/x", true},
		{"https://registry.io/v1/team", "registry.io/team/x", true},
		{"registry.io/v1/team", "registry.io/team/x", false},
		{"registry.io/v1/team", "registry.io/v1/team/x", true},
		{"https://index.docker.io/v1/", "busybox", true},
		{"https://index.docker.io/v1/", "docker.io/team/app:1", true},
		{"index.docker.io", "index.docker.io/team/app", true},
		{"docker.io", "busybox@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", true},
		{"docker.io/team", "team/app", true},
		{"docker.io/team", "busybox", false},
		{"docker.io", "quay.io/team/app", false},
		{"Registry.IO/", "REGISTRY.io/x", true},
		{"localhost:5000", "localhost:5000/x", true},
		{"*", "localhost/x", true},
		{"*:5000", "localhost:5000/x", true},
		{"127.0.0.1:5000", "127.0.0.1:5000/x", true},
		{"[::1]:5000", "[::1]:5000/x", true},
		{"[::1]", "[::1]:5000/x", false},
		{"*:5000", "[::1]:5000/x", true}, // one part, with no dot in it
	} {
		if got := pattern(t, c.pattern).Matches(image(t, c.image)); got != c.want {
			t.Errorf("%s for %s: %v, want %v", c.pattern, c.image, got, c.want)
		}
	}
}

func TestParsePatternRefuses(t *testing.T) {
	for _, text := range []string{
		"", "/path", "https://", "ftp://registry.io", "registry.io:", "registry.io:0", "registry.io:70000", "registry.io:*", "registry.io:80:80",
		"registry.io/*", "registry.io/a b", "registry.io?x", "registry.io/a?x=y", "registry.io/#a", "registry..io", ".io", "registry.io.", "user:geheim@registry.io",
		"https://user:geheim@registry.io/v1/", "[::1", "[x]:80", "[::1]80", "[]", "re gistry.io", "regi\x00stry.io", "ré.io", "registry.[a-z]o", "registry.io/a:tag",
	} {
		p, err := ParsePattern(text)
		switch {
		case err == nil:
			t.Errorf("%q is taken for %q", text, p)
		case strings.Contains(err.Error(), "geheim"):
			t.Errorf("%q: the error gives it away: %v", text, err)
		}
	}
}

func TestParseImage(t *testing.T) {
	for ref, want := range map[string][2]string{
		"busybox":                 {"docker.io/library/busybox", "docker.io"},
		"team/app:1":              {"docker.io/team/app", "docker.io"},
		"Localhost:5000/app:1":    {"localhost:5000/app", "localhost:5000"},
		"[2001:db8::1]:5000/a/b":  {"[2001:db8::1]:5000/a/b", "[2001:db8::1]:5000"},
		"index.docker.io/busybox": {"docker.io/library/busybox", "docker.io"},
	} {
		if i := image(t, ref); i.Name() != want[0] || i.Registry() != want[1] {
			t.Errorf("%s is %s of %s, want %v", ref, i.Name(), i.Registry(), want)
		}
	}
	for _, ref := range []string{"", "UPPER", "a b", "x/", "[:::::]:5000/a", "registry.io:99999/a", "https://registry.io/a"} {
		if i, err := ParseImage(ref); err == nil {
			t.Errorf("%q is taken for %q", ref, i.Name())
		}
	}
}

func TestMatchOrder(t *testing.T) {
	var entries []Entry
	for _, text := range []string{"*.io/team", "registry.io", "registry.io/team", "*.io", "registry.io/team/app", "reg*.io", "other.io"} {
		entries = append(entries, Entry{pattern(t, text), Credential{Username: text}})
	}
	// The same key again, from elsewhere, and the same secret under another key.
	entries = append(entries, Entry{pattern(t, "https://registry.io/"), Credential{Username: "second"}},
		Entry{pattern(t, "*.*"), Credential{Username: "registry.io"}})
	var got []string
	for _, c := range Match(entries, image(t, "registry.io/team/app:1")) {
		got = append(got, c.Username)
	}
	want := "registry.io/team/app registry.io/team registry.io second reg*.io *.io/team *.io"
	if strings.Join(got, " ") != want {
		t.Errorf("tried in the order\n%s, want\n%s", strings.Join(got, " "), want)
	}
	if got := Match(entries, image(t, "localhost/x")); got != nil {
		t.Errorf("a registry that nothing is for has %v", got)
	}
}

func FuzzPattern(f *testing.F) {
	f.Add("*.registry.io:5000/path", "a.registry.io:5000/path/x:1")
	f.Add("https://index.docker.io/v1/", "busybox")
	f.Add("[::1]:80", "[::1]:80/x")
	f.Fuzz(func(t *testing.T, text, ref string) {
		p, err := ParsePattern(text)
		if err != nil {
			return
		}
		// What it prints as is the same pattern. Only a path that looks like docker's API was
		// changed by that, and only once.
		if again, err := ParsePattern(p.String()); err != nil || len(again.place.host) != len(p.place.host) || again.place.port != p.place.port {
			t.Fatalf("%q prints as %q, which is another: %v", text, p, err)
		}
		i, err := ParseImage(ref)
		if err != nil {
			return
		}
		if p.Matches(i) && !strings.HasSuffix(i.Registry(), p.place.port) {
			t.Fatalf("%q matches %q though its port is another", text, ref)
		}
	})
}
