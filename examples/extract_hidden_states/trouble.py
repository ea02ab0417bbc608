#!/usr/bin/env python3
"""A worker that goes wrong on purpose, to see what is said of it.

  hold GB          holds memory of the GPU until it is ended
  fork GB          leaves a child behind by a double fork, with a clean environment, that holds the memory
  load SECONDS     loads: reads files and takes memory for so long, then produces
  spin             makes five outputs, then loops on the GPU
  wait             makes five outputs, then waits for a lock that nobody gives back
  oom              asks for more memory than the GPU has
"""
import json
import os
import signal
import sys
import threading
import time

GB = 10**9


def take(size):
    import torch

    return torch.ones(int(size), dtype=torch.uint8, device="cuda")


def produced(n, total=1000):
    rank = os.environ.get("TROUBLE_RANK", "0")
    os.makedirs("data", exist_ok=True)
    with open(f"data/.tmp-{rank}", "w") as f:
        json.dump({"processed": n, "total": total}, f)
    os.replace(f"data/.tmp-{rank}", f"data/trouble_{rank}.json")


def hold(size):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kept = take(float(size) * GB)
    print(f"holding {kept.numel()} bytes, pid {os.getpid()}", flush=True)
    threading.Event().wait()


def fork(size):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            keep = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "HOME")}
            os.execve(sys.executable, [sys.executable, os.path.abspath(__file__), "hold", size], keep)
        os._exit(0)
    os.wait()
    hold("1")


def load(seconds):
    produced(0)
    kept, end, n = [], time.monotonic() + float(seconds), 0
    while time.monotonic() < end:
        kept.append(take(0.2 * GB))
        with open(sys.executable, "rb") as f:
            f.read()
        time.sleep(1)
    while True:
        n += 1
        produced(n)
        time.sleep(0.5)


def some_outputs():
    kept = take(2 * GB)
    produced(0)
    time.sleep(2)
    for n in range(1, 6):
        produced(n)
        time.sleep(1)
    return kept


def spin():
    import torch

    kept = some_outputs()  # noqa: F841 the memory stays taken
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    while True:
        for _ in range(100):
            a @ a
        torch.cuda.synchronize()


def wait():
    kept = some_outputs()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
    del kept


def oom():
    some_outputs()
    take(1000 * GB)


if __name__ == "__main__":
    name, args = sys.argv[1], sys.argv[2:]
    if name == "by-rank":  # one of the arguments, by rank
        name, *args = args[int(os.environ["TROUBLE_RANK"])].split(":")
    {"hold": hold, "fork": fork, "load": load, "spin": spin, "wait": wait, "oom": oom}[name](*args)
