package binder_test

import (
	"fmt"
	"strings"
	"testing"
)

const hostname = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}"

func TestWhichVolumeFits(t *testing.T) {
	for name, test := range map[string]struct {
		manifests string
		want      string // the volume, or else what is told
		told      []string
	}{
		"the smallest":               {pv("c", "3Gi") + pv("b", "2Gi") + pv("a", "10Gi") + pvc("data", "2Gi"), "b", nil},
		"of equals the first":        {pv("c", "2Gi") + pv("b", "2048Mi") + pvc("data", "1Gi"), "b", nil},
		"by its name":                {pv("a", "1Gi") + pv("b", "2Gi") + pvc("data", "1Gi", "volumeName: b"), "b", nil},
		"by its name, not its label": {pv("b", "2Gi") + pvc("data", "1Gi", "volumeName: b", "selector: {matchLabels: {name: a}}"), "b", nil},
		"reserved":                   {pv("a", "1Gi") + pv("b", "2Gi", "claimRef: {namespace: default, name: data}") + pvc("data", "1Gi"), "b", nil},
		"reserved, without labels":   {pv("b", "2Gi", "claimRef: {namespace: default, name: data}") + pvc("data", "1Gi", "selector: {matchLabels: {name: a}}"), "b", nil},
		"the smallest reserved": {pv("a", "1Gi") + pv("b", "4Gi", "claimRef: {namespace: default, name: data}") + pv("c", "3Gi", "claimRef: {namespace: default, name: data}") +
			pvc("data", "2Gi"), "c", nil},
		"by labels":                       {pv("a", "1Gi") + pv("b", "2Gi") + pvc("data", "1Gi", "selector: {matchExpressions: [{key: name, operator: NotIn, values: [a]}]}"), "b", nil},
		"of the class":                    {pv("a", "1Gi") + pv("b", "2Gi", "storageClassName: fast") + pvc("data", "1Gi", "storageClassName: fast"), "b", nil},
		"no class is an empty one":        {pv("a", "1Gi", "storageClassName: fast") + pv("b", "2Gi") + pvc("data", "1Gi", "storageClassName: ''"), "b", nil},
		"no class is none":                {pv("a", "1Gi", "storageClassName: fast") + pv("b", "2Gi") + pvc("data", "1Gi"), "b", nil},
		"with the access modes":           {pv("a", "1Gi") + pv("b", "2Gi", "accessModes: [ReadOnlyMany, ReadWriteMany, ReadWriteOnce]") + pvc("data", "1Gi", "accessModes: [ReadWriteOnce, ReadWriteMany]"), "b", nil},
		"a device":                        {pv("a", "1Gi") + pv("b", "2Gi", "volumeMode: Block") + pvc("data", "1Gi", "volumeMode: Block"), "b", nil},
		"on this node":                    {pv("a", "1Gi", fmt.Sprintf(hostname, "node2")) + pv("b", "2Gi", fmt.Sprintf(hostname, "node1")) + pvc("data", "1Gi"), "b", nil},
		"none at all":                     {pvc("data", "1Gi"), "", []string{"there is no PersistentVolume for it: no manifest defines any"}},
		"no claim":                        {pv("a", "1Gi"), "", []string{`persistentvolumeclaim "data" not found in namespace "default"`}},
		"a name that isn't there":         {pv("a", "1Gi") + pvc("data", "1Gi", "volumeName: b"), "", []string{"asks for PersistentVolume b (spec.volumeName), which no manifest defines"}},
		"too small":                       {pv("a", "1Gi") + pvc("data", "1025Mi"), "", []string{"no PersistentVolume fits: a has 1Gi, and the claim wants 1025Mi"}},
		"too small, by its name":          {pv("a", "1Gi") + pv("b", "9Gi") + pvc("data", "2Gi", "volumeName: a"), "", []string{"a has 1Gi, and the claim wants 2Gi"}},
		"too small, reserved":             {pv("a", "1Gi", "claimRef: {namespace: default, name: data}") + pv("b", "9Gi") + pvc("data", "2Gi"), "", []string{"a has 1Gi, and the claim wants 2Gi"}},
		"another class":                   {pv("a", "1Gi", "storageClassName: slow") + pvc("data", "1Gi", "storageClassName: fast"), "", []string{"a has storageClassName slow, and the claim storageClassName fast"}},
		"another class, by its name":      {pv("a", "1Gi", "storageClassName: slow") + pvc("data", "1Gi", "volumeName: a"), "", []string{"a has storageClassName slow, and the claim no storageClassName"}},
		"a file system, and not a device": {pv("a", "1Gi") + pvc("data", "1Gi", "volumeMode: Block"), "", []string{"a has volumeMode Filesystem, and the claim Block"}},
		"without an access mode":          {pv("a", "1Gi") + pvc("data", "1Gi", "accessModes: [ReadWriteOncePod]"), "", []string{"a has accessModes [ReadWriteOnce], without the claim's ReadWriteOncePod"}},
		"without a label":                 {pv("a", "1Gi") + pvc("data", "1Gi", "selector: {matchLabels: {x: z}}"), "", []string{"a doesn't have the labels of the claim's selector (x=z)"}},
		"another class of attributes":     {pv("a", "1Gi") + pvc("data", "1Gi", "volumeAttributesClassName: gold"), "", []string{"a has no volumeAttributesClassName, and the claim volumeAttributesClassName gold"}},
		"on another node": {pv("a", "1Gi", fmt.Sprintf(hostname, "node2")) + pv("b", "1Gi", "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: Exists}]}]}}") +
			pvc("data", "1Gi"), "", []string{"a can't be used on this node by its nodeAffinity (the node has kubernetes.io/hostname=node1)", "b can't be used on this node by its nodeAffinity (the node has no zone)"}},
		"on another node, by its name": {pv("a", "1Gi", fmt.Sprintf(hostname, "node2")) + pvc("data", "1Gi", "volumeName: a"), "", []string{"a can't be used on this node"}},
		"for another":                  {pv("a", "1Gi", "claimRef: {namespace: other, name: data}") + pvc("data", "1Gi"), "", []string{"a is for PersistentVolumeClaim other/data (spec.claimRef)"}},
		"for another, by its name":     {pv("a", "1Gi", "claimRef: {namespace: default, name: other}") + pvc("data", "1Gi", "volumeName: a"), "", []string{"a is for PersistentVolumeClaim default/other (spec.claimRef)"}},
		"for another of this name":     {pv("a", "1Gi", "claimRef: {namespace: default, name: data, uid: x}") + pvc("data", "1Gi"), "", []string{"another UID (spec.claimRef.uid); leave the UID out"}},
		"from a snapshot":              {pv("a", "1Gi") + pvc("data", "1Gi", "dataSource: {apiGroup: x.y, kind: Snapshot, name: z}"), "", []string{"which a provisioner would make a volume of", "leave it out"}},
		"from a populator":             {pv("a", "1Gi") + pvc("data", "1Gi", "dataSourceRef: {apiGroup: x.y, kind: Snapshot, name: z}"), "", []string{"which a provisioner would make a volume of", "leave it out"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.define(t, test.manifests)
			if test.want == "" {
				n.waits(t, user(t, "data"), "data", test.told...)
				return
			}
			n.has(t, user(t, "data"), test.want)
			n.restart(t)
			n.has(t, user(t, "data"), test.want)
		})
	}
}

// TestTheNearestMisfitsAreNamed: of many volumes it is told why those don't fit that people may have meant.
func TestTheNearestMisfitsAreNamed(t *testing.T) {
	n := start(t)
	for i := range 5 {
		n.define(t, pv(fmt.Sprint("class", i), "1Gi", "storageClassName: x"))
	}
	n.define(t, pv("small", "1Gi")+pv("read", "9Gi", "accessModes: [ReadOnlyMany]")+pvc("data", "2Gi"))
	_, err := n.bind(t, user(t, "data"))
	want := "no PersistentVolume fits: small has 1Gi, and the claim wants 2Gi; read has accessModes [ReadOnlyMany], without the claim's ReadWriteOnce; " +
		"class0 has storageClassName x, and the claim no storageClassName; and 4 more"
	if err == nil || err.Error() != "PersistentVolumeClaim default/data: "+want {
		t.Errorf("told\n%v\nwant\n%s", err, want)
	}
}

// TestTheOldAnnotationOfClasses: the API still honours it, before the field.
func TestTheOldAnnotationOfClasses(t *testing.T) {
	n := start(t)
	old := "annotations: {volume.beta.kubernetes.io/storage-class: old}, name:"
	n.define(t, strings.Replace(pv("a", "1Gi", "storageClassName: new"), "name:", old, 1)+pv("b", "1Gi", "storageClassName: new")+
		strings.Replace(pvc("one", "1Gi"), "name:", old, 1)+pvc("two", "1Gi", "storageClassName: new"))
	n.has(t, user(t, "one"), "a")
	n.has(t, user(t, "two"), "b")
}
