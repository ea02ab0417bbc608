"""A healthy run: slow work that nothing disturbs. Whoever is told to have stalled was accused falsely.

The snapshot is asked for once a second (`pipedeck --json`), and OUT/verdict.json is written
anew every few of them: it says how much was covered, also where the run was ended early.
"""
import json
import os
import subprocess
import sys
import time

from rig import HERE, Deck, children, cpu_seconds, extract_stage, is_helper, small_model, spec, wait

STALL_AFTER = 10


class Verdict:
    """What the snapshots of a healthy run say together."""

    def __init__(self, out, asked):
        self.path, self.begin, self.last_at, self.last_done = os.path.join(out, "verdict.json"), time.monotonic(), None, None
        self.done_at = self.begin
        self.v = {"asked_seconds": asked, "covered_seconds": 0, "finished": False, "stall_after_seconds": STALL_AFTER, "snapshots": 0, "unanswered": 0,
                  "slowest_answer_ms": 0, "longest_without_a_snapshot_seconds": 0, "longest_without_an_output_seconds": 0, "oldest_gpu_reading_seconds": 0, "done": None,
                  "rates": [None, None], "worker_states": {}, "health": {}, "health_reasons": {}, "gpu_sources": {}, "false_stalls": []}

    def unanswered(self, code, errs):
        self.v["unanswered"] += 1
        self.v["last_error"] = f"exit {code}: {errs.strip()[-300:]}"

    def add(self, snap, took):
        """One snapshot; took is how many seconds the answer needed."""
        v, now = self.v, time.monotonic()
        if self.last_at is not None:
            v["longest_without_a_snapshot_seconds"] = max(v["longest_without_a_snapshot_seconds"], round(now - self.last_at, 2))
        self.last_at = now
        v["snapshots"] += 1
        v["covered_seconds"] = round(now - self.begin, 1)
        v["slowest_answer_ms"] = max(v["slowest_answer_ms"], round(1000 * took))
        count(v["health"], snap["health"])
        for reason in snap["health_reasons"] or []:
            count(v["health_reasons"], reason)
            if "stall" in reason:
                v["false_stalls"].append([v["covered_seconds"], reason])
        node = snap["nodes"][0]
        source = node["gpu_source"]
        count(v["gpu_sources"], source["kind"])
        v["oldest_gpu_reading_seconds"] = max(v["oldest_gpu_reading_seconds"], round(source["age_seconds"] or 0, 2))
        stage = node["stages"][0]
        self.add_work(stage, now)
        for w in stage["workers"]:
            count(v["worker_states"], w["state"])
            if w["state"] == "stalled":
                v["false_stalls"].append([v["covered_seconds"], f"{w['id']}: {w['state_reason']}"])
        v["false_stalls"] = v["false_stalls"][:50]

    def add_work(self, stage, now):
        v = self.v
        if self.last_done:  # before the first output it loads
            v["longest_without_an_output_seconds"] = max(v["longest_without_an_output_seconds"], round(now - self.done_at, 2))
        if stage["done"] != self.last_done:
            self.last_done, self.done_at = stage["done"], now
        v["done"] = stage["done"]
        rate = stage["samples_per_second"]
        if rate:
            low, high = v["rates"]
            v["rates"] = [min(low or rate, rate), max(high or rate, rate)]

    def write(self, finished=False):
        v = self.v
        v["finished"] = finished
        v["ok"] = not v["false_stalls"] and v["snapshots"] > 0 and v["worker_states"].get("running", 0) > 0
        v["verdict"] = f"{'no false stall' if not v['false_stalls'] else 'a false stall: ' + v['false_stalls'][0][1]} in {v['covered_seconds']:.0f} s of {v['asked_seconds']} s asked for"
        if v["covered_seconds"] < v["asked_seconds"] - 2:
            v["verdict"] += "; the rest was not looked at" if finished else "; still running, or ended early"
        with open(self.path + ".tmp", "w") as f:
            json.dump(v, f, indent=1)
        os.replace(self.path + ".tmp", self.path)


def count(table, key):
    table[key] = table.get(key, 0) + 1


def costs(agent):
    """CPU seconds of the agent and of its GPU helpers so far."""
    return cpu_seconds(agent), sum(cpu_seconds(c) for c in children(agent) if is_helper(c))


def prepare(run):
    small = os.path.join(run.dir, "slow.jsonl")
    run.call(sys.executable, os.path.join(HERE, "make_samples.py"), "--out", small, "--count", "6000", "--length", "16-64", "--vocabulary", "32000")
    small_model(run, "healthy")
    return small


def part_healthy(run):
    """A slow run that nothing disturbs, and what the agent costs meanwhile."""
    small = prepare(run)
    d = Deck(run, "healthy", spec(run, "healthy", extract_stage(run, small, 6000, more=["--batch", "2", "--pause", "0.5"], stall=f"{STALL_AFTER}s")))
    d.must("start", "extract")
    node = lambda: json.loads(d.pd("--json")[1])["nodes"][0]
    agent = wait("an agent", node, 30)["agent"]["pid"]
    seconds = int(min(run.a.healthy, max(20, run.left() - 20)))
    verdict = Verdict(run.out, run.a.healthy)
    before = costs(agent)
    try:
        watch(d, verdict, seconds)
    finally:
        verdict.write(finished=True)
    took = time.monotonic() - verdict.begin
    after = costs(agent)
    run.note("healthy", agent_cpu_percent=round(100 * (after[0] - before[0]) / took, 2), helper_cpu_percent=round(100 * (after[1] - before[1]) / took, 3), **verdict.v)
    run.record("snapshot-healthy.json", d.pd("--json")[1])
    d.end()


def watch(d, verdict, seconds):
    """Asks once a second, by the clock: a slow answer does not shift the next question."""
    n = 0
    while time.monotonic() - verdict.begin < seconds:
        begin = time.monotonic()
        code, out, errs = d.pd("--json", timeout=60)
        if out:
            verdict.add(json.loads(out), time.monotonic() - begin)
        else:
            verdict.unanswered(code, errs)
        n += 1
        if n % 5 == 1:
            verdict.write()
        time.sleep(max(0, verdict.begin + n - time.monotonic()))


def detach(out):
    """Starts this very command again, in a session of its own."""
    os.makedirs(out, exist_ok=True)
    argv = [a for a in sys.argv[1:] if a != "--background"]
    with open(os.path.join(out, "run.log"), "ab") as log:
        p = subprocess.Popen([sys.executable, "-u", os.path.join(HERE, "run.py"), *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    print(f"runs on as pid {p.pid}; --collect --out {out} says how far it is")
    return 0


def collect(out, patience):
    """Prints the verdict so far. An unfinished one is no failure: it says what it covered."""
    path, end = os.path.join(out, "verdict.json"), time.monotonic() + patience
    while True:
        v = None
        if os.path.exists(path):
            with open(path) as f:
                v = json.load(f)
        if (v and v["finished"]) or time.monotonic() >= end:
            break
        time.sleep(0.5)
    if v is None:
        print(f"no verdict in {out!r} yet", file=sys.stderr)
        return 3
    print(json.dumps(v, indent=1))
    return 0 if v["ok"] else 1 if v["false_stalls"] else 3
