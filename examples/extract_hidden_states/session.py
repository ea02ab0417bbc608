"""The recorded session: start, watch, restart, kill and pivot, all from the keyboard of a console of 120x40.

What is on the screen at each moment, and the snapshot of that moment, go to OUT/record as
session-NN-NAME.{ansi,txt,json}. The pivot leaves `extract`, which works and has its data
set copied to /dev/shm, for `extract_b`, other layers on the same GPU.
"""
import glob
import json
import os
import re
import shutil
import sys
import time

from rig import HERE, Console, Deck, extract_stage, small_model, spec, wait

COUNT, TOO_LONG = 2400, 2
LAYERS_B = "2,6,10"


def prepare(run):
    """The small model and its samples; returns what both take."""
    begin = time.monotonic()
    samples = os.path.join(run.dir, "session.jsonl")
    run.call(sys.executable, os.path.join(HERE, "make_samples.py"), "--out", samples, "--count", str(COUNT), "--too-long", str(TOO_LONG), "--length", "64-192", "--vocabulary", "32000")
    small_model(run, "session")
    run.note("session", data_seconds=round(time.monotonic() - begin, 1))
    return samples


class Session:
    """One console, its deck, and the moments that are kept."""

    def __init__(self, run, samples):
        self.run, self.moments = run, 0
        self.scratch = os.path.join("/dev/shm", f"pdrun-{os.getpid()}")
        slow = ["--batch", "8", "--pause", "0.4" if run.real else "0.15"]  # or the pivot would find nothing left to do
        memory = "    gpu_memory: 1GB\n" if run.gpu else ""
        a = extract_stage(run, samples, COUNT + TOO_LONG, more=[*slow, "--cache", self.scratch + "_{rank}"], extra=f'    scratch: ["{self.scratch}_{{rank}}"]\n')
        b = extract_stage(run, samples, COUNT + TOO_LONG, more=slow, name="extract_b", layers=LAYERS_B, folder="states_b")
        a, b = (s.replace("    outputs:\n", "  " + memory + "    outputs:\n", 1) if memory else s for s in (a, b))
        self.deck = Deck(run, "session", spec(run, "session", a + b))
        self.deck.stage_names = ["extract", "extract_b"]
        self.deck.watch()
        wait("a snapshot", lambda: self.deck.node() and self.deck.node()["stages"], 30)
        self.console = Console(run, self.deck, 120, 40)

    def stage(self, name):
        return next(s for s in self.deck.node()["stages"] if s["name"] == name)

    def worker(self, name="extract"):
        """The stage's first worker; it has none before its first start."""
        return next(iter(self.stage(name)["workers"]), {"pid": None, "state": "init"})

    def action(self):
        return self.deck.node()["action"] if "action" in self.deck.node() else None

    def reads(self, text, seconds=20):
        return wait(f"{text!r} on the screen", lambda: text in self.console.screen(), seconds)

    def keep(self, name):
        """The screen and the snapshot of this moment."""
        self.moments += 1
        name = f"session-{self.moments:02}-{name}"
        self.console.screen(name)
        code, out, errs = self.deck.pd("--json")
        self.run.record(name + ".json", out or errs)
        self.run.say(f"kept {name}; health exit {code}")

    def back(self):
        """Leaves a view for the board."""
        self.console.press("Escape")
        self.reads("WORKERS")
        time.sleep(0.3)

    def ask(self, words, name):
        """Types a command and confirms its plan, which is kept; returns the plan's text."""
        self.console.type(":" + words)
        self.console.press("Enter")
        self.reads("type exactly:")
        time.sleep(1)  # the first half second's keys do not count
        text = self.console.screen()
        self.keep(name)
        confirm = re.search(r"type exactly: +(.+?) *$", text, re.M).group(1)
        self.console.type(confirm)
        self.console.press("Enter")
        return text

    def works(self, name, above, what, seconds=90):
        """Waits until a stage has made more than above samples and something of it is proven."""
        def more():
            st = self.stage(name)
            return (st["done"] or 0) > above and (st["outputs"][0]["verified_files"] or 0) > 0 and self.worker(name)["state"] == "running"

        wait(what, more, seconds)


def start_and_watch(s):
    s.reads("extract", 20)
    time.sleep(1)
    s.keep("idle")
    s.console.type(":start extract")
    s.console.press("Enter")
    begin = time.monotonic()
    wait("the worker loads", lambda: s.worker()["state"] in ("loading", "running"), 60)
    time.sleep(1.5)
    s.keep("loading")
    s.works("extract", 60, "the first outputs are proven")
    s.run.note("session", first_proven_seconds=round(time.monotonic() - begin, 1), scratch=sorted(os.path.basename(p) for p in glob.glob(s.scratch + "*/*")))
    s.keep("started")
    s.back()
    time.sleep(8)
    s.keep("running")
    s.console.press("Enter")
    s.reads("How it was started")
    time.sleep(1.5)
    s.keep("detail")
    s.back()


def restart_and_kill(s):
    before, done = s.worker()["pid"], s.stage("extract")["done"]
    begin = time.monotonic()
    s.ask("restart extract", "restart-plan")
    wait("another worker", lambda: s.worker()["pid"] not in (None, before), 90)
    s.keep("restarting")
    s.works("extract", done + 20, "the restarted worker goes on")
    s.run.note("session", restart_seconds=round(time.monotonic() - begin, 1), restarted_at=done)
    time.sleep(2)
    s.keep("restarted")
    s.back()
    pid = s.worker()["pid"]
    begin = time.monotonic()
    s.ask("kill extract", "kill-plan")
    wait("no worker", lambda: s.worker()["pid"] is None and s.stage("extract")["state"] != "stopping", 60)
    s.run.note("session", kill_seconds=round(time.monotonic() - begin, 1), killed=pid, gone=not os.path.exists(f"/proc/{pid}"))
    time.sleep(2)
    s.keep("killed")
    s.back()


def pivot(s):
    s.console.type(":start extract")
    s.console.press("Enter")
    wait("the worker lives again", lambda: s.worker()["pid"] is not None, 60)
    s.works("extract", s.stage("extract")["done"] + 20, "it goes on")
    s.back()
    pid = s.worker()["pid"]
    begin = time.monotonic()
    s.ask("pivot extract_b", "pivot-plan")
    wait("extract's worker is gone", lambda: s.worker()["pid"] is None, 90)
    s.keep("pivot-leaving")
    wait("extract_b's worker", lambda: s.worker("extract_b")["pid"] is not None, 120)
    s.run.note("session", pivot_seconds=round(time.monotonic() - begin, 1), left=pid, left_is_gone=not os.path.exists(f"/proc/{pid}"),
               scratch_left=glob.glob(s.scratch + "_*/*"), extract=left_behind(s))
    s.keep("pivot-started")
    s.works("extract_b", 0, "extract_b's first outputs are proven")
    time.sleep(4)
    s.keep("pivot-checks")
    s.back()
    time.sleep(6)
    s.keep("pivoted")


def left_behind(s):
    """What became of extract's output: all of it must be proven before the GPU goes to another stage."""
    st = s.stage("extract")
    o = st["outputs"][0]
    return {"state": st["state"], "done": st["done"], "verified": o["verified_files"], "local": o["local_files"]}


def oracle(s):
    """Both outputs are in the store, each file once and whole; the journal says what was verified."""
    d, result = s.deck, {}
    for folder in ("hidden_states", "states_b"):
        root = os.path.join(s.run.buckets, d.name, "r1", folder)
        paths = glob.glob(os.path.join(root, "*.safetensors"))
        result[folder] = {"objects": len(paths), "not_whole": [os.path.basename(p) for p in paths if not whole(p)][:5],
                          "local": len(glob.glob(os.path.join(d.dir, "data", folder, "hs_*")))}
    code, out, _ = d.pd("coverage", "--json")
    s.run.record("session-coverage.json", out)
    _, out, _ = d.pd("history", "--json")
    checks = [(r.get("action"), c["name"], c["result"], c["observed"]) for r in json.loads(out)["records"] for c in (r.get("data") or []) if isinstance(c, dict) and "observed" in c]
    s.run.note("session", stored=result, coverage_exit=code, checks=checks[-40:])


def whole(path):
    """Whether a safetensors file has the size that its header tells."""
    with open(path, "rb") as f:
        head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        ends = [v["data_offsets"][1] for k, v in head.items() if k != "__metadata__"]
        return os.path.getsize(path) == f.tell() + max(ends)


def part_session(run):
    if not shutil.which("tmux", path=run.env["PATH"]):
        run.note("session", left_out="tmux is not installed")
        return
    s = Session(run, prepare(run))
    try:
        for step in (start_and_watch, restart_and_kill, pivot, oracle):
            run.say(f"session: {step.__name__}")
            step(s)
    except Exception:
        s.keep("failed")
        raise
    finally:
        s.deck.end()
        for path in glob.glob(s.scratch + "_*"):
            shutil.rmtree(path)
