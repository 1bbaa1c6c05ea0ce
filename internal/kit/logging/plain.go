package logging

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// plain removes control characters from lines, as they could steer a terminal: names and messages come from pods,
// registries and runtimes, and klog quotes only some of them. Line breaks stay: klog indents those within a value.
type plain struct{ w io.Writer }

func (p plain) Write(line []byte) (int, error) {
	if !slices.ContainsFunc(line, suspicious) {
		return p.w.Write(line)
	}
	// All of it is written: w expects whole lines. An incomplete character at the end is a broken one.
	var text strings.Builder
	_, _ = terminal.NewWriter(&text).Write(append(line[:len(line):len(line)], '\n'))
	if _, err := io.WriteString(p.w,
		strings.ToValidUTF8(strings.TrimSuffix(text.String(), "\n"), "\uFFFD")); err != nil {
		return 0, err
	}
	return len(line), nil
}

// suspicious reports whether a byte may be of something else than visible ASCII.
func suspicious(c byte) bool { return c < ' ' && c != '\n' && c != '\t' || c >= 0x7f }

// oneLine returns the keys and values of a line without a reference that would break it, which klog writes as it is.
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
