"""cuda-core: allocates buffers from the device's own memory resource until it is refused, closes them, goes on."""

import json

from cuda.core import Device

device = Device(0)
device.set_current()
stream = device.create_stream()
seen = {"rounds": []}
for _ in range(2):
    held = []
    try:
        while True:
            held.append(device.memory_resource.allocate(64 << 20, stream=stream))
    except Exception as refused:  # cuda-core's own error type has moved between releases; its text names CUDA's
        error = str(refused)
    seen["rounds"].append([len(held), error])
    for buffer in held:
        buffer.close(stream)
    stream.sync()
print(json.dumps(seen))
