"""PyTorch that holds as much memory as it is told to, line by line as tests/clients/quota.c does; knows nothing of gpushare."""

import sys

import torch

OUT_OF_MEMORY = 2
ENDS = 1 << 20  # bytes at each end of a tensor that are looked at
held = []
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


def check(_):
    """How many are as they were written. Looked at on the host, because the device may have no room for a comparison."""
    return sum(all(bool((end.cpu() == number + 1).all()) for end in (tensor[:ENDS], tensor[-ENDS:])) for number, tensor in enumerate(held))


def init(_):
    torch.cuda.init()
    return 0


def main():
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        print(word, {"init": init, "alloc": alloc, "free": free, "check": check}[word](int(number or 0)), flush=True)


if __name__ == "__main__":
    main()
