#!/usr/bin/env python3
"""Measure how an agent ends a pod that uses up the memory of all pods, or sum such measurements up.

  pressure.py round GROUP LEAST LOG KUBECTL...  wait for pod "hog" to end, and print a line (see FIELDS)
  pressure.py summary rounds.tsv ...            a Markdown table with a column for each file

GROUP is the pods' memory group on cgroup v1, LEAST the bytes that are to stay available in it, LOG the agent's log. A
round fails if the pod hasn't ended after three minutes. Times are in seconds, on the clock of this machine.
"""
import glob
import json
import os
import re
import subprocess
import sys
import threading
import time
from statistics import median

FIELDS = ("outcome", "innocent", "rate", "least_left", "verdict", "freed", "node_patched", "pod_patched", "pod_failed")
PERIOD = 0.02  # between two samples
# The line of the log with which each agent reports that it ends a pod.
VERDICT = re.compile(r'^I(\d{4} \d\d:\d\d:\d\d\.\d{6}) .*"(?:Eviction manager: pods ranked for eviction'
                     r'|The node runs short of a resource: a pod is evicted)"')


def watch(kubectl, path, handle):
    """Call handle(object, time) for each change, from another thread."""
    p = subprocess.Popen(kubectl + ["get", "--raw", path + "?watch=true"], stdout=subprocess.PIPE)

    def run():
        for line in p.stdout:
            now = time.time()
            handle(json.loads(line)["object"], now)
    threading.Thread(target=run, daemon=True).start()
    return p


def condition(obj, kind):
    return any(c["type"] == kind and c["status"] == "True" for c in obj["status"].get("conditions", []))


def reasons(pod):
    """The reason of the pod's failure, and those of its containers' ends."""
    states = [s["state"] for s in pod["status"].get("containerStatuses", [])]
    return [pod["status"].get("reason", "")] + [s["terminated"].get("reason", "") for s in states if "terminated" in s]


class Round:
    def __init__(self, group, least):
        self.group, self.samples = group, []
        self.limit = int(open(group + "/memory.limit_in_bytes").read())
        self.most = self.limit - least  # of the working set
        self.first = {}                 # when something was first seen
        self.pods = {}
        self.kills = {}                 # files that count the kernel's kills in the hog's groups, and the counts

    def sample(self):
        now = time.time()
        if "hog" in self.pods:
            self.count_kills(self.pods["hog"]["metadata"]["uid"])
        used = int(open(self.group + "/memory.usage_in_bytes").read())
        stat = open(self.group + "/memory.stat").read()
        self.samples.append((now, used - int(re.search(r"^total_inactive_file (\d+)", stat, re.M)[1])))

    def count_kills(self, uid):
        # A container's group counts the kills in it, also those because of the pods' limit. The first one is the sandbox's.
        if len(self.kills) < 2:
            self.kills = dict.fromkeys(glob.glob("%s/**/pod%s/*/memory.oom_control" % (self.group, uid), recursive=True), 0)
        for f in self.kills:
            try:
                self.kills[f] = int(re.search(r"^oom_kill (\d+)", open(f).read(), re.M)[1])
            except OSError:
                pass  # the container is gone

    def see_node(self, node, now):
        if condition(node, "MemoryPressure"):
            self.first.setdefault("node", now)

    def see_pod(self, pod, now):
        name = pod["metadata"]["name"]
        self.pods[name] = pod
        failed = pod["status"]["phase"] in ("Failed", "Succeeded")
        if name == "hog" and (failed or condition(pod, "DisruptionTarget")):
            self.first.setdefault("pod", now)
        if name == "hog" and failed:
            self.first.setdefault("failed", now)

    def line(self, log):
        over = [t for t, used in self.samples if used > self.most]
        if not over:
            sys.exit("the pods never used more than %d bytes" % self.most)
        crossing = over[0]
        verdict = next((t for t in verdicts(log) if t >= crossing - 10 * PERIOD), None)  # samples may come late
        if verdict and verdict > self.first["failed"]:
            verdict = None
        before = [s for s in self.samples if crossing - 1 <= s[0] <= crossing]
        rate = (before[-1][1] - before[0][1]) / max(before[-1][0] - before[0][0], PERIOD)
        why = reasons(self.pods["hog"])
        if any(self.kills.values()):  # some ends of containers are reported without this reason
            why.append("OOMKilled")
        outcome = "+".join(r for r in ("Evicted", "OOMKilled") if r in why) or ",".join(why)
        since = lambda t, start: "" if t is None or start is None else "%.3f" % (t - start)
        return (outcome, "+".join(filter(None, reasons(self.pods["innocent"]))) or "runs", "%.0f" % (rate / 2**20),
                "%.0f" % ((self.limit - max(s[1] for s in self.samples)) / 2**20), since(verdict, crossing),
                since(next(t for t, used in self.samples if t > crossing and used <= self.most), crossing),
                since(self.first.get("node"), verdict), since(self.first["pod"], verdict),
                since(self.first["failed"], crossing))


def verdicts(log):
    year = time.localtime().tm_year
    for m in filter(None, map(VERDICT.match, open(log, errors="replace"))):
        whole, micro = m[1].split(".")
        yield time.mktime(time.strptime("%d%s" % (year, whole), "%Y%m%d %H:%M:%S")) + int(micro) / 1e6


def measure(group, least, log, kubectl):
    r = Round(group, int(least))
    watches = [watch(kubectl, "/api/v1/nodes", r.see_node), watch(kubectl, "/api/v1/namespaces/default/pods", r.see_pod)]
    end = time.time() + 180
    # the node's condition, or the end of the other pod, may follow
    while time.time() < min(end, r.first.get("failed", end) + 3):
        r.sample()
        time.sleep(PERIOD)
    for w in watches:
        w.kill()
    if "failed" not in r.first:
        sys.exit("the pod hasn't ended")
    print(*r.line(log), sep="\t")


def summary(files):
    tables = []
    for f in files:
        rows = [dict(zip(FIELDS, line.rstrip("\n").split("\t"))) for line in open(f)]
        tables.append((os.path.basename(f).rsplit(".", 1)[0], rows))

    def times(rows, field):
        values = sorted(float(r[field]) for r in rows if r[field])
        return "%.2f, %.2f (%d)" % (median(values), values[-1], len(values)) if values else "-"
    lines = [("rounds", lambda rows: len(rows)),
             ("hog OOM-killed", lambda rows: sum("OOMKilled" in r["outcome"] for r in rows)),
             ("hog evicted in time", lambda rows: sum(r["outcome"] == "Evicted" for r in rows)),
             ("another pod ended", lambda rows: sum(r["innocent"] != "runs" for r in rows)),
             ("MiB/s of the hog, median", lambda rows: "%.0f" % median(float(r["rate"]) for r in rows)),
             ("MiB left at the peak, median", lambda rows: "%.0f" % median(float(r["least_left"]) for r in rows))]
    for field, text in (("verdict", "crossing to verdict"), ("freed", "crossing to memory freed"),
                        ("node_patched", "verdict to MemoryPressure of the node"),
                        ("pod_patched", "verdict to DisruptionTarget or Failed of the pod"),
                        ("pod_failed", "crossing to Failed")):
        lines.append((text + ", seconds: median, most (rounds)", lambda rows, field=field: times(rows, field)))
    print("| |", " | ".join(name for name, _ in tables), "|")
    print("| --- |", " | ".join("---" for _ in tables), "|")
    for text, of in lines:
        print("|", text, "|", " | ".join(str(of(rows)) for _, rows in tables), "|")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["round", group, least, log, *kubectl]:
            measure(group, least, log, kubectl)
        case ["summary", *files]:
            summary(files)
        case _:
            sys.exit(__doc__)
