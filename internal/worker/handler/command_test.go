package handler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Values of variables get into no message, whatever goes wrong: messages are for
// everybody who may see events, status or the journal.
func TestValuesAreNotShown(t *testing.T) {
	const secret, odd, pin = "s3cr3t-t0ken", "a \"b\" \\ c\"", "47"
	target := Target{Container: &v1.Container{Env: []v1.EnvVar{
		{Name: "TOKEN", Value: secret}, {Name: "ODD", Value: odd}, {Name: "PIN", Value: pin}, {Name: "EMPTY"}, {Name: "UNUSED", Value: "runtime"},
	}}}
	probe := execProbe("/bin/curl", "-H", "Authorization: Bearer $(TOKEN)", "$(ODD)", "-p$(PIN)", "$(PIN)", "$(EMPTY)", "$$(TOKEN)")
	const told = `"/bin/curl -H Authorization: Bearer $(TOKEN) $(ODD) -p$(PIN) $(PIN) $(EMPTY) $$(TOKEN)"`
	for name, c := range map[string]struct {
		err     func(cmd []string) error
		state   State
		message string
	}{
		"timeout":  {func([]string) error { return ErrTimeout }, Failure, "command timed out: " + told + " timed out after 3s"},
		"silent":   {func(cmd []string) error { return fmt.Errorf("exec %q: %w", cmd, ErrNoAnswer) }, Unknown, "run " + told + " in the container: the container runtime doesn't answer"},
		"too much": {func([]string) error { return ErrTooMuchOutput }, Failure, "the command printed more than 16 MiB"},
		"error":    {func([]string) error { return errors.New("no such container") }, Unknown, "run " + told + " in the container: no such container"},
		"whole": {func(cmd []string) error { return fmt.Errorf("runtime: exec failed: %s", strings.Join(cmd, " ")) }, Unknown,
			"runtime: exec failed: /bin/curl -H Authorization: Bearer $(TOKEN) $(ODD) -p$(PIN) $(PIN)"},
		"quoted": {func(cmd []string) error { return fmt.Errorf("exec: %q: not found", cmd[2:6]) }, Unknown,
			`exec: ["Authorization: Bearer $(TOKEN)" "$(ODD)" "-p$(PIN)" "$(PIN)"]: not found`},
		"quoted twice": {func(cmd []string) error { return fmt.Errorf("exec: %q", fmt.Sprintf("%q", cmd[2:4])) }, Unknown,
			`exec: "[\"Authorization: Bearer $(TOKEN)\" \"$(ODD)\"]"`},
		"a part": {func([]string) error { return errors.New("stat /opt/x" + secret + "y: error 47, 1470 of 47") }, Unknown,
			"stat /opt/x$(TOKEN)y: error $(PIN), 1470 of $(PIN)"},
	} {
		t.Run(name, func(t *testing.T) {
			h := handlers(func(_ context.Context, _ string, cmd []string, _ time.Duration) (string, string, int, error) {
				if cmd[2] != "Authorization: Bearer "+secret {
					t.Errorf("ran %q", cmd)
				}
				return "", "", 0, c.err(cmd)
			})
			o := h.Probe(t.Context(), target, probe)
			want(t, o, c.state, c.message)
			for _, value := range []string{secret, odd, fmt.Sprintf("%q", odd), "-p" + pin} {
				if strings.Contains(o.Message, value) {
					t.Errorf("%q tells %q", o.Message, value)
				}
			}
		})
	}
}
