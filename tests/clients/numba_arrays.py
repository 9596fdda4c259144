"""numba-cuda: allocates device arrays until it is refused, drops them, goes on. One JSON object on standard output."""

import json

import numpy
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

context = cuda.current_context()
free, total = context.get_memory_info()
seen = {"total": int(total), "rounds": []}
for _ in range(2):
    held = []
    try:
        while True:
            held.append(cuda.device_array(64 << 20, dtype=numpy.uint8))
    except CudaAPIError as refused:
        error = str(refused)
    seen["rounds"].append([len(held), error])
    held.clear()
    context.deallocations.clear()
data = numpy.arange(1024)
seen["copied"] = bool((cuda.to_device(data).copy_to_host() == data).all())
print(json.dumps(seen))
