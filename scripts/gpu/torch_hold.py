"""PyTorch that holds what it is told to, line by line as tests/clients/quota.c does; knows nothing of gpushare."""

import sys

import torch

OUT_OF_MEMORY = 2
held = []


def alloc(size):
    try:
        held.append(torch.full((size,), len(held) + 1, dtype=torch.uint8, device="cuda"))
        return 0
    except torch.cuda.OutOfMemoryError:
        return OUT_OF_MEMORY


def free(count):
    del held[len(held) - count:]
    torch.cuda.empty_cache()
    return 0


def check(_):
    return sum(bool((tensor == number + 1).all()) for number, tensor in enumerate(held))


def init(_):
    torch.cuda.init()
    return 0


for line in sys.stdin:
    word, _, number = line.strip().partition(" ")
    print(word, {"init": init, "alloc": alloc, "free": free, "check": check}[word](int(number or 0)), flush=True)
