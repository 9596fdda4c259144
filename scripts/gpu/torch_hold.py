"""PyTorch that holds as much memory as it is told to, line by line as tests/clients/quota.c does; knows nothing of gpushare."""

import sys
import time

import torch

OUT_OF_MEMORY = 2
ENDS = 1 << 20  # bytes at each end of a tensor that are looked at
SIDE = 4096  # of the matrices that are multiplied
PRODUCTS = 500
WARM = 0.5  # seconds of the same work before: an idle card's clock is a fifth of what it can be
held = []
captured = []
# Its name moved in PyTorch 2.5.
OutOfMemory = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError


def alloc(size):
    try:
        held.append(torch.full((size,), len(held) + 1, dtype=torch.uint8, device="cuda"))
        torch.cuda.synchronize()
        return 0
    except OutOfMemory:
        return OUT_OF_MEMORY


def free(count):
    del held[len(held) - count:]
    torch.cuda.empty_cache()
    return 0


def kept(_):
    """How many are as they were written. Looked at on the host, because the device may have no room for a comparison."""
    return sum(all(bool((end.cpu() == number + 1).all()) for end in (tensor[:ENDS], tensor[-ENDS:])) for number, tensor in enumerate(held))


def graph(_):
    """Captures a graph that adds one to each element of a tensor, and counts its replays."""
    sums = torch.zeros(ENDS, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        sums.add_(1)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    sums.zero_()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        sums.add_(1)
    captured[:] = [made, sums, 0]
    return 0


def replay(_):
    """How often the graph was replayed if each element says so, else -1."""
    captured[2] += 1
    captured[0].replay()
    sums = captured[1].cpu()
    return captured[2] if bool((sums == captured[2]).all()) else -1


def product(_):
    """Microseconds of a product of two matrices."""
    a = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.float16)
    return timed(lambda: a @ a)


def copy(_):
    """Microseconds of a kernel that reads the first tensor and writes as many bytes over the second."""
    return timed(lambda: torch.add(held[0], 0, out=held[1]))


def timed(work):
    work()  # The first product loads cuBLAS.
    torch.cuda.synchronize()
    end = time.monotonic() + WARM
    while time.monotonic() < end:
        work()
        torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(PRODUCTS):
        work()
    torch.cuda.synchronize()
    return int((time.monotonic() - began) / PRODUCTS * 1e6)


def init(_):
    torch.cuda.init()
    return 0


WORDS = {"init": init, "alloc": alloc, "free": free, "check": kept, "kept": kept, "graph": graph, "replay": replay, "product": product, "copy": copy}


def main():
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        print(word, WORDS[word](int(number or 0)), flush=True)


if __name__ == "__main__":
    main()
