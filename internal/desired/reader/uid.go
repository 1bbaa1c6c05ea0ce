package reader

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// UID is the UID that a kubelet 1.36 would give to the pod that document d of origin defines. It is the FNV-128a sum of
// the pod in the manifest, with defaults, and of its origin. So a node that changes from the kubelet to deckhand, or
// back, keeps its pods. Other releases of the kubelet may have other fields, and therefore other UIDs.
//
// Pods of sources that the kubelet doesn't have get the content hash.
func (r *Reader) UID(d Doc, origin string) string {
	var from string
	switch r.source {
	case pod.SourceFile:
		from = "host:" + strings.ToLower(r.node) + "file:" + origin
	case pod.SourceHTTP:
		from = "url:" + origin
	default:
		return d.Hash
	}
	p := &v1.Pod{ObjectMeta: d.meta, Spec: d.defaulted().Spec, Status: d.status}
	p.Spec.Priority = d.Written.Spec.Priority // the kubelet doesn't set the default of a PriorityClass
	_ = time.Local.String()                   // loads the time zone, which is part of the dump of a creationTimestamp
	sum := fnv.New128a()
	dump{w: sum, spec: reflect.ValueOf(&p.Spec).Elem()}.typed(reflect.ValueOf(p))
	_, _ = io.WriteString(sum, from) // it can't fail
	return hex.EncodeToString(sum.Sum(nil))
}

// internalFields lists the fields of types that differ in Kubernetes' internal API, which the kubelet hashes. The
// internal API has the same fields, but some belong to another type.
var internalFields = map[reflect.Type][]string{
	reflect.TypeFor[v1.PodSpec](): {
		"Volumes", "InitContainers", "Containers", "EphemeralContainers", "RestartPolicy",
		"TerminationGracePeriodSeconds",
		"ActiveDeadlineSeconds", "DNSPolicy", "NodeSelector", "ServiceAccountName", "AutomountServiceAccountToken",
		"NodeName",
		"SecurityContext", "ImagePullSecrets", "Hostname", "Subdomain", "SetHostnameAsFQDN", "Affinity",
		"SchedulerName",
		"Tolerations", "HostAliases", "PriorityClassName", "Priority", "PreemptionPolicy", "DNSConfig",
		"ReadinessGates",
		"RuntimeClassName", "Overhead", "EnableServiceLinks", "TopologySpreadConstraints", "OS", "SchedulingGates",
		"ResourceClaims", "Resources", "HostnameOverride", "SchedulingGroup",
	},
	reflect.TypeFor[v1.PodSecurityContext](): {
		"HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers", // PodSpec has the first five
		"SELinuxOptions", "WindowsOptions", "RunAsUser", "RunAsGroup", "RunAsNonRoot", "SupplementalGroups",
		"SupplementalGroupsPolicy", "FSGroup", "FSGroupChangePolicy", "Sysctls", "SeccompProfile", "AppArmorProfile",
		"SELinuxChangePolicy",
	},
	reflect.TypeFor[v1.VolumeSource](): {
		"HostPath", "EmptyDir", "GCEPersistentDisk", "AWSElasticBlockStore", "GitRepo", "Secret", "NFS", "ISCSI",
		"Glusterfs",
		"PersistentVolumeClaim", "RBD", "Quobyte", "FlexVolume", "Cinder", "CephFS", "Flocker", "DownwardAPI", "FC",
		"AzureFile", "ConfigMap", "VsphereVolume", "AzureDisk", "PhotonPersistentDisk", "Projected", "PortworxVolume",
		"ScaleIO", "StorageOS", "CSI", "Ephemeral", "Image",
	},
	reflect.TypeFor[v1.PodStatus](): {
		"ObservedGeneration", "Phase", "Conditions", "Message", "Reason", "NominatedNodeName", "HostIP", "HostIPs",
		"PodIPs",
		"StartTime", "QOSClass", "InitContainerStatuses", "ContainerStatuses", "EphemeralContainerStatuses", "Resize",
		"ResourceClaimStatuses", "ExtendedResourceClaimStatus", "AllocatedResources", "Resources",
		"NodeAllocatableResourceClaimStatuses",
	},
}

// dump writes values in the format that the kubelet hashes: like go-spew's %#v, without addresses and with sorted
// keys, and with the types of package core in place of those of package v1.
type dump struct {
	w    io.Writer
	spec reflect.Value
}

// typed writes the type of v, then v.
func (d dump) typed(v reflect.Value) {
	d.print("(", typeName(v.Type()), ")")
	d.value(v)
}

func (d dump) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if v.IsNil() {
			d.print("<nil>")
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		d.value(v.Elem())
	case reflect.Bool:
		d.print(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.print(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.print(strconv.FormatUint(v.Uint(), 10))
	case reflect.String:
		d.print(v.String())
	case reflect.Slice:
		d.slice(v)
	case reflect.Map:
		d.mapping(v)
	case reflect.Struct:
		d.structure(v)
	}
}

func (d dump) slice(v reflect.Value) {
	d.print("[")
	for i := range v.Len() {
		d.space(i)
		d.value(v.Index(i))
	}
	d.print("]")
}

// mapping writes a map. All maps of the API have string keys.
func (d dump) mapping(v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	d.print("map[")
	for i, key := range keys {
		d.space(i)
		d.print(key.String(), ":")
		d.value(v.MapIndex(key))
	}
	d.print("]")
}

func (d dump) structure(v reflect.Value) {
	names, moved := internalFields[v.Type()]
	if !moved {
		for i := range v.NumField() {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	d.print("{")
	for i, name := range names {
		d.space(i)
		d.print(name, ":")
		field := v.FieldByName(name)
		if !field.IsValid() {
			field = d.spec.FieldByName(name)
		}
		d.typed(field)
	}
	d.print("}")
}

func (d dump) space(i int) {
	if i > 0 {
		d.print(" ")
	}
}

func (d dump) print(texts ...string) {
	for _, text := range texts {
		_, _ = io.WriteString(d.w, text) // writing to a hash can't fail
	}
}

// typeName is a type's name in the kubelet.
func typeName(t reflect.Type) string {
	switch {
	case t.Name() != "":
		if t.PkgPath() == reflect.TypeFor[v1.Pod]().PkgPath() {
			return "core." + t.Name()
		}
		return t.String()
	case t.Kind() == reflect.Pointer:
		return "*" + typeName(t.Elem())
	case t.Kind() == reflect.Slice:
		return "[]" + typeName(t.Elem())
	case t.Kind() == reflect.Map:
		return fmt.Sprintf("map[%s]%s", typeName(t.Key()), typeName(t.Elem()))
	}
	return t.String()
}
