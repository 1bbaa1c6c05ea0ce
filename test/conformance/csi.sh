#!/usr/bin/env bash
# Run Kubernetes' own CSI specs against deckhand, or against AGENT, and compare with what the kubelet passes.
#   LAB=/a/directory/with/6/GB AGENT=bin/deckhand ./csi.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
export LAB BASELINE=${BASELINE:-$here/kubelet-csi.tsv} PROCS=${PROCS:-3}
export FOCUS=${FOCUS:-'CSI Mock (workload info|fsgroup|volume (attach|fsgroup|node stage|service account|storage capacity))|CSIInlineVolumes|csi-hostpath.*CSI Ephemeral-volume'}
# The suite has no way into the node (SSH), which has no SELinux.
export SKIP=${SKIP:-'\[Serial\]|\[Flaky\]|\[Disruptive\]|Feature:|FeatureGate:|AttachRequired changes'}
"$here/build.sh"
[ -f "$IMG/built" ] || { "$here/images.sh" build; : >"$IMG/built"; }
[ -f "$IMG/csi-built" ] || { "$here/images.sh" csi; : >"$IMG/csi-built"; }
exec "$here/run.sh"
