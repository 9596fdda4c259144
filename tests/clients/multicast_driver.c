/* A driver with physical memory and multicast objects, which counts what keeps them as NVIDIA's page
 * of cuMemRelease says: memory and objects live until the last handle and the last mapping is gone,
 * and bound memory as long as it is bound. `held` is what is left: the bytes of memory that lives.
 * Anything else is the stub driver's. Built as libcuda.so.1. */
#define cuMemCreate stub_create
#define cuMemRelease stub_release
#define cuMemMap stub_map
#define cuMemUnmap stub_unmap
#include "../bench/stub_driver.c"
#undef cuMemCreate
#undef cuMemRelease
#undef cuMemMap
#undef cuMemUnmap

enum { MOST = 64 };

/* A handle is the place of its thing, and one more. A place is used again. */
static struct { int lives, is_object, handles, keeps; size_t bytes; } things[MOST];
static struct { uint64_t object, offset, memory; } bindings[MOST];
static struct { uint64_t at, thing; } mappings[MOST];

size_t held(void) {
    size_t bytes = 0;
    for (int i = 0; i < MOST; i++) if (things[i].lives) bytes += things[i].bytes;
    return bytes;
}

static int make(uint64_t *handle, size_t bytes, int is_object) {
    for (int i = 0; i < MOST; i++) {
        if (things[i].lives) continue;
        things[i].lives = things[i].handles = 1, things[i].keeps = 0;
        things[i].bytes = bytes, things[i].is_object = is_object;
        return *handle = i + 1, SUCCESS;
    }
    return OUT_OF_MEMORY;
}

static int has_handle(uint64_t handle) { return handle && handle <= MOST && things[handle - 1].lives && things[handle - 1].handles; }

static void end_if_unused(uint64_t thing) {
    if (!things[thing - 1].lives || things[thing - 1].handles || things[thing - 1].keeps) return;
    things[thing - 1].lives = 0;
    for (int i = 0; i < MOST; i++) {
        if (bindings[i].object != thing) continue;
        bindings[i].object = 0;
        things[bindings[i].memory - 1].keeps--;
        end_if_unused(bindings[i].memory);
    }
}

int cuMemCreate(uint64_t *handle, size_t bytes, const void *prop, uint64_t flags) { return (void)prop, (void)flags, make(handle, bytes, 0); }
int cuMulticastCreate(uint64_t *handle, const void *prop) { return (void)prop, make(handle, 0, 1); }
int cuMulticastAddDevice(uint64_t object, int device) { return (void)device, has_handle(object) ? SUCCESS : INVALID_VALUE; }

int cuMemRelease(uint64_t handle) {
    if (!has_handle(handle)) return INVALID_VALUE;
    things[handle - 1].handles--;
    return end_if_unused(handle), SUCCESS;
}

int cuMemMap(uint64_t at, size_t bytes, size_t offset, uint64_t handle, uint64_t flags) {
    (void)bytes, (void)offset, (void)flags;
    for (int i = 0; has_handle(handle) && i < MOST; i++) {
        if (mappings[i].thing) continue;
        mappings[i].at = at, mappings[i].thing = handle;
        return things[handle - 1].keeps++, SUCCESS;
    }
    return INVALID_VALUE;
}

int cuMemUnmap(uint64_t at, size_t bytes) {
    (void)bytes;
    for (int i = 0; i < MOST; i++) {
        uint64_t thing = mappings[i].thing;
        if (!thing || mappings[i].at != at) continue;
        mappings[i].thing = 0, things[thing - 1].keeps--;
        return end_if_unused(thing), SUCCESS;
    }
    return INVALID_VALUE;
}

int cuMemRetainAllocationHandle(uint64_t *handle, void *at) {
    for (int i = 0; i < MOST; i++) {
        if (!mappings[i].thing || mappings[i].at != (uintptr_t)at) continue;
        return *handle = mappings[i].thing, things[*handle - 1].handles++, SUCCESS;
    }
    return INVALID_VALUE;
}

int cuMulticastBindMem(uint64_t object, size_t offset, uint64_t memory, size_t from, size_t bytes, uint64_t flags) {
    (void)from, (void)bytes, (void)flags;
    if (!has_handle(object) || !has_handle(memory) || !things[object - 1].is_object || things[memory - 1].is_object) return INVALID_VALUE;
    for (int i = 0; i < MOST; i++) {
        if (bindings[i].object) continue;
        bindings[i].object = object, bindings[i].offset = offset, bindings[i].memory = memory;
        return things[memory - 1].keeps++, SUCCESS;
    }
    return OUT_OF_MEMORY;
}

int cuMulticastUnbind(uint64_t object, int device, size_t offset, size_t bytes) {
    (void)device, (void)bytes;
    for (int i = 0; has_handle(object) && i < MOST; i++) {
        if (bindings[i].object != object || bindings[i].offset != offset) continue;
        bindings[i].object = 0, things[bindings[i].memory - 1].keeps--;
        return end_if_unused(bindings[i].memory), SUCCESS;
    }
    return INVALID_VALUE;
}
