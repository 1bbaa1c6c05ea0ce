#!/usr/bin/env bash
# Run specs of Kubernetes' node e2e suite, which starts and restarts the agent by itself, against AGENT: [NodeConformance] or FOCUS.
#   LAB=/a/directory/with/8/GB AGENT=bin/deckhand FOCUS='Summary API|Device Plugin' SKIP='CPU Manager' ./node.sh
# PROCS specs run at a time; those marked Serial, which restart the agent, run alone after them.
# The suite wants systemd, sudo and a control group for each part: systemd/ stands in for the first two. On cgroup v1 its specs of real pressure (PSI) can't pass.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
export LAB
AGENT=$(realpath "${AGENT:-$here/../../bin/deckhand}")
NAME=${NAME:-$(basename "$AGENT")}
OUT=$LAB/results/node-$NAME
N=$RUN/node
export UNITS=$N/units
"$here/build.sh" node; "$here/build.sh" runtime
# run.sh may have made the images before the plugin was there.
[ -f "$IMG/built" ] && [ -f "$IMG/sample-device-plugin.tar" ] || { "$here/images.sh" build; : >"$IMG/built"; }
end() { "$here/runtime.sh" clean || true; "$here/runtime.sh" stop; }
"$here/runtime.sh" start
trap end EXIT
"$here/images.sh" import >/dev/null
rm -rf "$OUT" "$N"; mkdir -p "$OUT" "$N/bin" "$UNITS"
ln -s "$AGENT" "$N/bin/kubelet"
cp -l "$BIN/e2e_node.test" "$N/" || cp "$BIN/e2e_node.test" "$N/" # it writes the agent's configuration beside itself
cat >"$N/base.yaml" <<'E2'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /
systemCgroups: /lab-system
failCgroupV1: false
failSwapOn: false
podCIDR: 10.100.0.0/24
volumeStatsAggPeriod: 10s
serializeImagePulls: false
fileCheckFrequency: 10s
evictionPressureTransitionPeriod: 30s
evictionHard: {memory.available: 250Mi, nodefs.available: 3%, nodefs.inodesFree: 3%}
imageGCHighThresholdPercent: 100
E2
path=$(nosystemd_path)
cd "$N"
PATH=$here/systemd:$BIN:$path inside "$BIN/ginkgo" --procs="${PROCS:-6}" --focus="${FOCUS:-\[NodeConformance\]}" --skip="${SKIP:-^$}" --no-color -v --timeout="${TIMEOUT:-2h}" \
  --output-dir="$OUT" --json-report=report.json "$N/e2e_node.test" -- --k8s-bin-dir="$N/bin" --report-dir="$OUT" --node-name="$(hostname)" --container-runtime-endpoint="unix://$SOCK" \
  --prepull-images=false --kubelet-config-file="$N/base.yaml" --kubelet-flags=--runtime-cgroups=/lab-runtime >"$OUT/suite.log" 2>&1 || true
"$here/report.py" tsv "$OUT/report.json" >"$OUT/result.tsv"
"$here/report.py" failures "$OUT/report.json"
"$here/report.py" summary "$OUT/result.tsv"
[ -n "${FOCUS:-}" ] || "$here/report.py" compare "$here/kubelet-node.tsv" "$OUT/result.tsv"
