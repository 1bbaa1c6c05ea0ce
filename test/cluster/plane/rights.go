package plane

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	neturl "net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// Call is one request, as the audit log has it.
type Call struct {
	// Node is the node that made it; empty if a controller or the scheduler did.
	Node string
	// Verb is the API's: get, list, watch, create, update, patch, delete, deletecollection.
	Verb string
	// Resource is like "pods", "pods/status" or "leases.coordination.k8s.io".
	Resource        string
	Namespace, Name string
	// Selector is the request's field selector.
	Selector string
	// Certificate is the hash of the client certificate that it came with, as X509SHA256=HEX.
	Certificate string
	Code        int
	// Body is that of a patch of a node's status.
	Body json.RawMessage
	// At is when it came, Answered when that was done.
	At, Answered time.Time
}

// String is the call without whose it is.
func (c Call) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Verb, c.Resource, cmp.Or(c.Name, c.Selector)))
}

// auditEvent is what is needed of an event of audit.k8s.io/v1.
type auditEvent struct {
	Verb       string
	RequestURI string
	User       struct {
		Username string
		Extra    map[string][]string
	}
	ObjectRef struct{ APIGroup, Resource, Subresource, Namespace, Name string }

	ResponseStatus struct{ Code int }
	RequestObject  json.RawMessage

	RequestReceivedTimestamp, StageTimestamp time.Time
}

// Calls returns what the nodes have asked of the API server so far, in the order of the answers. Requests for no
// resource, such as those for versions, are left out.
func (p *Plane) Calls() []Call {
	p.t.Helper()
	return slices.DeleteFunc(p.Audited(), func(c Call) bool { return c.Node == "" })
}

// Audited returns the nodes' calls, and those of others that auditPolicy names.
func (p *Plane) Audited() []Call {
	p.t.Helper()
	f, err := os.Open(p.path("audit.log"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	var calls []Call
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			p.t.Fatalf("audit log: %v", err)
		}
		node, isNode := strings.CutPrefix(e.User.Username, "system:node:")
		if !isNode {
			node = ""
		}
		uri, err := neturl.Parse(e.RequestURI)
		if e.ObjectRef.Resource == "" || err != nil {
			continue
		}
		c := Call{Node: node, Verb: e.Verb, Resource: e.ObjectRef.Resource, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
			Selector: uri.Query().Get("fieldSelector"), Certificate: strings.Join(e.User.Extra["authentication.kubernetes.io/credential-id"], " "),
			Code: e.ResponseStatus.Code, Body: e.RequestObject, At: e.RequestReceivedTimestamp, Answered: e.StageTimestamp}
		if e.ObjectRef.APIGroup != "" {
			c.Resource += "." + e.ObjectRef.APIGroup
		}
		if e.ObjectRef.Subresource != "" {
			c.Resource += "/" + e.ObjectRef.Subresource
		}
		calls = append(calls, c)
	}
	if err := lines.Err(); err != nil {
		p.t.Fatal(err)
	}
	return calls
}

// right is what a node may do with a resource.
type right struct {
	verbs string
	// mine says whether a call is about what belongs to the node; nil if that doesn't matter.
	mine func(Call) bool
}

func onlyNamed(c Call) bool { return c.Name != "" || strings.HasPrefix(c.Selector, "metadata.name=") }

func ofItsNode(c Call) bool {
	return c.Name == c.Node || c.Verb == "create" && c.Name == "" || c.Selector == "metadata.name="+c.Node
}

// rights are what the Node authorizer and NodeRestriction of Kubernetes 1.36 leave to a node
// (https://kubernetes.io/docs/reference/access-authn-authz/node/).
func rights() map[string]right {
	podsOfItsNode := func(c Call) bool {
		return c.Verb != "list" && c.Verb != "watch" || c.Selector == "spec.nodeName="+c.Node
	}
	itsLease := func(c Call) bool { return c.Namespace == "kube-node-lease" && ofItsNode(c) }
	oneRequest := func(c Call) bool { return c.Verb == "create" || onlyNamed(c) }
	itsSlices := func(c Call) bool { return c.Selector == "spec.nodeName="+c.Node }
	return map[string]right{
		"pods":                             {"get list watch create delete", podsOfItsNode},
		"pods/status":                      {"update patch", nil},
		"nodes":                            {"create get list watch update patch", ofItsNode},
		"nodes/status":                     {"update patch", ofItsNode},
		"secrets":                          {"get list watch", onlyNamed},
		"configmaps":                       {"get list watch", onlyNamed},
		"persistentvolumeclaims":           {"get", nil},
		"persistentvolumeclaims/status":    {"get update patch", nil},
		"persistentvolumes":                {"get", nil},
		"services":                         {"get list watch", nil},
		"serviceaccounts":                  {"get", nil},
		"serviceaccounts/token":            {"create", nil},
		"events":                           {"create update patch", nil},
		"events.events.k8s.io":             {"create update patch", nil},
		"leases.coordination.k8s.io":       {"get create update patch delete", itsLease},
		"runtimeclasses.node.k8s.io":       {"get list watch", nil},
		"csidrivers.storage.k8s.io":        {"get list watch", nil},
		"csinodes.storage.k8s.io":          {"get create update patch delete", ofItsNode},
		"volumeattachments.storage.k8s.io": {"get", nil},
		"resourceclaims.resource.k8s.io":   {"get", nil},
		"resourceslices.resource.k8s.io":   {"list watch deletecollection", itsSlices},
		"certificatesigningrequests.certificates.k8s.io": {"create get list watch", oneRequest},
		"clustertrustbundles.certificates.k8s.io":        {"get list watch", nil},
		"podcertificaterequests.certificates.k8s.io":     {"create get list watch", nil},
		"tokenreviews.authentication.k8s.io":             {"create", nil},
		"subjectaccessreviews.authorization.k8s.io":      {"create", nil},
	}
}

// lags are resources of which a call may be forbidden and allowed another time. The authorizer learns a moment after the
// node that a pod refers to an object. A mirror pod is forbidden after its Node was removed, until the node learns that.
var lags = []string{"pods", "secrets", "configmaps", "persistentvolumeclaims", "serviceaccounts",
	"serviceaccounts/token", "volumeattachments.storage.k8s.io"}

// Wrong returns the calls that no node may make, and those that the API server forbade, except calls that it allowed
// another time (lags).
func Wrong(calls []Call) []string {
	var wrong []string
	all, allowed := rights(), map[string]bool{}
	for _, c := range calls {
		if c.Code < http.StatusBadRequest && slices.Contains(lags, c.Resource) {
			allowed[c.Namespace+" "+c.String()] = true
		}
	}
	for _, c := range calls {
		r, known := all[c.Resource]
		switch {
		case !known || !slices.Contains(strings.Fields(r.verbs), c.Verb) || r.mine != nil && !r.mine(c):
			wrong = append(wrong, c.String()+": a node may not")
		case c.Code == http.StatusForbidden && !allowed[c.Namespace+" "+c.String()]:
			wrong = append(wrong, c.String()+": forbidden")
		}
	}
	return wrong
}
