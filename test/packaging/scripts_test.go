package packaging

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestScripts runs the package's scripts as on a machine with systemd: in a mount namespace of
// their own, with stand-ins for every program that would change this one. What they are called
// with is written down; those named in bad fail.
func TestScripts(t *testing.T) {
	const (
		reload  = "systemctl --system daemon-reload"
		update  = "deb-systemd-helper update-state deckhand.service"
		enabled = "deb-systemd-helper debian-installed deckhand.service\n" +
			"deb-systemd-helper unmask deckhand.service\n" +
			"deb-systemd-helper --quiet was-enabled deckhand.service\n" +
			"deb-systemd-helper enable deckhand.service\n" + update + "\n" + reload
		active  = "systemctl --quiet is-active deckhand.service"
		restart = "deb-systemd-invoke try-restart deckhand.service"
	)
	for what, tc := range map[string]struct {
		run, bad, calls, says string
	}{
		"first installation": {run: "postinst configure", bad: "debian-installed", says: "systemctl enable --now deckhand",
			calls: "deb-systemd-helper debian-installed deckhand.service\n" + update + "\n" + reload},
		"upgrade under an agent": {run: "postinst configure 1.0",
			calls: enabled + "\n" + active + "\ndeckhand config check --skip-files /etc/deckhand/config.yaml\n" + restart},
		"upgrade with a bad configuration": {run: "postinst configure 1.0", bad: "check", says: "systemctl restart deckhand",
			calls: enabled + "\n" + active + "\ndeckhand config check --skip-files /etc/deckhand/config.yaml"},
		"upgrade without an agent": {run: "postinst configure 1.0", bad: "is-active", calls: enabled + "\n" + active},
		"before an upgrade":        {run: "prerm upgrade 2.0"},
		"after an upgrade":         {run: "postrm upgrade 2.0"},
		"before a removal":         {run: "prerm remove", calls: "deb-systemd-invoke stop deckhand.service"},
		"after a removal":          {run: "postrm remove", calls: reload},
		"purge":                    {run: "postrm purge", calls: "deb-systemd-helper purge deckhand.service\ndeb-systemd-helper unmask deckhand.service"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			calls := filepath.Join(dir, "calls")
			for _, name := range []string{"systemctl", "deb-systemd-helper", "deb-systemd-invoke", "deckhand"} {
				script := "#!/bin/sh\necho " + name + ` "$@" >>` + calls + "\n" + `case "$*" in *"${BAD:-nothing}"*) exit 1; esac` + "\n"
				if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			scripts, err := filepath.Abs(checkout("packaging/debian"))
			if err != nil {
				t.Fatal(err)
			}
			// /etc and /var/lib are empty but for deckhand's configuration.
			const inside = `set -e
				for dir in /run /etc /var/lib; do mount -t tmpfs deckhand-test $dir; done
				mkdir -p /run/systemd/system /etc/deckhand
				: >/etc/deckhand/config.yaml
				PATH=$STANDINS:$PATH exec sh "$@"`
			fields := strings.Fields(tc.run)
			said := output(t, "unshare", append([]string{"--mount", "--propagation", "private", "env", "BAD=" + tc.bad, "STANDINS=" + dir,
				"sh", "-c", inside, "sh", filepath.Join(scripts, fields[0])}, fields[1:]...)...)
			var got []byte
			if got, err = os.ReadFile(calls); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if strings.TrimSpace(string(got)) != tc.calls {
				t.Errorf("it called:\n%s\nwant:\n%s", got, tc.calls)
			}
			if !strings.Contains(said, tc.says) || tc.says == "" && said != "" {
				t.Errorf("it said %q, want %q in it", said, tc.says)
			}
		})
	}
}
