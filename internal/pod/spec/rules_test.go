package spec

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	v1 "k8s.io/api/core/v1"
)

var update = flag.Bool("update", false, "write the answers in testdata/rules anew")

// Each testdata/rules/*.txtar has pods, named for what is special about them,
// and after each what is said of it: either "accepted", or "refused" with all
// errors, word for word. A pod's text is its spec; podOf adds what isn't at issue.
func TestRules(t *testing.T) {
	files, err := filepath.Glob("testdata/rules/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			old, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			now, kinds := answered(t, txtar.Parse(old))
			refused += kinds["refused"]
			if kinds["accepted"] == 0 || kinds["refused"] == 0 {
				t.Errorf("%d pods accepted and %d refused: a rule shows itself in both", kinds["accepted"], kinds["refused"])
			}
			if *update {
				if err := os.WriteFile(file, now, 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(old), string(now)); diff != "" {
				t.Errorf("run with -update if this is how it should be (-want +got):\n%s", diff)
			}
		})
	}
	if refused < 60 {
		t.Errorf("only %d pods were refused: are files missing?", refused)
	}
}

// answered gives a file with the answers of today, and counts them.
func answered(t *testing.T, a *txtar.Archive) ([]byte, map[string]int) {
	t.Helper()
	out := &txtar.Archive{Comment: a.Comment}
	kinds := map[string]int{}
	for _, f := range a.Files {
		if f.Name == "accepted" || f.Name == "refused" {
			continue
		}
		answer := txtar.File{Name: "accepted"}
		for _, e := range Validate(podOf(t, indent(f.Data))) {
			answer.Name = "refused"
			answer.Data = append(answer.Data, e.Error()+"\n"...)
			if e.Detail == "" {
				t.Errorf("%s: %v doesn't say what would be valid", f.Name, e)
			}
		}
		kinds[answer.Name]++
		out.Files = append(out.Files, f, answer)
	}
	return txtar.Format(out), kinds
}

// indent puts a text below the key before it.
func indent(text []byte) string {
	return "\n  " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  ")
}

// A pod with thousands of names and as many mistakes must not make an error of
// their product.
func TestErrorsStaySmall(t *testing.T) {
	p := podOf(t, "{}")
	for i := range 3000 {
		name := strconv.Itoa(i)
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "v" + name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "w" + name, MountPath: "/" + name})
	}
	errs := Validate(p)
	if len(errs) != 3000 {
		t.Fatalf("%d errors for 3,000 mounts of volumes that aren't there", len(errs))
	}
	const most = 400
	for _, e := range errs {
		if len(e.Error()) > most {
			t.Fatalf("an error of %d characters: %v", len(e.Error()), e)
		}
	}
	if got := errs[0].Error(); !strings.HasSuffix(got, `"v18", "v19" and 2980 more`) {
		t.Errorf("the first names are listed, and how many there are beside: %s", got)
	}
}
