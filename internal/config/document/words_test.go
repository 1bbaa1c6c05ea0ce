package document_test

import (
	"strings"
	"testing"
)

// What isn't YAML is reported in words that say what to do, with the line that an editor shows.
func TestWordsForSyntax(t *testing.T) {
	for text, want := range map[string]string{
		"logging:\n\tformat: json":                                   "line 4: indented with a tab",
		"logging:\n  format: json\n\tverbosity: 1":                   "line 5: indented with a tab",
		"maxPods:\t110\n\tx: 1":                                      "line 4: indented with a tab",
		"clusterDNS:\n- a\nb: c\n- d":                                "line 6: a name with a colon is expected",
		"address: 0.0.0.0\n port: 10250":                             "line 4: a name with a colon can't stand here",
		"clusterDNS:\n  - a\n  b: c":                                 "line 5: an item after",
		"clusterDNS: [a\nmaxPods: 3":                                 "line 3: a list in brackets is missing",
		"evictionHard: {a: 1\nmaxPods: 3":                            "line 3: a mapping in braces is missing",
		"staticPodPath: [":                                           "line 3: a value is expected here",
		"...\nmaxPods: 3":                                            "line 4: the document has ended",
		"clusterDomain:cluster.local\nx: 1":                          "line 3: a name and a value are expected here",
		"address: \"1.1.1.1\nx: 1":                                   "line 3: a quoted string that begins here",
		"address: @x":                                                "line 3: a value can't begin with this character",
		"address: \"C:\\q\"":                                         "line 3: unknown escape after a backslash",
		"address: *.example.com":                                     "line 3: a value can't begin with this character",
		"address: *example":                                          "line 3: a value that begins with \"*\"",
		"address: " + strings.Repeat("{a: ", 20_000):                 "line 3: it is nested too deeply",
		"address: \x00":                                              "line 3: it is not plain text: there is a control character (U+0000)",
		"address: \xff":                                              "line 3: it is not plain text: there is a byte (0xff) that isn't UTF-8",
		"staticPodURLHeader: {\"Authorization: Bearer hunter2\": x}": "line 3: staticPodURLHeader[Authorization…]: the value is not a list; put it in brackets",
		"staticPodURLHeader: {\"Authorization: Bearer hunter2\\n\": [x]}": "line 3: staticPodURLHeader: the name has control characters",
		"staticPodURLHeader: {Authorization: [*hunter2]}":                 "line 3: a value that begins with \"*\"",
	} {
		got := report([]byte(head + text + "\n"))
		if !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 || strings.Contains(got, "hunter2") {
			t.Errorf("%.100q: %s, want %s...", text, got, want)
		}
		// With the lines of other systems, the places are the same.
		windows := "\ufeff" + strings.ReplaceAll(head+text+"\n", "\n", "\r\n")
		if again := report([]byte(windows)); again != got {
			t.Errorf("%.100q with CRLF: %s, want %s", text, again, got)
		}
	}
	if got := report([]byte("@")); !strings.HasPrefix(got, "line 1: a value can't begin") {
		t.Errorf("the first line: %s", got)
	}
}
