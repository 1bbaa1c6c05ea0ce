package e2e

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// badConfig is a file that can't be used, and what is reported it behind the file's name.
type badConfig struct{ text, reported string }

// badConfigs are such files. What is wrong with some is a secret.
func (v *shown) badConfigs() []badConfig {
	list := []badConfig{{"kind: KubeletConfiguration\n", ": apiVersion: "}, {"", ": it is empty"}}
	for _, line := range [][2]string{
		{"staticPodURLHeader: {X-Token: hush-1}", "staticPodURLHeader[X-Token]: "},
		{"staticPodURLHeader: [hush-2]", "staticPodURLHeader: "},
		{"staticPodURL: ftp://captain:hush-3@host/", "staticPodURL: "},
		{"staticPodURL: ['http://captain:hush-4@host/']", "staticPodURL: "},
		{"staticPodUrl: http://captain:hush-5@host/", "staticPodUrl: there is no such field; did you mean staticPodURL?"},
		{`staticPodURLHeader: {X-Token: ["hush-6\n"]}`, "staticPodURLHeader[X-Token]: "},
		{"staticPodURL: http://captain:%hush-7@host/", "staticPodURL: "},
		{"staticPodURLHeader: {X-Token: ['hush-8]}", ""},
		{"staticPodURLHeader: {X-Token: [*hush-9]}", ""},
		{"staticPodURLHeader: {X-Token: [@hush-10]}", ""},
		{`staticPodURLHeader: {X-Token: ["hush-11"-12]}`, ""},
		{"staticPodURLHeader: {X-Token: [hush-13], X-Token: [hush-14]}", "staticPodURLHeader[X-Token]: it is given twice"},
		{"imageGCHighThresholdPercent: 101", "imageGCHighThresholdPercent: "},
	} {
		text := v.ConfigText(line[0])
		list = append(list, badConfig{text, fmt.Sprintf(":%d: %s", lineOf(text, line[0]), line[1])})
	}
	return list
}

// lineOf is where in a text a line begins so.
func lineOf(text, begins string) int {
	return 1 + slices.IndexFunc(strings.Split(text, "\n"), func(line string) bool { return strings.HasPrefix(line, begins) })
}

// hup has the agent read its configuration, with this result, and returns what it logged of that.
func (v *shown) hup(t *testing.T, result string) string {
	t.Helper()
	mark := len(v.Logged())
	reload(t, v.Node, result, func() { v.Signal(syscall.SIGHUP) })
	return strings.ReplaceAll(v.Logged()[mark:], `\"`, `"`)
}

// badFiles has the agent read files that it can't use.
func (v *shown) badFiles(t *testing.T) {
	t.Helper()
	for _, bad := range v.badConfigs() {
		put(t, v.ConfigFile(), bad.text)
		if reported := v.hup(t, "invalid"); !strings.Contains(reported, v.ConfigFile()+bad.reported) {
			t.Errorf("%q isn't reported\n%s\nbut:\n%s", bad.reported, bad.text, reported)
		}
	}
	put(t, v.ConfigFile(), v.ConfigText("imageGCHighThresholdPercent: 50"))
	if reported := v.hup(t, "invalid"); !strings.Contains(reported, "--image-gc-low-threshold: ") {
		t.Errorf("it isn't reported that a flag and the file don't go together, but %s", reported)
	}
	v.AwaitNodeEvent("ConfigurationNotReloaded", "the previous one stays in force", v.ConfigFile()+":")
	v.configure(t, v.file, "unchanged")
	for _, path := range []string{v.ConfigFile(), v.dir} {
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		if reported := v.hup(t, "invalid"); !strings.Contains(reported, path) || !strings.Contains(reported, "no such file or directory") {
			t.Errorf("it isn't reported that %s is gone: %s", path, reported)
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
	}
	v.hup(t, "unchanged")
}

// needsRestart changes what can't be changed live, secrets among it, and takes that back.
func (v *shown) needsRestart(t *testing.T) {
	t.Helper()
	other := maps.Clone(v.file)
	for _, name := range []string{"staticPodURL", "staticPodURLHeader"} {
		other[name] = strings.ReplaceAll(other[name], hush, hush+"-other")
	}
	maps.Copy(other, settings{"podPidsLimit": "99", "imageGCHighThresholdPercent": "95"})
	put(t, v.ConfigFile(), v.ConfigText(other.String()))
	if reported := v.hup(t, "refused"); !strings.Contains(reported, "podPidsLimit, staticPodURL, staticPodURLHeader[X-Token] ") {
		t.Errorf("the fields that need a restart aren't reported: %s", reported)
	}
	high := func(want string) {
		t.Helper()
		if got := configured(t, v.Node, "imageGCHighThresholdPercent", "podPidsLimit"); got["imageGCHighThresholdPercent"] != want || got["podPidsLimit"] != "-1" {
			t.Errorf("in force is %v, want imageGCHighThresholdPercent %s", got, want)
		}
	}
	high("90")
	other = maps.Clone(v.file)
	other["imageGCHighThresholdPercent"] = "95"
	v.configure(t, other, "applied")
	high("95")
	v.AwaitNodeEvent("ConfigurationReloaded", "imageGCHighThresholdPercent")
}

// burst changes the file and asks for reloads as quickly as it can.
func (v *shown) burst(t *testing.T) {
	t.Helper()
	had, err := reloads(v.Node)
	if err != nil {
		t.Fatal(err)
	}
	const times = 50
	for i := range times {
		v.file["imageGCHighThresholdPercent"] = strconv.Itoa(81 + i%10)
		v.file["registryBurst"] = strconv.Itoa(100 + i)
		put(t, v.ConfigFile(), v.ConfigText(v.file.String()))
		v.Signal(syscall.SIGHUP)
	}
	v.Eventually("what was written last is in force", func() error {
		if got := configured(t, v.Node, "registryBurst", "imageGCHighThresholdPercent"); got["registryBurst"] != "149" || got["imageGCHighThresholdPercent"] != "90" {
			return fmt.Errorf("in force is %v", got)
		}
		return nil
	})
	now, err := reloads(v.Node)
	if err != nil || now["refused"] != had["refused"] || now["invalid"] != had["invalid"] || now["success"] != 1 {
		t.Errorf("not all reloads went well: %v; before: %v (%v)", now, had, err)
	}
	v.Eventually("it is healthy", answers(v.HealthURL("healthz"), "ok"))
}

// costs are how many goroutines and open files the agent has.
func (v *shown) costs(t *testing.T) map[string]int {
	t.Helper()
	body, _, err := get(v.ReadOnlyURL("metrics"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^(go_goroutines|process_open_fds) (\d+)$`).FindAllStringSubmatch(body, -1) {
		out[m[1]], _ = strconv.Atoi(m[2]) // the expression lets nothing else through
	}
	if len(out) != 2 {
		t.Fatalf("there is no telling from %s", body)
	}
	return out
}
