package flags

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/kubelet/config/v1beta1"
)

// FuzzArguments: any arguments give values, or an error that names what is wrong.
func FuzzArguments(f *testing.F) {
	empty := New("/var/lib/kubelet")
	var all []string
	empty.flags.VisitAll(func(fl *pflag.Flag) { all = append(all, "--"+fl.Name+"="+sample(empty, fl)) })
	f.Add(strings.Join(all, "\n"))
	for _, seed := range []string{
		"-v4\n--config\nx", "-v\n-1", "--reserved-memory=0:memory=1e999999999Gi", "--log-json-info-buffer-size=1e-999999999",
		"--register-with-taints=a:NoSchedule-,", "--node-labels==,=b,\x00=\xff", "--version=v1.36.3-", "--vmodule=a=2147483648",
		"--manifest-url=https://[::1%zz]/?\x7f", "--=x", "---", "-vv", "--", "-=", "--cluster-dns=\"", "--address=fe80::1%eth0", "--MAX_PODS=3",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := New("/var/lib/kubelet")
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		fs.SetOutput(io.Discard)
		s.AddTo(fs)
		args := strings.Split(text, "\n")
		if err := fs.Parse(args); err != nil {
			checkNamed(t, err)
			return
		}
		var c v1beta1.KubeletConfiguration
		for path, name := range s.Overlay(&c) {
			if path == "" || !s.Given(name) {
				t.Errorf("%q is from --%s, which wasn't given", path, name)
			}
		}
		for _, p := range s.Check() {
			if s.rows[p.Flag] == nil || p.Message == "" {
				t.Errorf("a problem without a flag or a message: %+v", p)
			}
		}
		if len(s.Shown(false)) != len(s.rows) || len(s.Deprecated())+len(s.NotActedOn()) > 2*len(s.rows) {
			t.Error("flags are missing")
		}
	})
}

func checkNamed(t *testing.T, err error) {
	t.Helper()
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var syntax *pflag.InvalidSyntaxError
	if !errors.Is(err, pflag.ErrHelp) && !errors.As(err, &unknown) && !errors.As(err, &invalid) && !errors.As(err, &missing) && !errors.As(err, &syntax) {
		t.Errorf("an error that names no flag: %v", err)
	}
	if !strings.Contains(err.Error(), "-") && !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("an error that names no flag: %v", err)
	}
}
