#!/usr/bin/env python3
"""Makes tokenised samples of random tokens as jsonl; the same for the same seed."""
import argparse
import json
import random

p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("--out", required=True)
p.add_argument("--count", type=int, default=2000)
p.add_argument("--length", default="256", help="tokens of a sample, or MIN-MAX")
p.add_argument("--too-long", type=int, default=0, help="further samples of 5,000 tokens")
p.add_argument("--vocabulary", type=int, default=151936)
p.add_argument("--seed", type=int, default=0)
a = p.parse_args()

rng = random.Random(a.seed)
low, _, high = a.length.partition("-")
with open(a.out, "w") as f:
    for i in range(a.count + a.too_long):
        n = 5000 if i >= a.count else rng.randint(int(low), int(high or low))
        ids = [rng.randrange(a.vocabulary) for _ in range(n)]
        f.write(json.dumps({"input_ids": ids, "loss_mask": [0] * (n // 4) + [1] * (n - n // 4)}) + "\n")
