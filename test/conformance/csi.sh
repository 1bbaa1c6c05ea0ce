#!/usr/bin/env bash
# Run Kubernetes' own CSI specs against deckhand, or against AGENT, and compare with what the kubelet passes.
#   LAB=/a/directory/with/6/GB AGENT=bin/deckhand ./csi.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
export LAB CLASS=1 BASELINE=${BASELINE:-$here/kubelet-csi.tsv} PROCS=${PROCS:-3}
mock='CSI Mock (workload info|fsgroup|honor pv|volume (attach|fsgroup|limit|node stage|service account|storage capacity))|CSIInlineVolumes'
hostpath='csi-hostpath.*Testpattern: (CSI Ephemeral|(Generic Ephemeral-volume|Dynamic PV) \((default fs|filesystem volmode)\))'
export FOCUS=${FOCUS:-"$mock|$hostpath|PVC? Protection|PersistentVolumes-local|HostPathType"}
# The suite has no way into the node (SSH), which has no SELinux. test/csidriver doesn't clone volumes. Devices and growth aren't supported.
export SKIP=${SKIP:-'\[Serial\]|\[Flaky\]|\[Disruptive\]|Feature:|FeatureGate:|AttachRequired changes|data source|\] topology|volume-expand|Volume type: block(fswithoutformat)?\]'}
"$here/build.sh"
[ -f "$IMG/built" ] || { "$here/images.sh" build; : >"$IMG/built"; }
[ -f "$IMG/csi-built" ] || { "$here/images.sh" csi; : >"$IMG/csi-built"; }
exec "$here/run.sh"
