#!/usr/bin/env python3
"""A worker that writes one safetensors file per sample, in place and slowly.

It stands in for a hidden-states extractor in tests: standard library only, one
contiguous share of the samples per rank, skips what the done-set names or what
is complete on disk, reports progress as JSON, and on SIGTERM or SIGINT finishes
the sample at hand. Exit code 0 when its share is finished, 128 + signal when it
was stopped before that.
"""
import argparse
import json
import os
import random
import signal
import struct
import sys
import time

CHUNKS = 8  # a file is written in this many pieces, so that it is seen half-written


def payload(index, size):
    """The bytes of a sample's file: the same for an index on every run."""
    block = random.Random(index).randbytes(min(size, 65536))
    data = (block * (size // len(block) + 1))[:size - size % 2]
    header = {
        "__metadata__": {"index": str(index)},
        "hidden_states": {"dtype": "F16", "shape": [len(data) // 2], "data_offsets": [0, len(data)]},
    }
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + data


def replace(path, text):
    tmp = f"{path}.{os.getpid()}.tmp"
    with open(tmp, "w") as f:
        f.write(text)
    os.replace(tmp, path)


def read_done(path):
    try:
        with open(path) as f:
            return {int(line) for line in f if line.strip()}
    except FileNotFoundError:
        return set()


def write_slowly(path, data, seconds):
    step = -(-len(data) // CHUNKS)
    with open(path, "wb") as f:
        for at in range(0, len(data), step):
            f.write(data[at:at + step])
            f.flush()
            if seconds > 0:
                time.sleep(seconds / CHUNKS)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--world-size", type=int, default=1)
    p.add_argument("--out", required=True)
    p.add_argument("--progress", default="", help="status file, JSON")
    p.add_argument("--done", default="", help="file with one done id a line")
    p.add_argument("--total", type=int, default=1000, help="samples of all ranks")
    p.add_argument("--size", type=int, default=1_200_000, help="bytes of one file's data")
    p.add_argument("--rate", type=float, default=10.0, help="samples per second of this rank; 0 = no limit")
    a = p.parse_args()

    got = []
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda n, _: got.append(n))

    os.makedirs(a.out, exist_ok=True)
    first = a.total * a.rank // a.world_size
    end = a.total * (a.rank + 1) // a.world_size
    done = read_done(a.done) if a.done else set()
    counts = {"processed": 0, "skipped": 0, "failed": 0, "total": end - first}

    def report():
        if a.progress:
            os.makedirs(os.path.dirname(os.path.abspath(a.progress)), exist_ok=True)
            replace(a.progress, json.dumps(dict(counts, updated=time.time())))

    print(f"rank {a.rank}/{a.world_size}: samples {first} to {end - 1}, {len(done)} ids in the done-set", flush=True)
    report()
    for index in range(first, end):
        if got:
            break
        path = os.path.join(a.out, f"hs_{index:06d}.safetensors")
        data = None
        if index not in done:
            data = payload(index, a.size)
            if os.path.exists(path) and os.path.getsize(path) == len(data):
                data = None
        if data is not None:
            write_slowly(path, data, 1 / a.rate if a.rate > 0 else 0)
            print(f"sample {index}: {len(data)} bytes", flush=True)
        counts["processed"] += 1
        report()
    report()
    if got and counts["processed"] < counts["total"]:
        print(f"rank {a.rank}: stopped by signal {got[0]} after {counts['processed']} samples", flush=True)
        return 128 + got[0]
    print(f"rank {a.rank}: finished", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
