package logging

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// plain removes control characters from lines, because they could steer a terminal: names and messages come from pods,
// registries and runtimes, and klog quotes only some of them. Line breaks stay: klog indents line breaks within a
// value.
type plain struct{ w io.Writer }

func (p plain) Write(line []byte) (int, error) {
	if !slices.ContainsFunc(line, suspicious) {
		return p.w.Write(line)
	}
	// The whole line is written, since w expects whole lines. An incomplete character at its end is replaced.
	var text strings.Builder
	_, _ = terminal.NewWriter(&text).Write(append(line[:len(line):len(line)], '\n'))
	if _, err := io.WriteString(p.w,
		strings.ToValidUTF8(strings.TrimSuffix(text.String(), "\n"), "\uFFFD")); err != nil {
		return 0, err
	}
	return len(line), nil
}

// suspicious reports whether a byte may belong to anything other than visible ASCII.
func suspicious(c byte) bool { return c < ' ' && c != '\n' && c != '\t' || c >= 0x7f }

// oneLine returns the keys and values of a line, with line breaks and quotes in object references escaped. klog writes
// references unquoted, so a line break in a reference would break the line.
func oneLine(kv []any) []any {
	copied := false
	for i, v := range kv {
		ref, ok := v.(klog.ObjectRef)
		if !ok || !strings.ContainsAny(ref.Namespace+ref.Name, "\n\"") {
			continue
		}
		if !copied {
			kv, copied = slices.Clone(kv), true
		}
		kv[i] = klog.KRef(escaped(ref.Namespace), escaped(ref.Name))
	}
	return kv
}

func escaped(text string) string {
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}
