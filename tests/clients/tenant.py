"""Stands for scripts/gpu/torch_share.py where there is no PyTorch: says the same words in the same order, and does nothing."""

import json
import sys

print("ready", flush=True)
_, seconds = sys.stdin.readline().split()
print(json.dumps({"rate": 1 / float(seconds), "requests": 1, "p50_ms": 1, "p99_ms": 1}), flush=True)
