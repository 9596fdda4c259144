"""One tenant of a shared GPU in PyTorch; knows nothing of gpushare. torch_share.py WHAT: says "ready", reads BEGIN SECONDS (BEGIN: a moment of the
monotonic clock), works from then on for so long and prints its rate and latencies as JSON."""

import json
import sys
import time

import torch

AHEAD = 32  # steps submitted before the oldest is waited for, as a training loop that reads its loss now and then
PERIOD = 0.01  # seconds from one request of `serve` to the next


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
    """A CUDA graph of 20 products, replayed."""
    x = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            x @ x
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for _ in range(20):
            y = x @ x
    # The graph's inputs and outputs live as long as it can be replayed.
    return lambda kept=(x, y): captured.replay()


def copies():
    """Products of several shapes behind copies of 64 MB from pinned memory, and a second stream."""
    host = torch.empty(64 << 20, dtype=torch.uint8).pin_memory()
    device = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    shapes = [torch.randn(size, size, device="cuda", dtype=torch.float16) for size in (256, 1024, 2048, 4096)]
    side = torch.cuda.Stream()

    def step():
        device.copy_(host, non_blocking=True)
        for a in shapes:
            a @ a
        with torch.cuda.stream(side):
            shapes[1] @ shapes[1]
    return step


def memsets():
    """Nothing but memsets of 1 GiB."""
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    return lambda: x.zero_()


def serve():
    """An inference loop: a request each 10 ms, waited for."""
    x = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    return lambda: [x @ x for _ in range(10)]


def requests(step, end):
    """One after the other; how long each took, in seconds."""
    latencies = []
    while time.monotonic() < end:
        sent = time.monotonic()
        step()
        torch.cuda.synchronize()
        latencies.append(time.monotonic() - sent)
        time.sleep(max(0.0, PERIOD - latencies[-1]))
    return latencies


def ahead(step, end):
    """Steps that the device has done by `end`."""
    done, waiting = 0, []
    while time.monotonic() < end:
        step()
        event = torch.cuda.Event()
        event.record()
        waiting.append(event)
        if len(waiting) > AHEAD:
            waiting.pop(0).synchronize()
            done += 1
    return done + sum(event.query() for event in waiting)


def main():
    what = sys.argv[1]
    step = {"matmul": matmul, "attention": attention, "small": small, "graph": graph, "copies": copies, "memsets": memsets, "serve": serve}[what]()
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    print("ready", flush=True)
    told = sys.stdin.readline().split()
    if not told:
        return  # Whoever started us has gone.
    begin, seconds = map(float, told)
    time.sleep(max(0.0, begin - time.monotonic()))
    if what == "serve":
        latencies = sorted(requests(step, begin + seconds))
        rank = {f"p{part}_ms": latencies[min(len(latencies) * part // 100, len(latencies) - 1)] * 1e3 for part in (50, 99)}
        print(json.dumps({"rate": len(latencies) / seconds, "requests": len(latencies), **rank}), flush=True)
    else:
        print(json.dumps({"rate": ahead(step, begin + seconds) / seconds}), flush=True)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
