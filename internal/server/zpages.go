package server

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"runtime"
	"strings"
	"time"
)

// group is the API group of the JSON answers.
const group = "config.k8s.io"

// notice is the head of the text pages.
const notice = "This page is for people who look for a fault: its format may change with any version.\n"

// AgentStatus is the content of /statusz.
type AgentStatus struct {
	// Name is the component's name: "kubelet".
	Name    string
	Started time.Time
	// Binary is the Kubernetes version that the agent implements: "1.36.3". Build is deckhand's own version.
	Binary, Build string
	// Paths are the paths of this server, except /statusz, sorted.
	Paths []string
}

// Flag is a flag of the command line with its effective value, which must not be secret.
type Flag struct{ Name, Value string }

type typeMeta struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

func newTypeMeta(kind, version, name string) typeMeta {
	t := typeMeta{Kind: kind, APIVersion: group + "/" + version}
	t.Metadata.Name = name
	return t
}

// Statusz serves /statusz as text, or as JSON if the client accepts the documented type
// (application/json;v=v1beta1;g=config.k8s.io;as=Statusz). now is time.Now.
func Statusz(status func() AgentStatus, now func() time.Time) http.Handler {
	return page("Statusz", func() string {
		s := status()
		up := now().Sub(s.Started).Round(time.Second)
		return fmt.Sprintf("\n%s statusz\n%s\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary "+
			"version: %s\nEmulation version: %s\nDeckhand version: %s\nPaths: %s\n",
			s.Name, notice, s.Started.UTC().Format(time.UnixDate), int(up.Hours()), int(up.Minutes())%60,
			int(up.Seconds())%60,
			runtime.Version(), s.Binary, minor(s.Binary), s.Build, strings.Join(s.Paths, " "))
	}, func(version string) any {
		s := status()
		return struct {
			typeMeta
			StartTime        time.Time `json:"startTime"`
			UptimeSeconds    int64     `json:"uptimeSeconds"`
			GoVersion        string    `json:"goVersion"`
			BinaryVersion    string    `json:"binaryVersion"`
			EmulationVersion string    `json:"emulationVersion"`
			Paths            []string  `json:"paths"`
		}{newTypeMeta("Statusz", version, s.Name), s.Started.UTC().Truncate(time.Second),
			int64(now().Sub(s.Started).Seconds()), runtime.Version(), s.Binary, minor(s.Binary), s.Paths}
	})
}

// minor returns a version without its patch number.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// Flagz serves /flagz as name=value lines, or as JSON like Statusz.
func Flagz(name string, flags []Flag) http.Handler {
	return page("Flagz", func() string {
		var text strings.Builder
		fmt.Fprintf(&text, "\n%s flagz\n%s\n", name, notice)
		for _, f := range flags {
			// A line break in a value could forge other flags.
			fmt.Fprintf(&text, "%s=%s\n", f.Name, strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(f.Value))
		}
		return text.String()
	}, func(version string) any {
		values := make(map[string]string, len(flags))
		for _, f := range flags {
			values[f.Name] = f.Value
		}
		return struct {
			typeMeta
			Flags map[string]string `json:"flags"`
		}{newTypeMeta("Flagz", version, name), values}
	})
}

// Configz serves /configz: the effective configuration below "kubeletconfig", as the kubelet does. current returns
// the configuration to encode as JSON, without secrets.
func Configz(current func() any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"kubeletconfig": current()})
	})
}

func page(kind string, text func() string, structured func(version string) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version, plain := wanted(r.Header.Values("Accept"), kind)
		switch {
		case version != "":
			answer(w, structured(version))
		case plain:
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			_, _ = w.Write([]byte(text())) // an error means that the client is gone
		default:
			http.Error(w, fmt.Sprintf("this page is served as text/plain, or as application/json;v=v1beta1;g=%s;as=%s",
				group, kind), http.StatusNotAcceptable)
		}
	})
}

// wanted parses the Accept headers. It returns the API version of the JSON that the client accepts, or plain if the
// client accepts text.
func wanted(accept []string, kind string) (version string, plain bool) {
	if len(accept) == 0 {
		return "", true
	}
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		kindOf, params, err := mime.ParseMediaType(part)
		switch {
		case err != nil:
		case kindOf == "text/plain" || kindOf == "text/*" || kindOf == "*/*":
			return "", true
		case kindOf == "application/json" && params["g"] == group && params["as"] == kind &&
			(params["v"] == "v1alpha1" || params["v"] == "v1beta1"):
			return params["v"], false
		}
	}
	return "", false
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // an error means that the client is gone
}
