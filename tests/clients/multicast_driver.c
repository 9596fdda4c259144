/* A driver with physical memory, multicast objects and one sparse array, which counts what keeps them
 * as NVIDIA's page of cuMemRelease says: memory and objects live until the last handle and the last
 * mapping is gone, and bound memory as long as it is bound. The array has one level of 8 x 8 tiles of
 * 64 x 64 elements, and a tail of 8 tiles of 64 KiB; a tile is mapped until something else is mapped
 * over it, it is unmapped, or the context ends in which the array was made. A file of mapped memory keeps it until it is closed. `held` is what is
 * left: the bytes of memory that lives.
 * Anything else is the stub driver's. Built as libcuda.so.1. */
#define cuMemCreate stub_create
#define cuMemRelease stub_release
#define cuMemMap stub_map
#define cuMemUnmap stub_unmap
#define cuCtxGetCurrent stub_current
#define cuCtxSetCurrent stub_set_current
#define cuCtxPushCurrent_v2 stub_push
#define cuCtxPopCurrent_v2 stub_pop
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include "../bench/stub_driver.c"
#undef cuMemCreate
#undef cuMemRelease
#undef cuMemMap
#undef cuMemUnmap
#undef cuCtxGetCurrent
#undef cuCtxSetCurrent
#undef cuCtxPushCurrent_v2
#undef cuCtxPopCurrent_v2

enum { MOST = 64 };

/* A handle is the place of its thing, and one more. A place is used again. */
static struct { int lives, is_object, handles, keeps; size_t bytes; } things[MOST];
static struct { uint64_t object, offset, memory; } bindings[MOST];
static struct { uint64_t at, thing; } mappings[MOST];
static struct { int number; uint64_t thing; } files[MOST];

static void end_if_unused(uint64_t thing);

static void see_closed_files(void) {
    for (int i = 0; i < MOST; i++) {
        uint64_t thing = files[i].thing;
        if (!thing || fcntl(files[i].number, F_GETFD) >= 0) continue;
        files[i].thing = 0, things[thing - 1].keeps--;
        end_if_unused(thing);
    }
}

size_t held(void) {
    size_t bytes = 0;
    see_closed_files();
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

/* A file of what is mapped from there on, which may be several. */
int cuMemGetHandleForAddressRange(int *number, uint64_t at, size_t bytes, int kind, uint64_t flags) {
    (void)flags;
    if (kind != 1) return INVALID_VALUE;
    *number = memfd_create("dma-buf", MFD_CLOEXEC);
    for (int i = 0, j = 0; i < MOST; i++) {
        if (!mappings[i].thing || mappings[i].at < at || mappings[i].at >= at + bytes) continue;
        while (j < MOST && files[j].thing) j++;
        if (j == MOST) return OUT_OF_MEMORY;
        files[j].number = *number, files[j].thing = mappings[i].thing;
        things[mappings[i].thing - 1].keeps++;
    }
    return SUCCESS;
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

enum { SIDE = 8, EDGE = 64, TAIL_TILE = 65536 };
static uint64_t tiles[SIDE][SIDE], tail[SIDE];

struct map_info {
    int resource_type;
    void *array;
    int is_tail;
    union {
        struct { uint32_t level, layer, x, y, z, width, height, depth; } level;
        struct { uint32_t layer; uint64_t offset, size; } tail;
    };
    int operation, handle_type;
    uint64_t memory, offset;
    uint32_t devices, flags, reserved[2];
};

static void put_tile(uint64_t *tile, const struct map_info *info) {
    uint64_t before = *tile;
    *tile = info->operation == 1 ? info->memory : 0;
    if (*tile) things[*tile - 1].keeps++;
    if (before) things[before - 1].keeps--, end_if_unused(before);
}

int cuMemMapArrayAsync(struct map_info *infos, unsigned count, void *stream) {
    (void)stream;
    for (unsigned i = 0; i < count; i++)
        if (infos[i].operation == 1 && !has_handle(infos[i].memory)) return INVALID_VALUE;
    for (; count--; infos++) {
        if (infos->is_tail)
            for (unsigned i = infos->tail.offset / TAIL_TILE; i < (infos->tail.offset + infos->tail.size) / TAIL_TILE; i++)
                put_tile(&tail[i], infos);
        else
            for (unsigned y = infos->level.y / EDGE; y < (infos->level.y + infos->level.height) / EDGE; y++)
                for (unsigned x = infos->level.x / EDGE; x < (infos->level.x + infos->level.width) / EDGE; x++)
                    put_tile(&tiles[y][x], infos);
    }
    return SUCCESS;
}

/* The contexts of the one thread, behind the primary one. */
static int context_places[4], contexts;
static void *stack[16] = {&context_storage}, *owner;
static int depth = 1;

int cuCtxGetCurrent(void **context) { return *context = stack[depth - 1], SUCCESS; }
int cuCtxSetCurrent(void *context) { return stack[depth - 1] = context, SUCCESS; }
int cuCtxPushCurrent_v2(void *context) { return stack[depth++] = context, SUCCESS; }
int cuCtxPopCurrent_v2(void **context) { return *context = stack[--depth], SUCCESS; }

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    (void)flags, (void)device;
    return cuCtxPushCurrent_v2(*context = &context_places[contexts++]);
}

int cuCtxDestroy_v2(void *context) {
    struct map_info none = {.operation = 2};
    if (context == stack[depth - 1]) depth--;
    for (int y = 0; owner == context && y < SIDE; y++) {
        put_tile(&tail[y], &none);
        for (int x = 0; x < SIDE; x++) put_tile(&tiles[y][x], &none);
    }
    return SUCCESS;
}

/* The array of the tiles. */
int cuArray3DCreate_v2(void **array, const void *descriptor) {
    (void)descriptor;
    return *array = tiles, cuCtxGetCurrent(&owner);
}
int cuMipmappedArrayCreate(void **array, const void *descriptor, unsigned levels) { return (void)levels, cuArray3DCreate_v2(array, descriptor); }
