"""nvidia-ml-py beside a CUDA allocation of its own: what NVML tells of memory and processes. JSON on standard output."""

import json
import os

import pynvml
from cuda.bindings import driver

pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)


def look():
    v1, v2 = pynvml.nvmlDeviceGetMemoryInfo(handle), pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return {
        "total": [v1.total, v2.total],
        "used": [v1.used, v2.used],
        "free": [v1.free, v2.free],
        "pids": [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)],
    }


seen = {"pid": os.getpid(), "before": look()}
assert driver.cuInit(0)[0] == 0
context = driver.cuDevicePrimaryCtxRetain(0)[1]
assert driver.cuCtxSetCurrent(context)[0] == 0
error, pointer = driver.cuMemAlloc(256 << 20)
assert error == 0, error
seen["holding"] = look()
assert driver.cuMemFree(pointer)[0] == 0
# NVML counts freed memory until the driver has it back, which may take some looks.
for _ in range(8):
    seen["after"] = look()
    if max(seen["after"]["used"]) < min(seen["holding"]["used"]):
        break
print(json.dumps(seen))
