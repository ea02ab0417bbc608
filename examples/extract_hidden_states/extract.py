#!/usr/bin/env python3
"""Writes the hidden states of chosen layers of a decoder model, one safetensors file a sample.

Reads tokenised samples (arrow, parquet or jsonl with input_ids, loss_mask), computes
them in batches of like length, and writes OUT/hs_N.safetensors, N being the row
number: hidden_states [tokens, layers, hidden], input_ids, loss_mask. Rank r of w does
every w-th batch.

A file appears under its name only when it is whole. What is in the done-set or on disk
is not computed again. SIGTERM or SIGINT: the batch at hand is finished, what is
computed is written, and the exit code is 128 + the signal. Exit code 0: the share is
finished. Samples that are too long or whose states are not finite are counted and
named in the progress file, and never written.
"""
import argparse
import importlib
import json
import os
import queue
import shutil
import signal
import sys
import threading
import time

from samples import batches_of, open_samples


class Progress:
    """The status file: replaced as a whole, at most twice a second."""

    def __init__(self, path):
        self.path, self.last = path, 0.0
        self.lock = threading.Lock()
        self.counts = {"processed": 0, "skipped": 0, "failed": 0, "total": 0, "phase": "loading",
                       "too_long": [], "not_finite": [], "written": 0, "seconds": 0.0}
        self.begin = time.monotonic()

    def add(self, **more):
        with self.lock:
            for k, v in more.items():
                if isinstance(v, int):
                    self.counts[k] += v
                elif isinstance(v, list):
                    self.counts[k] = (self.counts[k] + v)[:100]
                else:
                    self.counts[k] = v

    def write(self, force=False):
        now = time.monotonic()
        if not self.path or (not force and now - self.last < 0.5):
            return
        self.last = now
        with self.lock:
            self.counts["seconds"] = round(now - self.begin, 3)
            text = json.dumps(self.counts)
        folder = os.path.dirname(os.path.abspath(self.path))
        os.makedirs(folder, exist_ok=True)
        tmp = os.path.join(folder, f".tmp-{os.getpid()}-{os.path.basename(self.path)}")
        with open(tmp, "w") as f:
            f.write(text)
        os.replace(tmp, self.path)


class Writers:
    """Threads that write finished samples, a bounded number of them behind the model."""

    def __init__(self, save, progress, threads):
        self.save, self.progress, self.error = save, progress, None
        self.jobs = queue.Queue(maxsize=4 * threads)
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(threads)]
        for t in self.threads:
            t.start()

    def run(self):
        while (job := self.jobs.get()) is not None:
            if self.error is None:
                try:
                    path, tmp, sample, mask, states = job
                    self.save(tmp, sample, mask, states)
                    os.chmod(tmp, 0o644)
                    os.replace(tmp, path)
                    self.progress.add(processed=1, written=1)
                except Exception as e:  # the main thread raises it
                    self.error = e
            self.jobs.task_done()
        self.jobs.task_done()

    def put(self, job):
        self.check()
        self.jobs.put(job)

    def check(self):
        if self.error is not None:
            raise self.error

    def finish(self):
        for _ in self.threads:
            self.jobs.put(None)
        for t in self.threads:
            t.join()
        self.check()


def read_done(path):
    """The ids of the done-set, one a line."""
    try:
        with open(path) as f:
            return {int(line) for line in f if line.strip()}
    except FileNotFoundError:
        return set()


def cached(data, folder):
    """The data set's copy in folder, made once: its name says whose copy it is."""
    at = os.stat(data)
    copy = os.path.join(folder, f"{at.st_ino}-{at.st_mtime_ns}-" + os.path.basename(os.path.normpath(data)))
    if not os.path.exists(copy):
        os.makedirs(folder, exist_ok=True)
        part = os.path.join(folder, f".tmp-{os.getpid()}")
        (shutil.copytree if os.path.isdir(data) else shutil.copyfile)(data, part)
        os.rename(part, copy)
    return copy


def file_of(out, index):
    return os.path.join(out, f"hs_{index}.safetensors")


def say(text):
    print(time.strftime("%H:%M:%S ") + text, flush=True)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, help="folder of a Hugging Face decoder model")
    p.add_argument("--data", required=True, help=".jsonl, .parquet or .arrow file, or a folder of the latter two")
    p.add_argument("--out", required=True)
    p.add_argument("--layers", default="1,4,8,11,14", help="decoder layers whose outputs are kept, from 0")
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--world-size", type=int, default=1)
    p.add_argument("--cache", default="", help="folder in memory (/dev/shm/NAME) that the data set is copied to and read from; whoever ends the stage removes it")
    p.add_argument("--progress", default="", help="status file, JSON")
    p.add_argument("--done", default="", help="done-set: one id a line")
    p.add_argument("--max-length", type=int, default=4096, help="longer samples are skipped and counted")
    p.add_argument("--batch", type=int, default=16, help="samples in a batch at most")
    p.add_argument("--batch-tokens", type=int, default=16384, help="tokens in a batch at most, with padding")
    p.add_argument("--dtype", default="bfloat16")
    p.add_argument("--writers", type=int, default=4, help="threads that write files")
    p.add_argument("--pause", type=float, default=0.0, help="seconds between two batches, for trying things out")
    p.add_argument("--backend", default="states", help="module with the Extractor; the tests use one without torch")
    return p.parse_args()


def main():
    a = arguments()
    stop = []
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda n, _frame: stop.append(n))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS is not deterministic
    os.makedirs(a.out, exist_ok=True)
    for name in os.listdir(a.out):  # what a killed process of this rank left behind
        if name.startswith(f".tmp-r{a.rank}-"):
            os.unlink(os.path.join(a.out, name))
    progress = Progress(a.progress)
    progress.write(force=True)

    say(f"reading {a.data}")
    data = open_samples(cached(a.data, a.cache) if a.cache else a.data)
    lengths = data.lengths()
    mine = batches_of(lengths, a.max_length, a.batch, a.batch_tokens)[a.rank :: a.world_size]
    too_long = [i for i, n in enumerate(lengths) if n > a.max_length or n == 0][a.rank :: a.world_size]
    done = read_done(a.done) if a.done else set()
    done.update(i for b in mine for i in b if os.path.exists(file_of(a.out, i)))
    already = sum(i in done for b in mine for i in b)
    progress.add(total=sum(map(len, mine)) + len(too_long), processed=already, skipped=len(too_long), too_long=too_long)
    say(f"rank {a.rank} of {a.world_size}: {progress.counts['total']} samples, {already} done, {len(too_long)} too long or empty")
    progress.write(force=True)
    todo = [b for b in mine if not all(i in done for i in b)]
    if todo and not stop:
        extract(a, data, todo, done, progress, stop)
    left = progress.counts["total"] - sum(progress.counts[k] for k in ("processed", "skipped", "failed"))
    progress.add(phase="stopped" if left else "done")
    progress.write(force=True)
    say(f"{'stopped' if left else 'finished'}: {progress.counts['written']} written, {left} left, not finite: {progress.counts['failed']}")
    return 128 + stop[0] if left and stop else 0


def extract(a, data, todo, done, progress, stop):
    say(f"loading {a.model}")
    layers = [int(k) for k in a.layers.split(",")]
    model = importlib.import_module(a.backend).Extractor(a.model, layers, a.dtype)
    say("model loaded")
    progress.add(phase="running")
    writers = Writers(model.save, progress, a.writers)
    for batch in todo:
        if stop:
            say(f"signal {stop[0]}: finishing what is computed")
            progress.add(phase="draining")
            break
        # The whole batch is computed, also where some of it is done: see batches_of.
        rows = [data[i] for i in batch]
        for i, (ids, mask), states in zip(batch, rows, model.states([r[0] for r in rows])):
            if i in done:
                continue
            if states is None:
                say(f"sample {i}: states are not finite")
                progress.add(failed=1, not_finite=[i])
                continue
            writers.put((file_of(a.out, i), os.path.join(a.out, f".tmp-r{a.rank}-{i}"), ids, mask, states))
        progress.write()
        if a.pause:
            time.sleep(a.pause)
    writers.finish()


if __name__ == "__main__":
    sys.exit(main())
