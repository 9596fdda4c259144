"""The commands of quota.c (see there) in Python over cuda-bindings; knows nothing of gpushare either."""

import sys

from cuda.bindings import driver

live = []


def start():
    error, *_ = driver.cuInit(0)
    if error:
        return error
    error, device = driver.cuDeviceGet(0)
    if error:
        return error
    error, context = driver.cuDevicePrimaryCtxRetain(device)
    return error or driver.cuCtxSetCurrent(context)[0]


def allocate(size):
    error, pointer = driver.cuMemAlloc(size)
    if not error:
        live.append((pointer, size))
    return error


def fill(size):
    before = len(live)
    while not (error := allocate(size)):
        pass
    return len(live) - before, error


def give_back(count):
    errors = [driver.cuMemFree(live.pop()[0])[0] for _ in range(min(count, len(live)))]
    return next((error for error in errors if error), 0)


def check():
    for number, (pointer, size) in enumerate(live):
        mark = number.to_bytes(8, "little")
        for at in (int(pointer), int(pointer) + size - 8):
            if driver.cuMemcpyHtoD(at, mark, 8)[0]:
                return 0
    good = 0
    for number, (pointer, size) in enumerate(live):
        head, tail = bytearray(8), bytearray(8)
        for buffer, at in ((head, int(pointer)), (tail, int(pointer) + size - 8)):
            if driver.cuMemcpyDtoH(buffer, at, 8)[0]:
                return good
        good += head == tail == number.to_bytes(8, "little")
    return good


for line in sys.stdin:
    word, *numbers = line.split()
    number = int(numbers[0]) if numbers else 0
    if word == "init":
        answer = [int(start())]
    elif word == "alloc":
        answer = [int(allocate(number))]
    elif word == "fill":
        answer = map(int, fill(number))
    elif word == "free":
        answer = [int(give_back(number))]
    elif word == "check":
        answer = [check()]
    elif word == "info":
        error, free, total = driver.cuMemGetInfo()
        answer = [free, total, int(error)]
    else:
        word, answer = "unknown", [word]
    print(word, *answer, flush=True)
