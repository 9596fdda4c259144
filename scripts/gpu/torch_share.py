"""One tenant of a shared GPU in PyTorch; knows nothing of gpushare. torch_share.py WHAT: says "ready", reads BEGIN SECONDS (BEGIN: a moment of the
monotonic clock), works from then on for so long and prints its rate and latencies as JSON."""

import ctypes
import json
import statistics
import sys
import time

import torch

AHEAD = 32  # steps submitted before the oldest is waited for, as a training loop that reads its loss now and then
SLOWEST = 10  # requests that are listed
PERIODS = {"serve": 0.01, "decode": 0.0}  # seconds from one request to the next, of kinds that wait for each


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
    return captured(1024, 20)


def decode():
    """A CUDA graph of about 10 ms, replayed and waited for, as a decoder's step."""
    return captured(4096, 40)


def captured(size, count):
    x = torch.randn(size, size, device="cuda", dtype=torch.float16)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            x @ x
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for _ in range(count):
            y = x @ x
    # The graph's inputs and outputs live as long as it can be replayed.
    return lambda kept=(x, y): made.replay()


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
    """Nothing but memsets of 1 GiB. The driver's own: `zero_` would launch a kernel."""
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    driver = ctypes.CDLL("libcuda.so.1")
    arguments = (ctypes.c_uint64(x.data_ptr()), ctypes.c_ubyte(0), ctypes.c_size_t(x.numel()), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))

    def step(kept=x):
        answer = driver.cuMemsetD8Async(*arguments)
        assert answer == 0, f"cuMemsetD8Async: {answer}"
    return step


def serve():
    """An inference loop: a request each 10 ms, waited for."""
    x = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    return lambda: [x @ x for _ in range(10)]


def requests(step, end, period):
    """One after the other: when each was sent, and how long it took, in seconds."""
    found = []
    while time.monotonic() < end:
        sent = time.monotonic()
        step()
        torch.cuda.synchronize()
        took = time.monotonic() - sent
        found.append((sent, took))
        time.sleep(max(0.0, period - took))
    return found


def ahead(step, end):
    """Steps that the device has done by `end`, and the milliseconds of the device's time from the beginning of each to its end."""
    took, waiting = [], []
    while time.monotonic() < end:
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        pair[0].record()
        step()
        pair[1].record()
        waiting.append(pair)
        if len(waiting) > AHEAD:
            first, last = waiting.pop(0)
            last.synchronize()
            took.append(first.elapsed_time(last))
    return len(took) + sum(last.query() for _, last in waiting), took


def main():
    what = sys.argv[1]
    step = {kind.__name__: kind for kind in (matmul, attention, small, graph, copies, memsets, serve, decode)}[what]()
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    print("ready", flush=True)
    told = sys.stdin.readline().split()
    if not told:
        return  # Whoever started us has gone.
    begin, seconds = map(float, told)
    time.sleep(max(0.0, begin - time.monotonic()))
    if what in PERIODS:
        found = requests(step, begin + seconds, PERIODS[what])
        latencies = sorted(took for _, took in found)
        rank = {f"p{part}_ms": latencies[-(-len(latencies) * part // 100) - 1] * 1e3 for part in (50, 99)}
        slowest = [(sent - begin, took * 1e3) for sent, took in sorted(found, key=lambda one: -one[1])[:SLOWEST]]
        print(json.dumps({"rate": len(latencies) / seconds, "requests": len(latencies), **rank, "slowest_s_ms": slowest}), flush=True)
    else:
        done, took = ahead(step, begin + seconds)
        # The lower quartile leaves out those that the device or the gate interrupted.
        step_ms = statistics.quantiles(took, n=4)[0] if len(took) > 1 else None
        print(json.dumps({"rate": done / seconds, "step_ms": step_ms}), flush=True)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
