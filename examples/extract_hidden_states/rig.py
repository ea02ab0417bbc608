"""What the recorded run is made of: a folder of its own, an S3 server, decks, consoles."""
import glob
import gzip
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS = "1,4,8,11,14"
MIB = 1 << 20


class Run:
    """The folder, the binaries, the results of one run."""

    def __init__(self, a):
        self.a, self.begin = a, time.monotonic()
        self.dir = os.path.abspath(a.work) if a.work else tempfile.mkdtemp(prefix="pdrun-")
        os.makedirs(self.dir, exist_ok=True)
        self.out = os.path.abspath(a.out)
        os.makedirs(os.path.join(self.out, "record"), exist_ok=True)
        self.results = {"parts": {}}
        self.env = dict(os.environ, PATH=os.path.abspath(a.bin) + ":" + os.environ["PATH"], TMPDIR=self.dir, HOME=self.dir,
                        AWS_ACCESS_KEY_ID="pdrun", AWS_SECRET_ACCESS_KEY="pdrun-secret", AWS_REGION="us-east-1", PYTHONDONTWRITEBYTECODE="1")
        # A rehearsal has no model, and GPUs only where a stand-in for the driver's library is named.
        self.real, self.gpu = not a.rehearse, not a.rehearse or bool(a.library)
        if a.library:
            self.env["LD_LIBRARY_PATH"] = os.path.abspath(a.library)
            self.env["NVIDIA_STUB_DIR"] = os.path.join(self.dir, "stub")
        self.ends = []  # what must be ended
        self.decks = []

    def left(self):
        return self.a.seconds - (time.monotonic() - self.begin)

    def say(self, text):
        print(f"{time.monotonic() - self.begin:7.1f} {text}", flush=True)

    def note(self, part, **values):
        self.results["parts"].setdefault(part, {}).update(values)
        with open(os.path.join(self.out, "results.json"), "w") as f:
            json.dump(self.results, f, indent=1)
        for k, v in values.items():
            self.say(f"{part}: {k} = {json.dumps(v)[:300]}")

    def record(self, name, text):
        with open(os.path.join(self.out, "record", name), "w") as f:
            f.write(text)

    def call(self, *argv, timeout=120, cwd=None):
        p = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env=self.env, cwd=cwd or self.dir, stdin=subprocess.DEVNULL)
        return p.returncode, p.stdout, p.stderr

    def popen(self, *argv, log, cwd=None):
        with open(os.path.join(self.dir, log), "ab") as f:
            p = subprocess.Popen(argv, stdout=f, stderr=f, stdin=subprocess.DEVNULL, env=self.env, cwd=cwd or self.dir)
        self.ends.append(p)
        return p

    def store(self):
        """An S3 server over a folder; each deck has a bucket of its own."""
        self.buckets = os.path.join(self.dir, "store")
        os.makedirs(self.buckets, exist_ok=True)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{port}"
        argv = ["versitygw", "--port", f"127.0.0.1:{port}", "--access", "pdrun", "--secret", "pdrun-secret", "--keep-alive", "posix"]
        try:
            os.setxattr(self.buckets, "user.pdrun", b"1")
        except OSError:
            os.makedirs(os.path.join(self.dir, "side"), exist_ok=True)
            argv += ["--sidecar", os.path.join(self.dir, "side")]
        self.popen(*argv, self.buckets, log="versitygw.log")
        wait("the S3 server answers", lambda: answers(port), 30)

    def finish(self):
        for d in self.decks:
            d.end()
        for p in reversed(self.ends):
            if p.poll() is None:
                p.terminate()
        for p in self.ends:
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
        for log in glob.glob(os.path.join(self.dir, "*.log")) + glob.glob(os.path.join(self.dir, "*", ".pipedeck", "*.log")):
            shutil.copy(log, os.path.join(self.out, "record", log[len(self.dir) + 1:].replace("/", "_")))
        with tarfile.open(os.path.join(self.out, "record.tgz"), "w:gz") as t:
            t.add(os.path.join(self.out, "record"), "record")
        if not self.a.work:
            shutil.rmtree(self.dir, ignore_errors=True)


def answers(port):
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex(("127.0.0.1", port)) == 0


def wait(what, condition, seconds, every=0.05):
    end = time.monotonic() + seconds
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > end:
            raise TimeoutError(f"never: {what}")
        time.sleep(every)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid):
    out = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with open(path) as f:
            out += [int(c) for c in f.read().split()]
    return out


def is_helper(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        return b"pipedeck-gpu" in f.read()


class Helper:
    """A pipedeck-gpu of our own: a second pair of eyes."""

    def __init__(self, run):
        self.p = subprocess.Popen(["pipedeck-gpu"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=run.env, text=True)
        run.ends.append(self.p)
        self.id = 0

    def ask(self):
        while True:
            self.id += 1
            self.p.stdin.write(json.dumps({"id": self.id}) + "\n")
            self.p.stdin.flush()
            a = json.loads(self.p.stdout.readline())
            if a.get("code") != 27:  # not ready yet
                return a

    def close(self):
        self.p.stdin.close()
        self.p.wait(10)


def used(answer):
    return sum(g["mem_used_bytes"] or 0 for g in answer["gpus"])


class Deck:
    """One deck in a folder of its own."""

    def __init__(self, run, name, spec):
        self.run, self.name = run, name
        self.dir = os.path.join(run.dir, name)
        os.makedirs(os.path.join(self.dir, "data"), exist_ok=True)
        os.makedirs(os.path.join(run.buckets, name), exist_ok=True)
        self.spec = os.path.join(self.dir, "pipedeck.yaml")
        with open(self.spec, "w") as f:
            f.write(spec)
        for script in ("extract.py", "states.py", "samples.py", "trouble.py", "fake_states.py"):
            shutil.copy(os.path.join(HERE, script), self.dir)
        self.snaps, self.stopping, self.thread = [], False, None
        run.decks.append(self)

    def pd(self, *args, timeout=120):
        code, out, errs = self.run.call("pipedeck", *args, cwd=self.dir, timeout=timeout)
        if (code not in (0, 1, 2) and "is running" not in errs) or "internal" in errs:
            self.run.say(f"pipedeck {' '.join(args)}: {code} {errs.strip()[:500]}")
        return code, out, errs

    def must(self, *args, timeout=120):
        code, out, errs = self.pd(*args, timeout=timeout)
        if code != 0:
            raise RuntimeError(f"pipedeck {' '.join(args)} ends with {code}: {errs.strip()[:1000]}")
        return out

    def kill(self, target, timeout=120):
        """Kills workers; where the build cannot, stops them: they do not listen, so it ends the same way."""
        code, out, errs = self.pd("kill", target, "--confirm", self.name, timeout=timeout)
        if "no custody" in errs:
            code, out, errs = self.pd("stop", target, "--confirm", self.name, timeout=timeout)
        return code, out, errs

    def watch(self):
        """Keeps every snapshot of a second."""

        def loop():
            while not self.stopping:
                p = subprocess.Popen(["pipedeck", "--json", "--watch", "500ms"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                                     env=self.run.env, cwd=self.dir, text=True)
                self.run.ends.append(p)
                self.watcher = p
                for line in p.stdout:
                    self.snaps.append(json.loads(line))
                    if self.stopping:
                        break
                p.terminate()
                p.wait(10)

        self.thread = threading.Thread(target=loop, daemon=True)
        self.thread.start()

    def snap(self):
        return self.snaps[-1] if self.snaps else None

    def node(self):
        return self.snap()["nodes"][0] if self.snaps else None

    def stage(self):
        n = self.node()
        return n["stages"][0] if n and n["stages"] else None

    def agent_pid(self):
        n = self.node()
        return n["agent"]["pid"] if n and n["agent"] else None

    def end(self):
        if self.stopping:
            return
        self.stopping = True
        self.run.call("tmux", "-S", os.path.join(self.run.dir, "tmux"), "kill-server")
        try:
            self.watcher.terminate()
        except AttributeError:
            pass
        if self.thread:
            self.thread.join(10)
        _, history, _ = self.pd("history", "--json")
        self.run.record(self.name + ".history.json", history)
        for stage in self.stage_names:
            self.end_stage(stage)
        for args in (("agent", "stop"),):
            code, out, errs = self.pd(*args)
            self.run.say(f"{self.name}: {' '.join(args)}: {code} {errs.strip()[-200:]}")
        if self.snaps:
            with gzip.open(os.path.join(self.run.out, "record", self.name + ".snapshots.jsonl.gz"), "wt") as f:
                for s in self.snaps[:: max(1, len(self.snaps) // 400)]:
                    f.write(json.dumps(s) + "\n")

    def end_stage(self, stage):
        """Kills what is left of a stage; an action that runs, such as a start, is waited for."""
        for _ in range(60):
            code, _, errs = self.kill(stage)
            if code != 75 or "is running" not in errs:
                return
            time.sleep(0.5)

    stage_names = ("extract",)


def small_model(run, part):
    """A model that is made and loaded in seconds, unless the folder has one already."""
    model = os.path.join(run.dir, "model")
    if not run.real or os.path.exists(model):
        return
    code, out, errs = run.call(sys.executable, os.path.join(HERE, "make_model.py"), "--out", model + ".part", "--hidden", "1280", "--vocabulary", "32000", timeout=200)
    run.note(part, model=out.strip() or errs[-500:])
    if code:
        raise RuntimeError(errs[-2000:])
    os.rename(model + ".part", model)


def spec(run, name, stage):
    return f"""version: 1
deck: {name}
run: r1
workdir: {os.path.join(run.dir, name)}
store: {{bucket: {name}, endpoint: "{run.endpoint}", region: us-east-1, path_style: true, credentials: node}}
stages:
{stage}"""


def placed(run, per_gpu=1):
    return f"per_gpu: {per_gpu}" if run.gpu else f"count: {per_gpu}"


def extract_stage(run, samples, total, more=(), stall="60s", name="extract", layers=LAYERS, folder="hidden_states", extra=""):
    """A stage that extracts layers into data/FOLDER; extra are further lines of its spec."""
    model = os.path.join(run.dir, "model") if run.real else "0.25"
    backend = [] if run.real else ["--backend", "fake_states"]
    argv = ["python3", "extract.py", "--model", model, "--data", samples, "--out", f"data/{folder}", "--layers", layers, "--rank", "{rank}", "--world-size", "{world}",
            "--progress", f"data/progress_{folder}_{{rank}}.json", "--done", f"data/done_{folder}.txt", *backend, *more]
    return f"""  {name}:
    total: {total}
    workers:
      {placed(run)}
      command: {json.dumps(argv)}
      stop: {{signal: SIGTERM, grace: 60s}}
      restart: {{max: 3, backoff: 1s}}
      loading_timeout: 10m
      stall_after: {stall}
    outputs:
      {folder}: {{dir: data/{folder}, match: "hs_*.safetensors", format: safetensors, id: 'hs_(\\d+)\\.safetensors', key: "{folder}/{{path}}", after_upload: delete}}
    progress: {{json: "data/progress_{folder}_{{rank}}.json", done: processed, total: total, skipped: skipped, failed: failed}}
    done_set: {{file: data/done_{folder}.txt, form: lines}}
{extra}"""


def trouble_stage(run, argv, per_gpu=1, more=""):
    return f"""  trouble:
    workers:
      {placed(run, per_gpu)}
      command: {json.dumps(["python3", "trouble.py", *argv])}
      env: {{TROUBLE_RANK: "{{rank}}"}}
      stop: {{signal: SIGTERM, grace: 1s}}
      restart: {{max: 1, backoff: 10m}}
      loading_timeout: 5m
      stall_after: 15s
    progress: {{json: "data/trouble_{{rank}}.json", done: processed, total: total}}
{more}    outputs:
      none: {{dir: data/none, match: "*.bin"}}
"""


def digest(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


class Console:
    """A console in tmux."""

    def __init__(self, run, deck, width=140, height=42):
        self.run, self.socket = run, os.path.join(run.dir, "tmux")
        self.tmux("-u", "new-session", "-d", "-x", str(width), "-y", str(height), "sh", "-c", f"cd {deck.dir} && exec pipedeck --theme dark")

    def tmux(self, *args):
        return self.run.call("tmux", "-S", self.socket, *args)

    def screen(self, name=None):
        if name:
            self.run.record(name + ".ansi", self.tmux("capture-pane", "-p", "-e", "-N")[1])
        text = self.tmux("capture-pane", "-p")[1]
        if name:
            self.run.record(name + ".txt", text)
        return text

    def type(self, text):
        for ch in text:
            self.tmux("send-keys", "-l", ch)
            time.sleep(0.02)

    def press(self, key):
        self.tmux("send-keys", key)

    def close(self):
        self.tmux("kill-server")


def summary(d):
    """What the snapshots of a run say together."""
    stalls = [w["state_reason"] for s in d.snaps for st in s["nodes"][0]["stages"] for w in st["workers"] if w["state"] == "stalled"]
    rates = [s["nodes"][0]["stages"][0]["samples_per_second"] for s in d.snaps]
    waiting = [s["nodes"][0]["stages"][0]["outputs"][0]["queue"]["waiting_files"] for s in d.snaps]
    sources = sorted({s["nodes"][0]["gpu_source"]["kind"] for s in d.snaps})
    return {"snapshots": len(d.snaps), "stalls": len(stalls), "stall": stalls[0] if stalls else None, "highest_rate": max([r for r in rates if r] or [0]),
            "most_waiting": max(waiting or [0]), "waiting_at_the_end": waiting[-1] if waiting else None, "sources": sources}
