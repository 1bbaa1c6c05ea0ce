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

// section is the file section that holds the steps; the other sections are versions of the pod.
const section = "transcript"

// Bytes returns the transcript as a file, a txtar archive that contains no terminal control characters. It hides
// values that decisions don't need and that may be secret: those of environment variables and of HTTP headers.
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

// file returns a version as YAML, or a truncated version as comments with its remaining text.
func (v *version) file() []byte {
	if v.whole > 0 {
		return fmt.Appendf(nil, "%s the pod takes %d bytes, of which these %d are kept\n# %s\n", cutMark, v.whole,
			len(v.json), bytes.ToValidUTF8(v.json, nil))
	}
	text, err := yaml.JSONToYAML(v.json)
	if err == nil && terminal.IsBlock(string(text)) {
		return text
	}
	// JSON is valid YAML, and its strings escape terminal control characters.
	var indented bytes.Buffer
	if err := json.Indent(&indented, v.json, "", "  "); err != nil {
		indented.Write(v.json)
	}
	indented.WriteByte('\n')
	return indented.Bytes()
}

// cutMark begins a section with a truncated pod.
const cutMark = "# cut:"
