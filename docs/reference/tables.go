package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/fields"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/explain"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
)

const configurationTop = generated + `# Configuration

The configuration is a KubeletConfiguration (kubelet.config.k8s.io/v1beta1), the kubelet's own format. ` + "`--config`" + ` names the
file, ` + "`--config-dir`" + ` a directory of ` + "`*.conf`" + ` files over it, and flags come over both. An unknown or misspelt field, or a value that
can't be, is an error with file, line and field. A field that has no effect in this version is named at the agent's start.

` + "`deckhand config docs FIELD`" + ` shows the same in a terminal, ` + "`deckhand config view`" + ` what the running agent goes by,
` + "`deckhand config check FILE`" + ` what is wrong with a file, and with the files that it names, before it is used.

`

// configurationPage describes every field, and what becomes of it.
func configurationPage() (string, error) {
	var b strings.Builder
	b.WriteString(configurationTop)
	if err := fields.Markdown(&b, fields.Entries(config.SetDefaults)); err != nil {
		return "", err
	}
	return b.String(), nil
}

const metricsTop = generated + `# Metrics

` + "`/metrics`" + ` on the read-only port (127.0.0.1:10255) serves these in Prometheus' text format, beside those of the Go runtime (` + "`go_*`" + `) and of
the process (` + "`process_*`" + `). Where the kubelet has the same thing, name, type, labels and buckets are its own; what is deckhand's begins
with ` + "`deckhand_`" + `. Those that a condition stands behind are there only where it holds.

| metric | type | labels | what it is |
| --- | --- | --- | --- |
`

// kubeletMetrics lists the metrics of the kubelet, with those that deckhand has yet to get.
const kubeletMetrics = "internal/report/metrics/testdata/kubelet-1.36-metrics.txt"

const metricsMissing = `
## The kubelet's metrics that aren't there

| metric | when it comes |
| --- | --- |
`

// metricsPage describes every metric.
func metricsPage(source string) (string, error) {
	var b strings.Builder
	b.WriteString(metricsTop)
	for _, d := range metrics.Described() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Type, quoted(d.Labels), cell(d.Help))
	}
	b.WriteString(metricsMissing)
	list, err := os.ReadFile(filepath.Join(source, kubeletMetrics))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(list)) {
		if described, when, missing := strings.Cut(strings.TrimSpace(line), ": "); missing && !strings.HasPrefix(line, "#") {
			f := strings.Fields(described)
			fmt.Fprintf(&b, "| `%s` | %s |\n", f[0], when)
		}
	}
	return b.String(), nil
}

func quoted(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "`" + strings.Join(words, "`, `") + "`"
}

const eventsTop = generated + `# Events and reasons

` + "`deckhand events`" + ` lists events. Each has a reason, and so have containers that wait (` + "`deckhand pods`, `deckhand why`" + `), pods that failed and
conditions of a pod or of the node. They are the API's and the kubelet's, so that dashboards and alerts know them. Where something can be done
about one, ` + "`deckhand why POD`" + ` says the same as the table.

`

// eventsPage describes every reason, by the comments of its constant.
func eventsPage(source string) (string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(source, "internal", "pod", "reasons.go"), nil, parser.ParseComments)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(eventsTop)
	for _, decl := range f.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		title, rest, _ := strings.Cut(strings.TrimSpace(g.Doc.Text()), ". ")
		fmt.Fprintf(&b, "## %s\n\n", strings.TrimSuffix(title, "."))
		if rest != "" {
			fmt.Fprintf(&b, "%s\n\n", rest)
		}
		b.WriteString("| reason | what happened | what you can do |\n| --- | --- | --- |\n")
		for _, s := range g.Specs {
			if err := writeReason(&b, s.(*ast.ValueSpec)); err != nil {
				return "", err
			}
		}
		b.WriteByte('\n')
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func writeReason(b *strings.Builder, s *ast.ValueSpec) error {
	name := s.Names[0].Name
	value, err := strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	said := strings.Join(strings.Fields(s.Doc.Text()), " ")
	meaning, ok := strings.CutPrefix(said, name+": ")
	if !ok {
		return fmt.Errorf("%s has no comment that says what happened", name)
	}
	advice := explain.Advice(&pod.Wait{Code: pod.WaitRetry, Reason: pod.Reason(value)}, nil)
	if advice == "" {
		advice = explain.Advice(&pod.Wait{Code: pod.WaitRejected, Reason: pod.Reason(value)}, nil)
	}
	_, err = fmt.Fprintf(b, "| `%s` | %s | %s |\n", value, cell(capital(meaning)), cell(capital(advice)))
	return err
}

func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
