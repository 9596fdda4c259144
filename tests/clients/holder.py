"""Stands for scripts/gpu/torch_hold.py where there is no PyTorch: the same words over the driver alone, as quota.c knows them.
Its graphs and its times are made up."""

import ctypes
import sys

SIZE, WORD, STRIDE = ctypes.c_size_t, ctypes.c_uint64, 2 << 20
cuda = ctypes.CDLL("libcuda.so.1")
held = []
replays = [0]


def init(_):
    context = ctypes.c_void_p()
    return cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context)


def words(number, size):
    return ((at, number << 32 | at >> 3) for at in (*range(0, size - 8, STRIDE), size - 8))


def alloc(size):
    address = WORD()
    if answer := cuda.cuMemAlloc_v2(ctypes.byref(address), SIZE(size)):
        return answer
    held.append((address.value, size))
    put = (cuda.cuMemcpyHtoD_v2(WORD(address.value + at), ctypes.byref(WORD(word)), SIZE(8)) for at, word in words(len(held), size))
    return next((answer for answer in put if answer), 0)


def free(count):
    freed = [cuda.cuMemFree_v2(WORD(held.pop()[0])) for _ in range(count)]
    return next((answer for answer in freed if answer), 0)


def has(address, at, word):
    read = WORD()
    return cuda.cuMemcpyDtoH_v2(ctypes.byref(read), WORD(address + at), SIZE(8)) == 0 and read.value == word


def kept(_):
    return sum(all(has(address, at, word) for at, word in words(number, size)) for number, (address, size) in enumerate(held, 1))


def replay(_):
    replays[0] += 1
    return replays[0]


WORDS = {"init": init, "alloc": alloc, "free": free, "check": kept, "kept": kept, "graph": lambda _: 0, "replay": replay,
         "product": lambda _: 1, "copy": lambda _: 1}

for line in sys.stdin:
    name, _, number = line.strip().partition(" ")
    print(name, WORDS[name](int(number or 0)), flush=True)
