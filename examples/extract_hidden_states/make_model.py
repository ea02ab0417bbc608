#!/usr/bin/env python3
"""Makes a randomly initialised Qwen3-shaped decoder model, about 2 billion parameters by default.

Nothing is downloaded: its states mean nothing, but cost what real ones cost.
"""
import argparse

import torch
from transformers import Qwen3Config, Qwen3Model

p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
p.add_argument("--out", required=True)
p.add_argument("--hidden", type=int, default=2560)
p.add_argument("--layers", type=int, default=16)
p.add_argument("--vocabulary", type=int, default=151936)
p.add_argument("--seed", type=int, default=0)
a = p.parse_args()

torch.manual_seed(a.seed)
config = Qwen3Config(
    hidden_size=a.hidden, num_hidden_layers=a.layers, intermediate_size=a.hidden * 19 // 5, vocab_size=a.vocabulary,
    num_attention_heads=max(1, a.hidden // 80), num_key_value_heads=max(1, a.hidden // 320), head_dim=128, max_position_embeddings=8192,
)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
    model = Qwen3Model(config)
model.save_pretrained(a.out)
print(f"{sum(t.numel() for t in model.parameters()) / 1e9:.2f} billion parameters in {a.out}")
