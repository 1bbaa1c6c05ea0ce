package object

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// CSIPlugin is the prefix in the unique names of CSI volumes, the name of the CSI volume plugin.
const CSIPlugin = "kubernetes.io/csi"

// AttachmentName is the name of the VolumeAttachment of a CSI volume at a node.
func AttachmentName(driver, handle, node string) string {
	sum := sha256.Sum256([]byte(handle + driver + node))
	return "csi-" + hex.EncodeToString(sum[:])
}

// AttachmentOf is the key of the VolumeAttachment of a volume at a node; ok is false if it isn't a CSI volume.
func AttachmentOf(volume v1.UniqueVolumeName, node string) (k Key, ok bool) {
	of, isCSI := strings.CutPrefix(string(volume), CSIPlugin+"/")
	driver, handle, ok := strings.Cut(of, "^")
	return Key{Kind: VolumeAttachment, Name: AttachmentName(driver, handle, node)}, ok && isCSI
}
