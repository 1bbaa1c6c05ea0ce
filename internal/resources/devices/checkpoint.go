package devices

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// file is the name of the record in the directory of device plugins. Name and format are the kubelet's: when a node
// switches from the agent to a kubelet, or back, the new program reads the devices of running pods from the record.
const file = "kubelet_internal_checkpoint"

// record is the content of the file.
type record struct {
	Data recordData
	// Checksum is the checksum of Data, as a kubelet calculates and verifies it.
	Checksum uint64
	// BootID is the boot in which the plugins allocated. A kubelet neither writes nor reads BootID: its records count
	// as records of this boot.
	BootID string `json:",omitempty"`
	// Earlier contains the pods for which plugins allocated devices in an earlier boot and not yet in the boot
	// BootID. The values are the IDs of the earlier boots.
	Earlier map[types.UID]string `json:",omitempty"`
	// PreStart are the resources whose plugin requires PreStartContainer. A kubelet's record doesn't contain it.
	PreStart []string `json:",omitempty"`
	// Forgotten is when this record replaced a damaged one; zero if it didn't. Such a record doesn't contain all
	// resources that have had plugins.
	Forgotten time.Time `json:",omitzero"`
}

type recordData struct {
	PodDeviceEntries []recordEntry
	// RegisteredDevices are the IDs that each resource's plugin listed last.
	RegisteredDevices map[string][]string
}

type recordEntry struct {
	PodUID        types.UID
	ContainerName string
	ResourceName  string
	// DeviceIDs are the IDs by NUMA node, at -1 if the node is unknown or there is none.
	DeviceIDs map[int64][]string
	// AllocResp is the plugin's response to Allocate, a v1beta1.ContainerAllocateResponse in protobuf encoding.
	AllocResp []byte
}

// checksum is the FNV-32a sum of the data in the kubelet's text form, in which the type precedes each value.
func (d *recordData) checksum() uint64 {
	sum := fnv.New32a()
	begin, end := "[", "]"
	if d.PodDeviceEntries == nil {
		begin, end = none, ""
	}
	fmt.Fprint(sum, "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)", begin)
	for i, e := range d.PodDeviceEntries {
		if i > 0 {
			fmt.Fprint(sum, " ")
		}
		fmt.Fprintf(sum, "{PodUID:(string)%s ContainerName:(string)%s ResourceName:(string)%s "+
			"DeviceIDs:(checkpoint.DevicesPerNUMA)", e.PodUID, e.ContainerName, e.ResourceName)
		writeMap(sum, e.DeviceIDs)
		fmt.Fprintf(sum, " AllocResp:([]uint8)%v}", orNone(e.AllocResp))
	}
	fmt.Fprint(sum, end, " RegisteredDevices:(map[string][]string)")
	writeMap(sum, d.RegisteredDevices)
	fmt.Fprint(sum, "}")
	return uint64(sum.Sum32())
}

// none is the text form of a nil slice or map. In JSON it is null, which a kubelet writes if there has been no pod
// with devices.
const none = "<nil>"

func orNone[T any](list []T) any {
	if list == nil {
		return none
	}
	return list
}

func writeMap[K int64 | string](sum hash.Hash, m map[K][]string) {
	if m == nil {
		fmt.Fprint(sum, none)
		return
	}
	fmt.Fprint(sum, "map[")
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			fmt.Fprint(sum, " ")
		}
		fmt.Fprintf(sum, "%v:%v", key, orNone(m[key]))
	}
	fmt.Fprint(sum, "]")
}

// read reads the record. It returns nil if there is no record, or if it can't be read. If the record is damaged, read
// renames it, and returns an error with an empty record that replaces it.
func read(dir string) (*record, error) {
	path := filepath.Join(dir, file)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which devices pods have: %w", err)
	}
	r := &record{}
	if err = json.Unmarshal(text, r); err == nil && r.Checksum != r.Data.checksum() {
		err = errors.New("its checksum is another one")
	}
	if err == nil {
		return r, nil
	}
	aside, renaming := checkpoint.SetAside(path)
	return &record{Forgotten: time.Now()},
		errors.Join(fmt.Errorf("the record of which devices pods have, %s, is damaged (%w): it was renamed to %s; "+
			"running containers keep their devices, but other "+
			"containers may be allocated the same ones", path, err, aside), renaming)
}

// write replaces the record. After it returned nil, the record survives a power loss.
func write(dir string, r *record) error {
	r.Checksum = r.Data.checksum()
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record which devices pods have: %w", err)
	}
	if err := atomicfile.Write(filepath.Join(dir, file), text, 0o600); err != nil {
		return fmt.Errorf("record which devices pods have: %w", err)
	}
	return nil
}
