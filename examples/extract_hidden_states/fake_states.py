"""Stands in for states.py where there is no torch: what a sample's states are depends on its whole batch."""
import hashlib
import json
import os
import struct
import time

NOT_FINITE = 13  # a sample that begins with this token


def hold(size):
    """Tells the stand-in for the driver's library, if there is one, that this process holds memory of its GPU."""
    root, gpu = os.environ.get("NVIDIA_STUB_DIR"), os.environ.get("CUDA_VISIBLE_DEVICES")
    if root and gpu:
        os.makedirs(os.path.join(root, gpu), exist_ok=True)
        with open(os.path.join(root, gpu, str(os.getpid())), "w") as f:
            f.write(str(size))


class Extractor:
    def __init__(self, model, layers, dtype="bfloat16"):
        self.layers = layers
        self.seconds = float(model)  # what a batch takes
        hold(5_000_000_000)

    def states(self, samples):
        time.sleep(self.seconds)
        batch = hashlib.sha256(json.dumps([list(s) for s in samples]).encode()).digest()
        return [None if s[0] == NOT_FINITE else hashlib.sha256(batch + json.dumps(list(s)).encode()).digest() for s in samples]

    def save(self, path, sample, mask, states):
        ids = struct.pack(f"<{len(sample)}i", *sample)
        head = json.dumps({"input_ids": {"dtype": "I32", "shape": [len(sample)], "data_offsets": [0, len(ids)]},
                           "hidden_states": {"dtype": "U8", "shape": [32], "data_offsets": [len(ids), len(ids) + 32]}}).encode()
        head += b" " * (-len(head) % 8)
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(head)) + head + ids + states)
