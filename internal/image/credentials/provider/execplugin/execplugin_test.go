package execplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

// act names the variable that makes this program a plugin, by what it is to do.
const act = "DECKHAND_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if what := os.Getenv(act); what != "" {
		os.Exit(plugin(what))
	}
	goleak.VerifyTestMain(m)
}

const version = "credentialprovider.kubelet.k8s.io/v1"

// plugin is what the program does as a plugin.
func plugin(what string) int {
	switch what {
	case "echo": // tells as a password what it was asked, and how
		in, err := io.ReadAll(os.Stdin)
		if err != nil {
			return 3
		}
		said, err := json.Marshal(map[string]any{"in": string(in), "args": os.Args[1:], "own": os.Getenv("OWN"), "agents": os.Getenv("AGENTS")})
		if err != nil {
			return 4
		}
		answer := map[string]any{"apiVersion": version, "kind": "CredentialProviderResponse", "cacheKeyType": "Registry", "cacheDuration": "1h", "ignored": 1,
			"auth": map[string]any{"*.io": map[string]string{"username": "u", "password": string(said)}, "bad key": map[string]string{}}}
		if json.NewEncoder(os.Stdout).Encode(answer) != nil {
			return 5
		}
	case "fail":
		in, _ := io.ReadAll(os.Stdin)
		fmt.Println("geheim on stdout")
		fmt.Fprintf(os.Stderr, "%s\nthe cloud\x1b[31m said no to %s\n", strings.Repeat("x", 16<<10), in)
		return 7
	case "flood":
		block := make([]byte, 64<<10)
		for {
			if _, err := os.Stdout.Write(block); err != nil {
				return 0
			}
		}
	case "child", "orphan": // leaves a process that has its output open
		cmd := exec.Command("sleep", "600")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: what == "orphan"}
		if cmd.Start() != nil {
			return 3
		}
		if os.WriteFile(os.Args[1], []byte(strconv.Itoa(cmd.Process.Pid)), 0o600) != nil {
			return 4
		}
	case "hang":
		if os.WriteFile(os.Args[1], []byte(strconv.Itoa(os.Getpid())), 0o600) != nil {
			return 4
		}
		select {}
	}
	return 0
}

func self(t *testing.T, what string, args ...string) *Plugin {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &Plugin{Program: program, Args: args, Env: []string{act + "=" + what, "OWN=mine"}, APIVersion: version}
}

func busybox(t *testing.T) credentials.Image {
	t.Helper()
	i, err := credentials.ParseImage("a.io/team/busybox:1")
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestAsk(t *testing.T) {
	t.Setenv("OWN", "the agent's")
	t.Setenv("AGENTS", "inherited")
	r, err := self(t, "echo", "get", "$HOME; true").Ask(t.Context(), Request{Image: busybox(t), Token: "tok", Annotations: map[string]string{"k": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Key != "Registry" || r.Duration == nil || *r.Duration != time.Hour || len(r.Entries) != 1 || len(r.Problems) != 1 {
		t.Fatalf("it answers %+v", r)
	}
	if got := credentials.Match(r.Entries, busybox(t)); len(got) != 1 || got[0].Username != "u" || got[0].ServerAddress != "*.io" {
		t.Errorf("the credentials are %v", got)
	}
	var said struct {
		In          string
		Args        []string
		Own, Agents string
	}
	if err := json.Unmarshal([]byte(r.Entries[0].Credential.Password), &said); err != nil {
		t.Fatal(err)
	}
	if want := `{"kind":"CredentialProviderRequest","apiVersion":"` + version + `","image":"a.io/team/busybox","serviceAccountToken":"tok","serviceAccountAnnotations":{"k":"v"}}`; said.In != want {
		t.Errorf("it was asked %s\nwant %s", said.In, want)
	}
	if !slices.Equal(said.Args, []string{"get", "$HOME; true"}) || said.Own != "mine" || said.Agents != "inherited" {
		t.Errorf("it was started with %q, %q, %q", said.Args, said.Own, said.Agents)
	}
}

func TestAskFails(t *testing.T) {
	_, err := self(t, "fail").Ask(t.Context(), Request{Image: busybox(t), Token: "geheimtoken"})
	if err == nil || !strings.HasPrefix(err.Error(), "exit status 7; the end of its standard error: ...xxx") || !strings.Contains(err.Error(), `"serviceAccountToken":"[secret]"`) {
		t.Errorf("the error is %v", err)
	}
	if text := fmt.Sprint(err); strings.Contains(text, "geheim") || strings.ContainsAny(text, "\n\x1b") || len(text) > 1<<10+200 {
		t.Errorf("the error is %q", text)
	}
	p := self(t, "echo")
	p.Program = filepath.Join(t.TempDir(), "gone")
	if _, err := p.Ask(t.Context(), Request{Image: busybox(t)}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that isn't there: %v", err)
	}
}

func TestAskBoundsTheAnswer(t *testing.T) {
	if _, err := self(t, "flood").Ask(t.Context(), Request{Image: busybox(t)}); err == nil || err.Error() != "it wrote more than 1048576 bytes to its standard output and was ended" {
		t.Errorf("the error is %v", err)
	}
}

// pidIn waits until a plugin wrote a process number into the file.
func pidIn(t *testing.T, file string) int {
	t.Helper()
	for t.Context().Err() == nil {
		if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
			pid, err := strconv.Atoi(string(text))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the plugin didn't start")
	return 0
}

// gone waits until the process has ended; of one that init has yet to reap nothing runs any more.
func gone(t *testing.T, pid int) {
	t.Helper()
	for t.Context().Err() == nil {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(text), ") Z ") {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("process %d is still there", pid)
}

func TestAskEndsThePluginWithItsGroup(t *testing.T) {
	t.Run("given up", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pid")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := self(t, "hang", file).Ask(ctx, Request{Image: busybox(t)})
			done <- err
		}()
		pid := pidIn(t, file)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("process %d wasn't reaped: %v", pid, err)
		}
	})
	t.Run("out of time", func(t *testing.T) {
		cause := errors.New("it took longer than a moment and was ended")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, cause)
		defer cancel()
		if _, err := self(t, "hang", filepath.Join(t.TempDir(), "pid")).Ask(ctx, Request{Image: busybox(t)}); !errors.Is(err, cause) {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("a child in its group", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pid")
		start := time.Now()
		if _, err := self(t, "child", file).Ask(t.Context(), Request{Image: busybox(t)}); err == nil || err.Error() != "it wrote nothing to its standard output" {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(start); took > Timeout/2 {
			t.Errorf("it took %v, though the plugin ended", took)
		}
		gone(t, pidIn(t, file))
	})
	t.Run("a child that left the group", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pid")
		if _, err := self(t, "orphan", file).Ask(t.Context(), Request{Image: busybox(t)}); err == nil || !strings.Contains(err.Error(), "left a process behind") {
			t.Errorf("the error is %v", err)
		}
		pid := pidIn(t, file)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		gone(t, pid)
	})
}

// answer is a good answer with a part replaced.
func answer(old, replacement string) string {
	good := `{"apiVersion": "` + version + `", "kind": "CredentialProviderResponse", "cacheKeyType": "Image", "auth": {"a.io": {"username": "u", "password": "geheim"}}}`
	return strings.Replace(good, old, replacement, 1)
}

func TestDecode(t *testing.T) {
	p := Plugin{APIVersion: version}
	r, err := p.decode([]byte(answer("", "")))
	if err != nil || r.Duration != nil || len(r.Entries) != 1 || r.Entries[0].Credential.Password != "geheim" {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = p.decode([]byte(answer(`"auth": {"a.io": {"username": "u", "password": "geheim"}}`, `"auth": null, "cacheDuration": "0"`)))
	if err != nil || r.Duration == nil || *r.Duration != 0 || r.Entries != nil {
		t.Errorf("no credentials, for now: %+v, %v", r, err)
	}
	for text, want := range map[string]string{
		"":                                      "wrote nothing",
		"geheim":                                "isn't a CredentialProviderResponse",
		answer("}}}", "}}} geheim"):             "isn't a CredentialProviderResponse",
		answer(version, "geheim/v1"):            "apiVersion " + version,
		answer(version, version+"beta1"):        "apiVersion " + version,
		answer("Response", "Request"):           "kind CredentialProviderResponse",
		answer(`"Image"`, `"geheim"`):           "cacheKeyType",
		answer(`, "cacheKeyType": "Image"`, ""): "cacheKeyType",
		answer(`"auth"`, `"cacheDuration": "-1s", "auth"`):    "negative",
		answer(`"auth"`, `"cacheDuration": "geheim", "auth"`): "isn't a CredentialProviderResponse",
		answer(`"u"`, `12345`):                                "isn't a CredentialProviderResponse",
	} {
		_, err := p.decode([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(answer("", "")))
	f.Add([]byte(answer(`"auth"`, `"cacheDuration": "1h", "auth"`)))
	f.Add([]byte(answer("a.io", "*.a io:x")))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := Plugin{APIVersion: version}
		r, err := p.decode(text)
		switch {
		case err != nil && (len(r.Entries) > 0 || strings.ContainsAny(err.Error(), "\n\x1b")):
			t.Fatalf("%+v and the error %q", r, err)
		case err == nil && (r.Key == "" || r.Duration != nil && *r.Duration < 0):
			t.Fatalf("it is taken for %+v", r)
		}
	})
}
