"""One tenant of a shared GPU in PyTorch; knows nothing of gpushare. torch_share.py WHAT: says "ready", reads SECONDS, works so long and
prints its rate and latencies as JSON."""

import json
import sys
import time

import torch


def matmul():
    """Training-like: large products, submitted ahead."""
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    return lambda: a @ a


def attention():
    q = torch.randn(4, 16, 2048, 64, device="cuda", dtype=torch.float16)
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q)


def small():
    """Kernels of some microseconds."""
    x = torch.randn(1024, device="cuda")
    return lambda: [x.add_(1.0) for _ in range(100)]


def graph():
    x = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    for _ in range(3):
        x @ x
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for _ in range(20):
            y = x @ x
    captured.kept = y
    return captured.replay


def serve():
    """An inference loop: a request each 10 ms, waited for."""
    x = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    return lambda: [x @ x for _ in range(10)]


def main():
    what = sys.argv[1]
    step = globals()[what]()
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    print("ready", flush=True)
    seconds = float(sys.stdin.readline() or 0)
    began, done, latencies, waiting = time.monotonic(), 0, [], []
    while time.monotonic() - began < seconds:
        sent = time.monotonic()
        step()
        if what == "serve":
            torch.cuda.synchronize()
            latencies.append(time.monotonic() - sent)
            done += 1
            time.sleep(max(0.0, 0.01 - latencies[-1]))
            continue
        # Some tens of steps ahead, as a training loop that reads its loss now and then.
        event = torch.cuda.Event()
        event.record()
        waiting.append(event)
        if len(waiting) > 32:
            waiting.pop(0).synchronize()
            done += 1
    latencies.sort()
    rank = lambda part: latencies[min(int(len(latencies) * part), len(latencies) - 1)] * 1e3 if latencies else None
    print(json.dumps({"rate": done / seconds, "p50_ms": rank(0.5), "p99_ms": rank(0.99)}))


main()
