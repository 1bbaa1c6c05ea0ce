package desired

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

func TestReadableSecretsAreReportedOnce(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	value := map[string][]byte{"password": []byte("hunter2")}
	open := file("open.yaml", 0o644)
	set := object.NewSet([]*object.Desired{
		object.NewDesired(&v1.Secret{ObjectMeta: meta("a"), Data: value}, pod.SourceFile, open),
		object.NewDesired(&v1.Secret{ObjectMeta: meta("b"), Data: value}, pod.SourceFile, open),
		object.NewDesired(&v1.Secret{ObjectMeta: meta("c"), Data: value}, pod.SourceFile, file("closed.yaml", 0o600)),
		object.NewDesired(&v1.Secret{ObjectMeta: meta("d"), Data: value}, pod.SourceHTTP, "http://127.0.0.1/d"),
		object.NewDesired(&v1.ConfigMap{ObjectMeta: meta("e")}, pod.SourceFile, file("map.yaml", 0o644)),
	}, true)
	s := &openSecrets{}
	fresh := s.check(set)
	if len(fresh) != 1 || fresh[0].Object.Name != open || !strings.Contains(fresh[0].Message, "chmod 600 "+open) {
		t.Fatalf("reported %+v", fresh)
	}
	if strings.Contains(fresh[0].Message, "hunter2") {
		t.Error("the advice holds the Secret's value")
	}
	if again := s.check(set); len(again) > 0 {
		t.Errorf("reported again: %+v", again)
	}
	if err := os.Chmod(open, 0o600); err != nil {
		t.Fatal(err)
	}
	if after := s.check(set); len(after) > 0 {
		t.Errorf("reported though it was fixed: %+v", after)
	}
	if err := os.Chmod(open, 0o640); err != nil {
		t.Fatal(err)
	}
	if worse := s.check(set); len(worse) != 1 {
		t.Errorf("a file that was opened again isn't reported: %+v", worse)
	}
}
