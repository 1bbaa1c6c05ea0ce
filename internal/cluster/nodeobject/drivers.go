package nodeobject

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
)

// nodeIDs is the annotation with the node's IDs for CSI drivers, a JSON object.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"

// checkDriver returns the reason why a driver can't register on a node with these labels.
func checkDriver(labels map[string]string, d *nodefacts.CSIDriver) error {
	for _, key := range slices.Sorted(maps.Keys(d.Topology)) {
		if now, has := labels[key]; has && now != d.Topology[key] {
			return fmt.Errorf("its topology is %s=%s, but the node has the label %s=%s: correct the driver's "+
				"configuration, or remove the label from the node", key, d.Topology[key], key, now)
		}
	}
	return nil
}

// driverPatch is the strategic merge patch that sets the annotation with these IDs, and adds the labels that the object
// doesn't have; nil if the object has all of them.
func driverPatch(n *v1.Node, ids, topology map[string]string) ([]byte, error) {
	changes := map[string]any{} // not nil: JSON's null would remove all labels
	labels := maps.Clone(topology)
	maps.DeleteFunc(labels, func(key, _ string) bool { _, has := n.Labels[key]; return has })
	if len(labels) > 0 {
		changes["labels"] = labels
	}
	if len(ids) == 0 {
		changes["annotations"] = map[string]any{nodeIDs: nil}
	} else if !maps.Equal(ids, idsOf(n)) {
		text, err := json.Marshal(ids)
		if err != nil {
			return nil, err
		}
		changes["annotations"] = map[string]any{nodeIDs: string(text)}
	}
	if len(changes) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": changes})
}

// idsOf returns the node's IDs in the object, by driver; none if the annotation can't be decoded.
func idsOf(n *v1.Node) map[string]string {
	ids := map[string]string{}
	if err := json.Unmarshal([]byte(n.Annotations[nodeIDs]), &ids); err != nil || ids == nil {
		return map[string]string{}
	}
	return ids
}

// publishDrivers writes the IDs and topology of CSI drivers to the object, once per registration, and publishes the
// results. It returns when it has to be called again, at the latest at next (zero for never).
func (n *Node) publishDrivers(ctx context.Context, next time.Time) (time.Time, error) {
	if n.object == nil || n.conf.Drivers == nil {
		return next, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	uid, drivers := n.object.UID, n.conf.Drivers()
	results := map[string]nodefacts.CSIEntry{}
	for _, d := range drivers {
		if entry, tried := n.drivers[d.Name]; tried && entry.Generation == d.Generation {
			results[d.Name] = entry
		}
	}
	n.setDrivers(results)
	for _, d := range drivers {
		if _, tried := n.drivers[d.Name]; tried {
			continue
		}
		refused, err := n.publishDriver(ctx, &d)
		if err != nil {
			return next, err
		}
		if n.object.UID != uid {
			return time.Now(), nil // the object was replaced by another one, which has to be reconciled first
		}
		results = maps.Clone(n.drivers)
		results[d.Name] = nodefacts.CSIEntry{Generation: d.Generation, Refused: refused}
		n.setDrivers(results)
	}
	return n.removeDrivers(ctx, drivers, next)
}

// publishDriver writes a driver's ID and topology to the object. refused is the reason why that is impossible; err is
// an error after which a later attempt may succeed.
func (n *Node) publishDriver(ctx context.Context, d *nodefacts.CSIDriver) (refused string, err error) {
	if err := checkDriver(n.object.Labels, d); err != nil {
		return err.Error(), nil
	}
	ids := idsOf(n.object)
	ids[d.Name], n.unchanged = d.NodeID, ""
	err = n.patchDrivers(ctx, ids, d.Topology)
	if apiclient.Rejected(err) && n.object != nil {
		return err.Error(), nil
	}
	return "", err
}

func (n *Node) setDrivers(results map[string]nodefacts.CSIEntry) {
	n.drivers = results
	n.conf.Facts.Set(func(f *nodefacts.Facts) { f.CSILabels = results })
}

// removeDrivers removes the IDs of drivers that haven't registered within Settled after the start. The drivers'
// topology labels stay: the accessibility of volumes may depend on them.
func (n *Node) removeDrivers(ctx context.Context, drivers []nodefacts.CSIDriver, next time.Time) (time.Time, error) {
	ids, before := idsOf(n.object), n.object.Annotations[nodeIDs]
	had := len(ids)
	maps.DeleteFunc(ids, func(name, _ string) bool {
		return !slices.ContainsFunc(drivers, func(d nodefacts.CSIDriver) bool { return d.Name == name })
	})
	if len(ids) == had || before == n.unchanged {
		return next, nil
	}
	if settled := n.began.Add(n.conf.Settled); time.Now().Before(settled) {
		if next.IsZero() || settled.Before(next) {
			next = settled
		}
		return next, nil
	}
	err := n.patchDrivers(ctx, ids, nil)
	if apiclient.Rejected(err) && n.object != nil {
		n.conf.Log.Error(err, "CSI drivers that are gone stay in the node's annotation with its IDs")
		err = nil
	}
	if err == nil {
		n.unchanged = before
	}
	return next, err
}

// patchDrivers gives the object these IDs and labels. If there is no object any more, n.object is nil afterwards.
func (n *Node) patchDrivers(ctx context.Context, ids, topology map[string]string) error {
	body, err := driverPatch(n.object, ids, topology)
	if err != nil || body == nil {
		return err
	}
	object, err := n.conf.API.Patch(ctx, n.conf.Identity.Name, body)
	if apierrors.IsNotFound(err) {
		n.setObject(nil)
	}
	if err != nil {
		return fmt.Errorf("write CSI drivers' IDs and topology to node %s: %w", n.conf.Identity.Name, err)
	}
	n.setObject(object)
	return nil
}
