"""Stands for scripts/gpu/torch_share.py where there is no PyTorch: says the same words in the same order, and does nothing.

Its rate is 1; under gpushare it is what GPUTEST_RATES says of its kind, such as "matmul=0.5 graph=0.3"."""

import json
import os
import sys

print("ready", flush=True)
sys.stdin.readline()
rates = dict(pair.split("=") for pair in os.environ.get("GPUTEST_RATES", "").split() if "LD_PRELOAD" in os.environ)
print(json.dumps({"rate": float(rates.get(sys.argv[1], 1)), "requests": 1, "p50_ms": 1, "p99_ms": 1}), flush=True)
