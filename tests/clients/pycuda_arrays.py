"""PyCUDA, which is linked to libcuda.so.1: sees its quota, hits it, frees, goes on. One JSON object on standard output."""

import json

import pycuda.driver as cuda

cuda.init()
context = cuda.Device(0).make_context()
free, total = cuda.mem_get_info()
seen = {"total": total, "device_total": cuda.Device(0).total_memory(), "rounds": []}
for _ in range(2):
    held = []
    try:
        while True:
            held.append(cuda.mem_alloc(64 << 20))
    except cuda.MemoryError as refused:
        error = str(refused)
    seen["rounds"].append([len(held), error])
    for pointer in held:
        pointer.free()
    held.clear()
context.pop()
print(json.dumps(seen))
