"""cuda-bindings: sees its quota, hits it, frees, goes on. One JSON object on standard output."""

import json

from cuda.bindings import driver


def call(result):
    error, *values = result
    assert error == driver.CUresult.CUDA_SUCCESS, error
    return values[0] if len(values) == 1 else tuple(values)


def fill(chunk):
    held = []
    while True:
        error, pointer = driver.cuMemAlloc(chunk)
        if error != driver.CUresult.CUDA_SUCCESS:
            return held, error.name
        held.append(pointer)


call(driver.cuInit(0))
device = call(driver.cuDeviceGet(0))
call(driver.cuCtxSetCurrent(call(driver.cuDevicePrimaryCtxRetain(device))))
free, total = call(driver.cuMemGetInfo())
seen = {"total": total, "device_total": call(driver.cuDeviceTotalMem(device)), "free": free, "rounds": []}
for _ in range(2):
    held, error = fill(64 << 20)
    seen["rounds"].append([len(held), error])
    for pointer in held:
        call(driver.cuMemFree(pointer))
pool = call(driver.cuDeviceGetDefaultMemPool(device))
stream = call(driver.cuStreamCreate(0))
pointer = call(driver.cuMemAllocAsync(64 << 20, stream))
call(driver.cuMemFreeAsync(pointer, stream))
call(driver.cuStreamSynchronize(stream))
error, _ = driver.cuMemAllocAsync(total + 1, stream)
seen["async"] = error.name
print(json.dumps(seen))
