#!/usr/bin/env bash
# How an agent ends a pod that uses up the memory of all pods: evicted in time, or killed by the kernel (OOM).
#   AGENT=path NAME=myagent ./pressure.sh run   up, 20 rounds, down (ROUNDS=20)
#   ./pressure.sh up | round | down             the steps
#   ./pressure.sh summary [FILE...]             a table of the rounds
# A round adds a line to $OUT (pressure.py explains it). All pods may use 512 MiB, and are evicted when less than 100 MiB
# of it are left: a pod that allocates 50 MiB/s leaves two seconds. It needs cgroup v1, runtime.sh start and images.sh.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
export AGENT=${AGENT:-$BIN/kubelet}
NAME=${NAME:-$(basename "$AGENT")}
ROUNDS=${ROUNDS:-20}
OUT=${OUT:-$LAB/results/pressure-$NAME.tsv}
C=$RUN/cluster
limit=$((512 << 20)) least=$((100 << 20)) # the second is cluster.sh's evictionHard
cluster() { "$here/cluster.sh" "$@"; }
kc() { cluster kubectl "$@"; }

up() {
  [ -e /sys/fs/cgroup/memory ] || die "pressure.sh needs cgroup v1"
  local kib; kib=$(awk '$1 == "MemTotal:" {print $2}' /proc/meminfo)
  AGENT_FLAGS="--system-reserved=memory=$((kib - limit / 1024))Ki --eviction-pressure-transition-period=1s ${AGENT_FLAGS:-}" cluster up
  wait_for 60 kc get serviceaccount default || die "the controller manager makes no service account"
}

stress() { # NAME MEBIBYTES RESOURCES: a pod that allocates 5 MiB, and 70 ms later the next
  cat <<E2
{apiVersion: v1, kind: Pod, metadata: {name: $1}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, automountServiceAccountToken: false,
 tolerations: [{operator: Exists}], containers: [{name: c, image: registry.k8s.io/e2e-test-images/agnhost:2.63.0, resources: $3,
 args: [stress, --mem-total=${2}Mi, --mem-alloc-size=5Mi, --mem-alloc-sleep=70ms]}]}}
E2
}

calm() { kc wait --for=condition=MemoryPressure=False node --all --timeout=0s; }

round() {
  kc delete pod --all --wait --timeout=120s >/dev/null
  wait_for 120 calm || die "the node stays under pressure"
  stress innocent 64 '{requests: {memory: 128Mi}}' | kc create -f - >/dev/null
  kc wait --for=condition=Ready pod/innocent --timeout=120s >/dev/null
  sleep $((RANDOM % 10)).$((RANDOM % 10)) # an agent that looks every ten seconds does so at any time of the round
  mkdir -p "$(dirname "$OUT")"
  inside python3 "$here/pressure.py" round /sys/fs/cgroup/memory/kubepods "$least" "$C/kubelet.log" \
    "$BIN/kubectl" --kubeconfig "$C/admin.conf" >>"$OUT" & local measured=$!
  stress hog 1024 '{}' | kc create -f - >/dev/null
  wait $measured
  tail -n 1 "$OUT"
}

case ${1:-run} in
up | round) "$1" ;;
down) cluster down ;;
summary) shift; "$here/pressure.py" summary "${@:-$OUT}" ;;
run) trap 'cluster down' EXIT; rm -f "$OUT"; up; for i in $(seq "$ROUNDS"); do round; done; "$here/pressure.py" summary "$OUT" ;;
*) die "pressure.sh run|up|round|summary|down" ;;
esac
