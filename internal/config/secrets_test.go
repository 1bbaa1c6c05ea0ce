package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/config/paths"
)

// secret is what must be shown to nobody, wherever it is put.
const secret = "hunter2"

// TestSecretsAreNeverShown: passwords in URLs and values of headers, given rightly or wrongly,
// in files or by flags, are in no problem, no note and nothing else that is shown.
func TestSecretsAreNeverShown(t *testing.T) {
	for _, text := range []string{
		"staticPodURL: https://me:hunter2@example.com/pods?token=hunter2",
		"staticPodURL: https://hunter2@example.com/",
		"staticPodURL: ftp://me:hunter2@example.com/",
		"staticPodURL: 'https://me:hunter2@[example.com/'",
		"staticPodURL: https://me:hunter2@example.com/: x",
		"staticPodURL: [https://me:hunter2@example.com/]",
		"staticPodURL: {https://me:hunter2@example.com/: }",
		"staticPodURL: *hunter2",
		"staticPodURL: !!int hunter2",
		"staticPodURL: \"\\qhunter2\"",
		"staticPodURL: @hunter2",
		"staticPodUrl: hunter2",
		"staticPodURL: hunter2\nstaticPodURL: hunter2",
		"staticPodURLHeader: {Authorization: [Bearer hunter2]}",
		"staticPodURLHeader: {Authorization: Bearer hunter2}",
		"staticPodURLHeader: {Authorization: [\"hunter2\\n\"]}",
		"staticPodURLHeader: {Authorization: [*hunter2]}",
		"staticPodURLHeader: {Authorization: [{Bearer: hunter2}]}",
		"staticPodURLHeader: {Authorization: [[hunter2]]}",
		"staticPodURLHeader: {Authorization: {Bearer: hunter2}}",
		"staticPodURLHeader: {\"Authorization: hunter2\": [x]}",
		"staticPodURLHeader: {\"Authorization: hunter2\": x}",
		"staticPodURLHeader: {\"Authorization: hunter2\": [x], \"Authorization: hunter2\": [y]}",
		"staticPodURLHeader: {\"Authorization: hunter2\\n\": [x]}",
		"staticPodURLHeader: {\"" + strings.Repeat("hunter2", 100) + "\": [x]}",
		"staticPodURLHeader: [Authorization:hunter2]",
		"staticPodURLHeader: Authorization:hunter2",
		"staticPodURLHeader:\n  Authorization:hunter2",
		"staticPodURLHeader:\n\tAuthorization: [hunter2]",
		"staticPodURLHeader:\nAuthorization: [hunter2]",
		"staticPodURLHeader: {Authorization: [hunter2",
		"staticPodURLHeader: {Authorization: [hunter2\x00]}",
		"staticPodURLHeader: {Authorization: [1, true, hunter2]}",
	} {
		for _, beside := range []string{"", "maxPods: -1\nmaxpods: 1\n", "rotateCertificates: true\n"} {
			file, dir := writeFile(t, head+beside+text), t.TempDir()
			put(t, filepath.Join(dir, "10.conf"), head+text+"\n"+beside)
			hidesSecret(t, text, "--config", file)
			hidesSecret(t, text, "--config", file, "--max-pods=-1", "--manifest-url-header=A:b")
			hidesSecret(t, text, "--config", writeFile(t, head+beside), "--config-dir", dir)
		}
	}
	for _, args := range []string{
		"--manifest-url=https://me:hunter2@example.com/?hunter2", "--manifest-url=hunter2", "--manifest-url=ftp://me:hunter2@x",
		"--manifest-url-header=Authorization:hunter2", "--manifest-url-header=hunter2", "--manifest-url-header=A B:hunter2", "--manifest-url-header=A:hunter2,hunter2",
		"--manifest-url-header=A:hunter2\x00", "--manifest-url-header=A:b,c: hunter2", "--storage-driver-password=hunter2",
	} {
		hidesSecret(t, args, args)
		hidesSecret(t, args, args, "--max-pods=-1", "--config", writeFile(t, head+"staticPodURLHeader: {B: [hunter2]}"))
	}
}

// hidesSecret fails if anything that is shown of a configuration holds the secret.
func hidesSecret(t *testing.T, what string, args ...string) {
	t.Helper()
	set := parse(t, args...)
	_, notes, err := Check(t.Context(), set)
	shown := fmt.Sprint(notes, err)
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		text, jsonErr := json.Marshal(invalid.Problems)
		if jsonErr != nil {
			t.Fatal(jsonErr)
		}
		shown += string(text)
	} else if c := mustLoad(t, set); err == nil {
		view := paths.YAML(paths.Masked(&c.Kubelet), func(path string) string { return c.Origins()[path] })
		shown += fmt.Sprint(c.NotActedOn, c.Deprecated, c.Flags, c.Origins(), c.Sources) + string(view)
	}
	if strings.Contains(shown, secret) {
		t.Errorf("%q: the secret is shown: %s", what, shown)
	}
}
