package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// DescribePod writes the details of a pod with its events, but without values of Secrets, in kubectl's layout and
// with its names.
func DescribePod(w io.Writer, e *local.Explanation, now time.Time) error {
	p, s := e.Pod, &e.Pod.Status
	d := &outline{}
	d.row("Name", p.Name)
	d.row("Namespace", p.Namespace)
	d.row("UID", string(p.UID))
	d.row("Priority", fmt.Sprint(ptr.Deref(p.Spec.Priority, 0)))
	d.optional("Priority Class Name", p.Spec.PriorityClassName)
	d.optional("Runtime Class Name", ptr.Deref(p.Spec.RuntimeClassName, ""))
	d.optional("Service Account", p.Spec.ServiceAccountName)
	d.row("Node", strings.TrimSuffix(p.Spec.NodeName+"/"+s.HostIP, "/"))
	d.row("Start Time", clock(s.StartTime))
	d.row("Labels", pairLines(p.Labels, "=")...)
	annotations := maps.Clone(p.Annotations)
	delete(annotations, v1.LastAppliedConfigAnnotation) // the whole manifest; kubectl omits it, too
	d.row("Annotations", pairLines(annotations, ": ")...)
	if p.DeletionTimestamp != nil {
		d.row("Status", fmt.Sprintf("Terminating (since %s)", clock(p.DeletionTimestamp)))
	} else {
		d.row("Status", string(s.Phase))
	}
	d.optional("Reason", s.Reason)
	d.optional("Message", s.Message)
	d.optional("Seccomp Profile", seccomp(p.Spec.SecurityContext))
	d.row("IP", s.PodIP)
	if len(s.PodIPs) > 1 {
		d.row("IPs", texts(s.PodIPs, func(ip v1.PodIP) string { return ip.IP })...)
	}
	if c := metav1.GetControllerOf(p); c != nil {
		d.row("Controlled By", c.Kind+"/"+c.Name)
	}
	d.row("Origin", cmp.Or(e.Origin, string(e.Source)))
	d.optional("Older Version", e.Stale)
	for i := range e.Waits {
		d.row("Waits For", e.Waits[i].Named())
		if len(e.Waits[i].Because) > 0 {
			d.row("Because", e.Waits[i].Because...)
		}
	}
	d.containers("Init Containers", p, p.Spec.InitContainers)
	d.containers("Containers", p, p.Spec.Containers)
	var debug []v1.Container
	for i := range p.Spec.EphemeralContainers {
		debug = append(debug, v1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	d.containers("Ephemeral Containers", p, debug)
	if len(s.Conditions) > 0 {
		rows := [][]string{{"  Type", "Status", "Reason", "Message"}}
		for _, c := range s.Conditions {
			rows = append(rows, []string{"  " + string(c.Type), string(c.Status), c.Reason, c.Message})
		}
		d.table("Conditions", rows)
	}
	d.volumes(p.Spec.Volumes)
	d.row("QoS Class", string(s.QOSClass))
	d.row("Node-Selectors", pairLines(p.Spec.NodeSelector, "=")...)
	d.row("Tolerations", texts(p.Spec.Tolerations, toleration)...)
	d.events(e.Events, now)
	return d.writeTo(w)
}

// DescribeNode writes the output of Node, and the node's events.
func DescribeNode(w io.Writer, n local.Node, events []local.Event, now time.Time, width int) error {
	if err := Node(w, n, nil, true, width, now); err != nil {
		return err
	}
	d := &outline{}
	d.events(slices.DeleteFunc(slices.Clone(events), func(e local.Event) bool { return e.Object != "node/"+n.Name }),
		now)
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	return d.writeTo(w)
}

// outline is text in indented rows of a name and its values. Values of adjacent rows with the same depth are aligned.
type outline struct {
	text  strings.Builder
	depth int
	// rows are the last rows; their values aren't aligned yet.
	rows []outlineRow
}

type outlineRow struct {
	name   string
	values []string
}

// row adds a name with its values, one per line; "<none>" if there are none.
func (d *outline) row(name string, values ...string) {
	if len(values) == 0 || len(values) == 1 && values[0] == "" {
		values = []string{"<none>"}
	}
	d.rows = append(d.rows, outlineRow{terminal.Keep(name) + ":", values})
}

// optional adds a row if there is a value.
func (d *outline) optional(name, value string) {
	if value != "" {
		d.row(name, value)
	}
}

// list adds a name with texts below it, if there are any. A text may have several lines.
func (d *outline) list(name string, list []string) {
	if len(list) == 0 {
		return
	}
	d.section(name, func() {
		for _, text := range list {
			for line := range strings.Lines(text) {
				d.line(strings.TrimRight(line, "\r\n"))
			}
		}
	})
}

// section adds a name. The rows that content adds are indented below it.
func (d *outline) section(name string, content func()) {
	d.flush()
	d.line(name + ":")
	d.depth++
	content()
	d.flush()
	d.depth--
}

func (d *outline) line(text string) {
	d.text.WriteString(strings.TrimRight(strings.Repeat("  ", d.depth)+terminal.Keep(text), " ") + "\n")
}

func (d *outline) flush() {
	width := 0
	for _, r := range d.rows {
		width = max(width, utf8.RuneCountInString(r.name))
	}
	for _, r := range d.rows {
		name := r.name
		for _, value := range r.values {
			for line := range strings.Lines(cmp.Or(value, "\n")) {
				d.line(name + strings.Repeat(" ", width-utf8.RuneCountInString(name)+2) +
					strings.TrimRight(line, "\r\n"))
				name = ""
			}
		}
	}
	d.rows = nil
}

func (d *outline) table(name string, rows [][]string) {
	d.flush()
	d.line(name + ":")
	for _, line := range new(Table).Lines(rows...) {
		d.text.WriteString(line + "\n")
	}
}

func (d *outline) writeTo(w io.Writer) error {
	d.flush()
	_, err := io.WriteString(w, d.text.String())
	return err
}

func (d *outline) containers(name string, p *v1.Pod, list []v1.Container) {
	if len(list) == 0 {
		return
	}
	d.section(name, func() {
		for i := range list {
			d.section(list[i].Name, func() { d.container(p, &list[i]) })
		}
	})
}

func (d *outline) container(p *v1.Pod, c *v1.Container) {
	s := cmp.Or(pod.StatusNamed(&p.Status, c.Name), &v1.ContainerStatus{})
	d.row("Container ID", s.ContainerID)
	d.row("Image", c.Image)
	d.row("Image ID", s.ImageID)
	var ports, hostPorts []string
	for _, port := range c.Ports {
		protocol := cmp.Or(port.Protocol, v1.ProtocolTCP)
		text := fmt.Sprintf("%d/%s", port.ContainerPort, protocol)
		if port.Name != "" {
			text += " (" + port.Name + ")"
		}
		ports = append(ports, text)
		if port.HostPort != 0 {
			hostPorts = append(hostPorts,
				strings.TrimPrefix(fmt.Sprintf("%s:%d/%s", port.HostIP, port.HostPort, protocol), ":"))
		}
	}
	d.row("Ports", strings.Join(ports, ", "))
	d.row("Host Ports", strings.Join(hostPorts, ", "))
	d.optional("Seccomp Profile", containerSeccomp(c.SecurityContext))
	d.list("Command", c.Command)
	d.list("Args", c.Args)
	d.state("State", s.State)
	if s.LastTerminationState != (v1.ContainerState{}) {
		d.state("Last State", s.LastTerminationState)
	}
	d.row("Ready", title(s.Ready))
	d.row("Restart Count", fmt.Sprint(s.RestartCount))
	if c.RestartPolicy != nil {
		d.row("Restart Policy", string(*c.RestartPolicy))
	}
	d.resources("Limits", c.Resources.Limits)
	d.resources("Requests", c.Resources.Requests)
	for _, probe := range []struct {
		name  string
		probe *v1.Probe
	}{{"Liveness", c.LivenessProbe}, {"Readiness", c.ReadinessProbe}, {"Startup", c.StartupProbe}} {
		if probe.probe != nil {
			d.row(probe.name, probeText(probe.probe))
		}
	}
	if len(c.EnvFrom) > 0 {
		d.row("Environment From", texts(c.EnvFrom, envFrom)...)
	}
	if len(c.Env) > 0 {
		d.section("Environment", func() {
			for i := range c.Env {
				d.row(c.Env[i].Name, envValue(&c.Env[i]))
			}
		})
	}
	d.list("Mounts", texts(c.VolumeMounts, mount))
	d.list("Devices", texts(c.VolumeDevices, func(v v1.VolumeDevice) string {
		return v.DevicePath + " from " + v.Name
	}))
}

func (d *outline) resources(name string, list v1.ResourceList) {
	if len(list) == 0 {
		return
	}
	d.section(name, func() {
		for _, r := range slices.Sorted(maps.Keys(list)) {
			d.row(string(r), amount(list, r))
		}
	})
}

func (d *outline) state(name string, s v1.ContainerState) {
	switch {
	case s.Running != nil:
		d.row(name, "Running")
		d.row("  Started", clock(&s.Running.StartedAt))
	case s.Terminated != nil:
		t := s.Terminated
		d.row(name, string(pod.ReasonTerminated))
		d.optional("  Reason", t.Reason)
		d.optional("  Message", t.Message)
		d.row("  Exit Code", fmt.Sprint(t.ExitCode))
		if t.Signal != 0 {
			d.row("  Signal", fmt.Sprint(t.Signal))
		}
		d.row("  Started", clock(&t.StartedAt))
		d.row("  Finished", clock(&t.FinishedAt))
	case s.Waiting != nil:
		d.row(name, "Waiting")
		d.optional("  Reason", s.Waiting.Reason)
		d.optional("  Message", s.Waiting.Message)
	default:
		d.row(name, "Waiting")
	}
}

func (d *outline) events(list []local.Event, now time.Time) {
	if len(list) == 0 {
		d.row("Events")
		return
	}
	rows := [][]string{{"  Type", "Reason", "Age", "From", "Message"}}
	for _, e := range list {
		age := podstatus.Since(e.Time, now)
		if e.Count > 1 {
			age += fmt.Sprintf(" (x%d over %s)", e.Count, podstatus.Since(e.First, now))
		}
		rows = append(rows, []string{"  " + string(e.Type), e.Reason, age, e.Component, e.Message})
	}
	d.table("Events", rows)
}

func (d *outline) volumes(list []v1.Volume) {
	if len(list) == 0 {
		d.row("Volumes")
		return
	}
	d.section("Volumes", func() {
		for i := range list {
			d.section(list[i].Name, func() { d.volume(&list[i]) })
		}
	})
}

// volume adds the type of a volume and the scalar fields of its source. It omits nested fields, which may have
// secrets of drivers.
func (d *outline) volume(v *v1.Volume) {
	for _, s := range sourcesOf(v) {
		d.row("Type", s.kind)
		for _, field := range s.fields {
			d.row(field[0], field[1])
		}
	}
}

type volumeSource struct {
	kind   string
	fields [][2]string
}

// sourcesOf returns the sources of a volume, with their names and fields as in the API. Only a projected volume has
// several sources.
func sourcesOf(v *v1.Volume) []volumeSource {
	source := func(of any) []volumeSource {
		text, err := json.Marshal(of)
		var kinds map[string]map[string]any
		if err != nil || json.Unmarshal(text, &kinds) != nil {
			return nil
		}
		var list []volumeSource
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			s := volumeSource{kind: kind}
			for _, name := range slices.Sorted(maps.Keys(kinds[kind])) {
				switch value := kinds[kind][name].(type) {
				case string, bool:
					s.fields = append(s.fields, [2]string{name, fmt.Sprint(value)})
				case float64:
					text := fmt.Sprintf("%.0f", value)
					if name == "defaultMode" || name == "mode" {
						text = fmt.Sprintf("%04o", int(value))
					}
					s.fields = append(s.fields, [2]string{name, text})
				}
			}
			list = append(list, s)
		}
		return list
	}
	list := source(v.VolumeSource)
	if v.Projected != nil {
		for i := range v.Projected.Sources {
			list = append(list, source(v.Projected.Sources[i])...)
		}
	}
	return list
}

func mount(m v1.VolumeMount) string {
	how := "rw"
	if m.ReadOnly {
		how = "ro"
	}
	if path := cmp.Or(m.SubPath, m.SubPathExpr); path != "" {
		how += fmt.Sprintf(",path=%q", path)
	}
	return fmt.Sprintf("%s from %s (%s)", m.MountPath, m.Name, how)
}

// envValue returns a variable's value, or a reference to its source.
func envValue(e *v1.EnvVar) string {
	from := e.ValueFrom
	switch {
	case from == nil:
		return cmp.Or(e.Value, "\n")
	case from.FieldRef != nil:
		return fmt.Sprintf("(%s:%s)", cmp.Or(from.FieldRef.APIVersion, "v1"), from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		return fmt.Sprintf("(%s)",
			strings.TrimSpace(from.ResourceFieldRef.ContainerName+" "+from.ResourceFieldRef.Resource))
	case from.SecretKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' in secret '%s'>%s", from.SecretKeyRef.Key, from.SecretKeyRef.Name,
			optional(from.SecretKeyRef.Optional))
	case from.ConfigMapKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' of config map '%s'>%s", from.ConfigMapKeyRef.Key,
			from.ConfigMapKeyRef.Name, optional(from.ConfigMapKeyRef.Optional))
	case from.FileKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' in the file '%s' of volume '%s'>%s", from.FileKeyRef.Key,
			from.FileKeyRef.Path, from.FileKeyRef.VolumeName, optional(from.FileKeyRef.Optional))
	}
	return "<set by another source>"
}

func envFrom(e v1.EnvFromSource) string {
	text := ""
	switch {
	case e.ConfigMapRef != nil:
		text = "ConfigMap " + e.ConfigMapRef.Name + optional(e.ConfigMapRef.Optional)
	case e.SecretRef != nil:
		text = "Secret " + e.SecretRef.Name + optional(e.SecretRef.Optional)
	}
	if e.Prefix != "" {
		text += fmt.Sprintf(" with prefix '%s'", e.Prefix)
	}
	return text
}

func optional(o *bool) string {
	if o != nil && *o {
		return " (optional)"
	}
	return ""
}

// probeText describes a probe as kubectl does.
func probeText(p *v1.Probe) string {
	how := ""
	switch h := p.ProbeHandler; {
	case h.Exec != nil:
		how = fmt.Sprintf("exec %s", h.Exec.Command)
	case h.HTTPGet != nil:
		how = fmt.Sprintf("http-get %s://%s:%s%s", strings.ToLower(string(cmp.Or(h.HTTPGet.Scheme, v1.URISchemeHTTP))),
			h.HTTPGet.Host, h.HTTPGet.Port.String(), h.HTTPGet.Path)
	case h.TCPSocket != nil:
		how = fmt.Sprintf("tcp-socket %s:%s", h.TCPSocket.Host, h.TCPSocket.Port.String())
	case h.GRPC != nil:
		how = strings.TrimSpace(fmt.Sprintf("grpc :%d %s", h.GRPC.Port, ptr.Deref(h.GRPC.Service, "")))
	}
	return fmt.Sprintf("%s delay=%ds timeout=%ds period=%ds #success=%d #failure=%d", how, p.InitialDelaySeconds,
		p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold)
}

func toleration(t v1.Toleration) string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	if t.Effect != "" {
		text += ":" + string(t.Effect)
	}
	if t.Operator == v1.TolerationOpExists {
		text += " op=Exists"
	}
	if t.TolerationSeconds != nil {
		text += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
	}
	return strings.TrimSpace(text)
}

func seccomp(c *v1.PodSecurityContext) string {
	if c == nil || c.SeccompProfile == nil {
		return ""
	}
	return strings.TrimSpace(string(c.SeccompProfile.Type) + " " + ptr.Deref(c.SeccompProfile.LocalhostProfile, ""))
}

func containerSeccomp(c *v1.SecurityContext) string {
	if c == nil {
		return ""
	}
	return seccomp(&v1.PodSecurityContext{SeccompProfile: c.SeccompProfile})
}

func pairLines(m map[string]string, between string) []string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+between+terminal.Line(m[key]))
	}
	return lines
}

func texts[T any](list []T, text func(T) string) []string {
	var out []string
	for _, item := range list {
		out = append(out, text(item))
	}
	return out
}

func clock(t *metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC1123Z)
}

func title(b bool) string {
	if b {
		return "True"
	}
	return "False"
}
