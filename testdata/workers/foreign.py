#!/usr/bin/env python3
"""Writes files as three extractors that exist elsewhere do: names, layout, in place or moved, skipping what exists.

Its first start ends in the middle of a file, as a kill would end them.
"""
import io
import json
import os
import shutil
import struct
import sys
import time
import zipfile

COUNT = 24


def torch_file(name):
    """What torch.save writes: a zip without compression."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", name * 200)
        z.writestr("archive/data/0", bytes(5000))
    return out.getvalue()


def safetensors_file(name):
    head = json.dumps({"hidden_states": {"dtype": "U8", "shape": [6000], "data_offsets": [0, 6000]}}).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + (name * 6000).encode()[:6000]


def save(path, data):
    """In place, in two pieces. The first start ends between them, once."""
    with open(path, "wb") as f:
        f.write(data[: len(data) // 2])
        f.flush()
        time.sleep(0.01)
        if os.path.exists("first") and os.path.basename(path).split(".")[0].endswith("9"):
            os.unlink("first")
            print("killed in the middle of " + path, flush=True)
            os._exit(1)
        f.write(data[len(data) // 2:])


def specforge(i, out):
    folder = os.path.join(out, f"rows_{i // 10 * 10}-{i // 10 * 10 + 10}")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"data_{i}.ckpt")
    if not os.path.exists(path):
        save(path, torch_file(str(i)))


def speculators(i, out):
    path = os.path.join(out, f"hs_{i}.safetensors")
    if os.path.exists(path):
        return
    os.makedirs("server", exist_ok=True)
    mine = os.path.join("server", f"req{i}.safetensors")
    open(mine + ".lock", "w").close()
    with open(mine, "wb") as f:
        f.write(safetensors_file(str(i)))
    if i % 3 == 0:  # from another filesystem: a copy, which can be seen half
        with open(mine, "rb") as f:
            save(path, f.read())
        os.unlink(mine)
    else:
        shutil.move(mine, path)


def modelopt(i, out):
    path = os.path.join(out, f"conv-{i:04x}-b9.pt" if i == 9 else f"conv-{i:04x}-b.pt")
    if not os.path.exists(path):
        save(path, torch_file(str(i)))


if __name__ == "__main__":
    kind, rank, world, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), "data/hidden_states"
    os.makedirs(out, exist_ok=True)
    if kind == "specforge":
        os.makedirs(os.path.join(out, "vocab_mapping"), exist_ok=True)
        if not os.path.exists(os.path.join(out, "vocab_mapping/vocab_mapping.pt")):
            with open(os.path.join(out, "vocab_mapping/.vocab.tmp"), "wb") as f:
                f.write(torch_file("vocabulary"))
            os.replace(os.path.join(out, "vocab_mapping/.vocab.tmp"), os.path.join(out, "vocab_mapping/vocab_mapping.pt"))
    for i in range(rank, COUNT, world):
        {"specforge": specforge, "speculators": speculators, "modelopt": modelopt}[kind](i, out)
    print("finished", flush=True)
