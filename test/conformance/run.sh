#!/usr/bin/env bash
# Run Kubernetes' own [sig-node] [Conformance] specs, or those of FOCUS, against deckhand or AGENT, and compare with what the
# kubelet passes (BASELINE).
#   LAB=/a/directory/with/6/GB AGENT=bin/deckhand ./run.sh
set -euo pipefail
. "$(dirname "$0")/lib.sh"
export LAB AGENT NAME FOCUS SKIP
AGENT=$(realpath "${AGENT:-$here/../../bin/deckhand}")
NAME=${NAME:-$(basename "$AGENT")}
"$here/build.sh"
[ -f "$IMG/built" ] || { "$here/images.sh" build; : >"$IMG/built"; }
end() { "$here/runtime.sh" clean || true; "$here/runtime.sh" stop; }
"$here/runtime.sh" start
trap end EXIT
"$here/images.sh" import >/dev/null
"$here/cluster.sh" run || true
"$here/report.py" failures "$LAB/results/cluster-$NAME/report.json"
"$here/report.py" compare "${BASELINE:-$here/kubelet.tsv}" "$LAB/results/cluster-$NAME/result.tsv"
