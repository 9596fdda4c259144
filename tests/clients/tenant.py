"""Stands for scripts/gpu/torch_share.py where there is no PyTorch: says the same words in the same order, and does nothing.

Its rate is 1; under gpushare it is what GPUTEST_RATES says of its kind, such as "matmul=0.5 graph=0.3", and its steps take
what GPUTEST_STEPS says, in seconds, alone and under gpushare, such as "matmul=0.5:0.4"; else all of its time. It is there for
GPUTEST_STAYS seconds of its work, if that is set."""

import json
import os
import sys
import time

print("ready", flush=True)
begin, seconds = map(float, sys.stdin.readline().split())
if stays := os.environ.get("GPUTEST_STAYS"):
    time.sleep(max(0, begin + min(seconds, float(stays)) - time.monotonic()))
under = "LD_PRELOAD" in os.environ
rates, steps = (dict(pair.split("=") for pair in os.environ.get(name, "").split()) for name in ("GPUTEST_RATES", "GPUTEST_STEPS"))
step = steps.get(sys.argv[1], "1:1").split(":")[under]
rate = float(rates.get(sys.argv[1], 1)) if under else 1
print(json.dumps({"rate": rate, "step_ms": float(step) * 1e3, "requests": 1, "p50_ms": 1, "p99_ms": 1, "slowest_s_ms": [[0, 1]]}), flush=True)
