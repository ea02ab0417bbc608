#!/usr/bin/env python3
"""A worker that survives the first signal, as in the second incident.

It ignores SIGTERM and SIGINT, has a child in a session of its own that does the
same, and says in a simulated GPU's file how much memory it holds.
"""
import json
import os
import signal
import sys
import time


def hold(gpu_dir, rank, pid, mem):
    path = os.path.join(gpu_dir, f"gpu-{rank}.json")
    with open(path + ".tmp", "w") as f:
        json.dump({"pid": pid, "mem_bytes": mem, "util_percent": 90, "power_watts": 500, "temp_celsius": 60}, f)
    os.replace(path + ".tmp", path)


def main():
    gpu_dir, rank, shm = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, signal.SIG_IGN)
    os.makedirs(shm, exist_ok=True)
    with open(os.path.join(shm, f"shard-{rank}.bin"), "wb") as f:
        f.write(os.urandom(1 << 16))
    if os.fork() == 0:
        os.setsid()
    else:
        hold(gpu_dir, rank, os.getpid(), 58_000_000_000)
    print("running", flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
