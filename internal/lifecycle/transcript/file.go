package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// section holds the steps in a file; the others are versions of the pod.
const section = "transcript"

// Bytes returns the whole as a file, a txtar archive, with nothing in it that would
// steer a terminal. What isn't needed to decide
// and may be secret is hidden in it: values of environment variables and of HTTP headers.
func (r *Recorder) Bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	ar := txtar.Archive{Comment: []byte(r.about())}
	for i := range r.versions.list {
		v := &r.versions.list[i]
		ar.Files = append(ar.Files, txtar.File{Name: r.versions.name(v.number), Data: v.file()})
	}
	var steps []byte
	for i := range r.segments {
		steps = append(steps, r.segments[i].text...)
	}
	ar.Files = append(ar.Files, txtar.File{Name: section, Data: r.appendComments(steps)})
	return txtar.Format(&ar)
}

func (r *Recorder) about() string {
	var b strings.Builder
	if r.last != nil && r.last.in.Pod != nil {
		p := r.last.in.Pod
		fmt.Fprintf(&b, "Pod %s/%s, UID %s: what was decided about it, from what and why. Times are in UTC.\n",
			terminal.Line(p.Namespace), terminal.Line(p.Name), terminal.Line(string(p.UID)))
	}
	if r.dropped {
		fmt.Fprintf(&b, "Earlier steps were dropped: %d bytes are kept.\n", r.limit)
	}
	b.WriteString("`deckhand replay FILE` decides it all again and shows what differs.\n")
	return b.String()
}

// file returns a version as YAML; one that was cut as comments that hold what there is of it.
func (v *version) file() []byte {
	if v.whole > 0 {
		return fmt.Appendf(nil, "%s the pod takes %d bytes, of which these %d are kept\n# %s\n", cutMark, v.whole,
			len(v.json), bytes.ToValidUTF8(v.json, nil))
	}
	text, err := yaml.JSONToYAML(v.json)
	if err == nil && terminal.IsBlock(string(text)) {
		return text
	}
	// JSON is YAML as well, and all in it that would steer a terminal is escaped.
	var indented bytes.Buffer
	if err := json.Indent(&indented, v.json, "", "  "); err != nil {
		indented.Write(v.json)
	}
	indented.WriteByte('\n')
	return indented.Bytes()
}

// cutMark begins a section whose pod isn't whole.
const cutMark = "# cut:"
