#!/usr/bin/env python3
"""Compares extracted files with a plain forward pass of the whole model, one sample at a time.

Prints the largest difference and the smallest cosine similarity as JSON. Exit code 0 if
every file agrees, 1 if one does not, 3 if there was nothing to compare.
"""
import argparse
import json
import os
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModel

from samples import open_samples


@torch.inference_mode()
def compare(model, layers, ids, states):
    """The largest difference, relative to the largest value, and the smallest cosine similarity of a token."""
    out = model(input_ids=torch.tensor([ids], device=model.device), use_cache=False, output_hidden_states=True)
    plain = torch.stack([out.hidden_states[k + 1][0] for k in layers], dim=1).float()
    got = states.to(model.device).float()
    if got.shape != plain.shape:
        raise SystemExit(f"check: shape {list(got.shape)} instead of {list(plain.shape)}")
    cosine = torch.nn.functional.cosine_similarity(got, plain, dim=-1).min()
    return (got - plain).abs().max().item(), plain.abs().max().item(), cosine.item()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--out", required=True, help="folder of the extracted files")
    p.add_argument("--layers", default="1,4,8,11,14")
    p.add_argument("--count", type=int, default=32, help="files to compare at most")
    p.add_argument("--exact", action="store_true", help="not one bit may differ (files made with --batch 1)")
    a = p.parse_args()
    layers = [int(k) for k in a.layers.split(",")]
    data = open_samples(a.data)
    model = AutoModel.from_pretrained(a.model, dtype=torch.bfloat16).eval().to("cuda" if torch.cuda.is_available() else "cpu")
    result = {"files": 0, "largest_difference": 0.0, "largest_value": 0.0, "smallest_cosine": 1.0, "wrong": []}
    for i in range(len(data)):
        path = os.path.join(a.out, f"hs_{i}.safetensors")
        if result["files"] >= a.count or not os.path.exists(path):
            continue
        f = load_file(path)
        ids, mask = data[i]
        same = f["input_ids"].tolist() == list(ids) and (mask is None or f["loss_mask"].tolist() == list(mask))
        difference, value, cosine = compare(model, layers, ids, f["hidden_states"])
        result["files"] += 1
        result["largest_difference"] = max(result["largest_difference"], difference)
        result["largest_value"] = max(result["largest_value"], value)
        result["smallest_cosine"] = min(result["smallest_cosine"], cosine)
        # bfloat16 has 8 bits: another order of sums may change the last of them, layer by layer.
        if not same or not cosine > 0.999 or not difference <= 0.05 * value or (a.exact and difference != 0):
            result["wrong"].append(i)
    print(json.dumps(result))
    return 3 if not result["files"] else 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
