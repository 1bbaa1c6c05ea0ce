package lifecycle_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript"
)

var update = flag.Bool("update", false, "rewrite the transcripts with what the core decides today")

// commandMark begins the lines of a golden transcript that say what happens next
// (see commands). To a replay they are comments.
const commandMark = "#! "

// TestTranscripts plays every transcript in testdata: its commands again in the
// simulator, which has to give the same text; and, as `deckhand replay` would, its
// recorded inputs through the core, which has to decide the same. A user's journal,
// which has no commands, is only replayed.
func TestTranscripts(t *testing.T) {
	for _, name := range transcripts(t) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".txtar")
			playFile(t, file)
			replayFile(t, file)
		})
	}
}

// transcripts returns the names of all transcripts in testdata. The list of them beside them has each, so that
// none is lost by mistake; -update adds to it, but takes none out.
func transcripts(t *testing.T) []string {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".txtar")
	}
	const list = "testdata/transcripts.txt"
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(string(text))
	for _, name := range listed {
		if !slices.Contains(files, name) {
			t.Errorf("%s names transcript %s, which isn't there: bring it back, or take it out of the list if it is meant to go", list, name)
		}
	}
	for _, name := range files {
		if slices.Contains(listed, name) {
			continue
		}
		if !*update {
			t.Errorf("%s doesn't name transcript %s: rerun with -update", list, name)
		}
		listed = append(listed, name)
	}
	if *update {
		slices.Sort(listed)
		if err := os.WriteFile(list, []byte(strings.Join(listed, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func playFile(t *testing.T, file string) {
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p v1.Pod
	var script []string
	for _, f := range ar.Files {
		switch f.Name {
		case "pod.yaml":
			if err := yaml.UnmarshalStrict(f.Data, &p); err != nil {
				t.Fatal(err)
			}
		case "transcript":
			for line := range strings.Lines(string(f.Data)) {
				if command, ok := strings.CutPrefix(strings.TrimSpace(line), commandMark); ok {
					script = append(script, command)
				}
			}
		}
	}
	if len(script) == 0 {
		return
	}
	if p.Spec.RestartPolicy == "" {
		p.Spec.RestartPolicy = v1.RestartPolicyAlways
	}
	got := txtar.Format(record(t, &p, script, ar))
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s: the core decides otherwise now (rerun with -update if that is meant):\n%s", file, got)
}

// record plays the commands and returns the file anew, with its comment and its
// own words for the pod.
func record(t *testing.T, p *v1.Pod, script []string, was *txtar.Archive) *txtar.Archive {
	rec := transcript.NewRecorder(1 << 30)
	s := newSim(p)
	s.record = rec.Record
	for _, command := range script {
		rec.Comment(commandMark + command)
		if err := s.apply(command); err != nil {
			t.Fatalf("%q: %v", command, err)
		}
		s.decide()
		if len(s.laws.problems) > 0 {
			t.Fatalf("after %q: %s", command, strings.Join(s.laws.problems, "; "))
		}
	}
	ar := txtar.Parse(rec.Bytes())
	ar.Comment = was.Comment
	for i := range ar.Files {
		if ar.Files[i].Name == "pod.yaml" {
			for _, f := range was.Files {
				if f.Name == "pod.yaml" {
					ar.Files[i].Data = f.Data
				}
			}
		}
	}
	return ar
}

func replayFile(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := transcript.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.Steps) == 0 {
		t.Fatal("nothing to replay")
	}
	for _, d := range transcript.Replay(tr) {
		t.Errorf("%s:%d: recorded %q, today %q", file, d.Line, d.Recorded, d.Now)
	}
}
