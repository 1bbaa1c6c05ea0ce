package show

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
)

type volumeObject struct {
	metav1.TypeMeta `json:",inline"`
	local.Volume    `json:",inline"`
}

// VolumeList returns a list of volumes for programs.
func VolumeList(volumes []local.Volume) any {
	items := make([]volumeObject, len(volumes))
	for i := range volumes {
		items[i] = volumeObject{Kind("HeldVolume"), volumes[i]}
	}
	return ListOf(items)
}

// VolumeRows returns the rows of a table of volumes, the heading first.
func VolumeRows(volumes []local.Volume) [][]string {
	rows := [][]string{{"VOLUME", "POD", "DRIVER", "HANDLE", "STATE", "WAITS FOR"}}
	for _, v := range volumes {
		rows = append(rows, []string{v.ID, cmp.Or(v.Pod, "-"), cmp.Or(v.Driver, "?"), cmp.Or(v.Handle, "?"),
			string(v.State), v.Waits})
	}
	return rows
}
