package flags

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/kubelet/config/v1beta1"
)

// parse returns the flags after a command line, and what parsing printed.
func parse(t *testing.T, args ...string) *Set {
	t.Helper()
	s := New("/var/lib/kubelet")
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	var printed bytes.Buffer
	fs.SetOutput(&printed)
	s.AddTo(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	if printed.Len() > 0 {
		t.Errorf("%q printed %q: telling is left to who runs the agent", args, printed.String())
	}
	return s
}

// sample is a value, other than any default, that a flag takes.
func sample(s *Set, f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		if f.DefValue == "true" {
			return "false"
		}
		return "true"
	case "int", "int32", "int64", "Level":
		return "7"
	case "duration":
		return "77s"
	case "stringSlice":
		return "a,b"
	case "ip":
		return "192.0.2.7"
	case "mapStringBool":
		return "A=true"
	case "mapStringString":
		if s.rows[f.Name].form != nil && strings.Contains(f.Usage, "<") {
			return "a<b"
		}
		return "a=b"
	case "pattern=N,...":
		return "a=7"
	case "quantity":
		return "7Ki"
	case "[]v1.Taint":
		return "a=b:NoSchedule"
	case "reserved-memory":
		return "7:memory=1Gi"
	case "colonSeparatedMultimapStringString":
		return "a:b"
	case "version":
		return "raw"
	default:
		return "/x"
	}
}

// TestEveryFlagCounts: what is given comes out as a field of the file or as one of
// Values, and only there; if not, there is a reason to tell.
func TestEveryFlagCounts(t *testing.T) {
	fields, values := map[string]string{}, map[string]string{}
	empty := New("/var/lib/kubelet")
	for name, r := range empty.rows {
		text := sample(empty, empty.flags.Lookup(name))
		s := parse(t, "--"+name+"="+text)
		changed := changedValues(empty.Values(), s.Values())
		var c v1beta1.KubeletConfiguration
		from := s.Overlay(&c)
		switch {
		case r.field != "":
			if r.to != nil || r.why != "" || len(changed) > 0 {
				t.Errorf("--%s stands for %s: it is to be nothing else", name, r.field)
			}
			if other := fields[r.field]; other != "" {
				t.Errorf("--%s and --%s both stand for %s", name, other, r.field)
			}
			fields[r.field] = name
			checkField(t, r, &c, from)
		case len(changed) > 1 || len(from) > 0:
			t.Errorf("--%s changed %q of Values, and fields %v", name, changed, from)
		case len(changed) == 1:
			values[changed[0]] += name
			if values[changed[0]] != name {
				t.Errorf("--%s isn't the only one that changes %s", name, changed[0])
			}
		case r.why == "":
			t.Errorf("--%s changes nothing, and says nothing about it", name)
		}
		notices := s.NotActedOn()
		if want := r.why != ""; want != (len(notices) == 1) || want && notices[0] != (Notice{name, r.why}) {
			t.Errorf("--%s=%s: NotActedOn is %v, want it with %q", name, text, notices, r.why)
		}
		if r.why == "" {
			continue
		}
		if notices := parse(t, "--"+name+"="+empty.flags.Lookup(name).DefValue).NotActedOn(); len(notices) > 0 {
			t.Errorf("--%s with its default gives no notice, got %v", name, notices)
		}
	}
	for f := range reflect.TypeFor[Values]().Fields() {
		if values[f.Name] == "" {
			t.Errorf("no flag changes Values.%s", f.Name)
		}
	}
}

func changedValues(a, b Values) []string {
	var names []string
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		if !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			names = append(names, x.Type().Field(i).Name)
		}
	}
	return names
}

// checkField sees that only the row's field was written.
func checkField(t *testing.T, r *row, c *v1beta1.KubeletConfiguration, from map[string]string) {
	t.Helper()
	path := r.field
	if path == "featureGates" {
		path += "[A]"
	}
	if want := map[string]string{path: r.name}; !maps.Equal(from, want) {
		t.Errorf("--%s: Overlay returned %v, want %v", r.name, from, want)
	}
	field := r.of(c)
	if !field.IsValid() {
		t.Errorf("--%s: there is no field %s", r.name, r.field)
		return
	}
	if field.IsZero() {
		t.Errorf("--%s: %s wasn't written", r.name, r.field)
	}
	field.SetZero()
	if diff := cmp.Diff(v1beta1.KubeletConfiguration{}, *c); diff != "" {
		t.Errorf("--%s wrote more than %s:\n%s", r.name, r.field, diff)
	}
}

// TestNothingGiven: defaults of flags don't overwrite what the file says.
func TestNothingGiven(t *testing.T) {
	s := parse(t)
	var c v1beta1.KubeletConfiguration
	if from := s.Overlay(&c); len(from) > 0 || !reflect.DeepEqual(c, v1beta1.KubeletConfiguration{}) {
		t.Errorf("wrote %v", from)
	}
	if p := s.Check(); len(p) > 0 {
		t.Errorf("problems %v", p)
	}
	if notices := append(s.NotActedOn(), s.Deprecated()...); len(notices) > 0 {
		t.Errorf("notices %v", notices)
	}
}

func TestDefaultOfFlagGivenOverwritesFile(t *testing.T) {
	s := parse(t, "--max-pods=110", "--cgroups-per-qos", "--address=0.0.0.0")
	c := v1beta1.KubeletConfiguration{MaxPods: 5, Address: "192.0.2.1"}
	s.Overlay(&c)
	if c.MaxPods != 110 || c.CgroupsPerQOS == nil || !*c.CgroupsPerQOS || c.Address != "0.0.0.0" {
		t.Errorf("maxPods %d, cgroupsPerQOS %v, address %s", c.MaxPods, c.CgroupsPerQOS, c.Address)
	}
	for name, want := range map[string]bool{"max-pods": true, "max_pods": true, "port": false, "nothing": false} {
		if got := s.Given(name); got != want {
			t.Errorf("Given(%q) is %v", name, got)
		}
	}
}

func TestWordSeparators(t *testing.T) {
	v := parse(t, "--root_dir=/a", "--hostname_override", "b").Values()
	if v.RootDir != "/a" || v.HostnameOverride != "b" {
		t.Errorf("%q, %q", v.RootDir, v.HostnameOverride)
	}
}

// TestTaken: what texts mean, as seen with the kubelet 1.36.3.
func TestTaken(t *testing.T) {
	for _, test := range []struct{ flag, args, want string }{
		{"v", "-v4", "4"},
		{"v", "-v 4", "4"},
		{"eviction-hard", "--eviction-hard=a<1,b<2 --eviction-hard=b<3,c<d<e,", "a<1,b<3,c<d<e"},
		{"eviction-hard", "--eviction-hard=a<1,a<1,b<2 --eviction-hard=a<2", "a<2,b<2"},
		{"eviction-hard", "--eviction-hard=", ""},
		{"eviction-minimum-reclaim", "--eviction-minimum-reclaim=a=1,,c=d=e,", "a=1,c=d=e"},
		{"cpu-manager-policy-options", "--cpu-manager-policy-options=a=b,,c=d=e,", "a=b,,c=d=e,"},
		{"topology-manager-policy-options", "--topology-manager-policy-options=a=b,,c=d=e,", "a=b,c=d=e"},
		{"feature-gates", "--feature-gates=A=false,,B=t,A=1", "A=true,B=true"},
		{"register-with-taints", "--register-with-taints=a=b:NoSchedule --register-with-taints=c=:NoSchedule,d:NoExecute", "c=:NoSchedule,d=:NoExecute"},
		{"register-with-taints", "--register-with-taints=a=b:NoSchedule --register-with-taints=", ""},
		{"reserved-memory", "--reserved-memory=0:memory=1Gi;1:memory=2Gi,hugepages-1M=2Gi --reserved-memory=0:memory=2Gi --reserved-memory=", "0:memory=1Gi;1:hugepages-1M=2Gi,memory=2Gi;0:memory=2Gi"},
		{"allowed-unsafe-sysctls", "--allowed-unsafe-sysctls=a,b --allowed-unsafe-sysctls=c", "[a,b,c]"},
		{"enforce-node-allocatable", "--enforce-node-allocatable=kube-reserved", "[kube-reserved]"},
		{"enforce-node-allocatable", "--enforce-node-allocatable=", "[]"},
		{"vmodule", "--vmodule=a=1 --vmodule=b=2", "a=1,b=2"},
		{"manifest-url-header", "--manifest-url-header=a:b --manifest-url-header=a:c,d:e:f", "a:b,a:c,d:e:f"},
		{"node-labels", "--node-labels=a=b,c --node-labels=a=z", "a=z,c="},
		{"address", "--address=::1 --address=", "::1"},
		{"max-pods", "--max-pods=0x10", "16"},
		{"seccomp-default", "--seccomp-default", "true"},
		{"log-json-info-buffer-size", "--log-json-info-buffer-size=1Ki", "1Ki"},
		{"version", "--version", "true"},
		{"version", "--version=1", "true"},
		{"version", "--version --version=false", "false"},
		{"version", "--version=v1.36.3-foo --version", "true"},
		{"version", "--version --version=v1.36.3+x", "v1.36.3+x"},
	} {
		s := parse(t, strings.Fields(test.args)...)
		if got := s.flags.Lookup(test.flag).Value.String(); got != test.want {
			t.Errorf("%s: got %q, want %q", test.args, got, test.want)
		}
		if problems := s.Check(); len(problems) > 0 {
			t.Errorf("%s: %v", test.args, problems)
		}
	}
}

// TestRefused: an error names the flag.
func TestRefused(t *testing.T) {
	for _, arg := range []string{
		"--address=bogus", "--address= 192.0.2.1", "--max-pods=1.5", "--max-pods=abc", "--cgroups-per-qos=maybe", "--sync-frequency=1",
		"--eviction-hard=memory.available=1Gi", "--system-reserved=cpu", "--feature-gates=A", "--feature-gates=A=x",
		"--cpu-manager-policy-options=a", "--vmodule=x", "--vmodule=x=a", "--v=-1", "--log-json-info-buffer-size=x",
		"--reserved-memory=0", "--reserved-memory=x:memory=1", "--reserved-memory=0:cpu=1", "--reserved-memory=0:memory=x", "--reserved-memory=0:",
		"--reserved-memory=0:memory=1;", "--reserved-memory=0:memory=1e-999999999", "--log-text-info-buffer-size=1e-999999999", "--reserved-memory=0:memory=1,memory=2",
		"--version=foo", "--version=v1", "--version=v1.36.9", "--version=vfoo",
		"--config", "--cloud-config=x", "--pod-infra-container-image=x", "--logtostderr",
	} {
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		fs.SetOutput(new(bytes.Buffer))
		New("/var/lib/kubelet").AddTo(fs)
		name, _, _ := strings.Cut(arg, "=")
		if err := fs.Parse([]string{arg}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", arg, err)
		}
	}
}

// TestSignalTwice: of two values for a signal in one flag, none is chosen.
func TestSignalTwice(t *testing.T) {
	for arg, want := range map[string]string{
		"--eviction-hard=memory.available<1Gi,a<1, memory.available<2Gi": "memory.available is given twice, as 1Gi and as 2Gi",
		"--eviction-soft=a<1%,a<2%":                                      "a is given twice, as 1% and as 2%",
		"--eviction-soft-grace-period=a=1s,a=2s":                         "a is given twice, as 1s and as 2s",
		"--eviction-minimum-reclaim=a=1,a=2":                             "a is given twice, as 1 and as 2",
	} {
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		New("/var/lib/kubelet").AddTo(fs)
		if err := fs.Parse([]string{arg}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", arg, err, want)
		}
	}
}

func TestVersionReported(t *testing.T) {
	v := parse(t, "--version=v1.36.3-foo", "--version=raw").Values().Version
	if v.Print != "raw" || v.Reported != "v1.36.3-foo" {
		t.Errorf("print %q, reported %q", v.Print, v.Reported)
	}
}

// TestGroups: help shows each flag once.
func TestGroups(t *testing.T) {
	s := New("/var/lib/kubelet")
	in := map[string]string{}
	for _, g := range s.Groups() {
		g.Flags.VisitAll(func(f *pflag.Flag) {
			if other, twice := in[f.Name]; twice {
				t.Errorf("--%s is in %q and %q", f.Name, other, g.Title)
			}
			in[f.Name] = g.Title
			if f.Hidden || f.Deprecated != "" {
				t.Errorf("--%s would be hidden, or print by itself", f.Name)
			}
		})
	}
	s.flags.VisitAll(func(f *pflag.Flag) {
		if in[f.Name] == "" {
			t.Errorf("--%s is in no group", f.Name)
		}
	})
	if len(in) != len(slices.Collect(maps.Keys(s.rows))) {
		t.Errorf("%d flags in groups, %d in tables", len(in), len(s.rows))
	}
}
