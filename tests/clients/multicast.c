/* A program that binds memory to multicast objects and to tiles of a sparse array, on the driver multicast_driver.c. It executes
 * the commands of its standard input, with one answer a line. I, J, O are slots for handles, 0 to 7.
 *
 *   init               -> init RESULT       cuInit
 *   make I BYTES       -> make RESULT       cuMemCreate on device 0
 *   at TYPE ID I BYTES -> at RESULT         the same at that location
 *   object O           -> object RESULT     cuMulticastCreate, and device 0 is added
 *   bind O I OFFSET    -> bind RESULT       cuMulticastBindMem of all of I
 *   unbind O OFFSET BYTES -> unbind RESULT  cuMulticastUnbind of device 0
 *   map I, unmap I     -> map RESULT        at an address of the slot's own
 *   retain I J         -> retain RESULT     cuMemRetainAllocationHandle at that address of I, into J
 *   context I          -> context RESULT    cuCtxCreate
 *   destroy I          -> destroy RESULT    cuCtxDestroy
 *   sparse, levels     -> sparse RESULT     the array is made, by cuArray3DCreate or by cuMipmappedArrayCreate
 *   tiles I X Y W H    -> tiles RESULT      cuMemMapArrayAsync: all of I's memory behind W x H tiles from there
 *   untile X Y W H     -> untile RESULT     the same, unmapped
 *   tail I AT COUNT    -> tail RESULT       COUNT tiles of the tail; with I 8 they are unmapped
 *   dmabuf I COUNT     -> dmabuf RESULT     cuMemGetHandleForAddressRange of COUNT slots' addresses from I's on
 *   close              -> close RESULT      that file
 *   release I          -> release RESULT    cuMemRelease; the slot keeps the number
 *   held               -> held FREE HELD    free memory by cuMemGetInfo, and what the driver holds */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/driver.h"

typedef unsigned long long dptr;
typedef uint64_t handle;

static handle slots[8];
static void *contexts[8], *array = &slots;
static size_t sizes[8];
static int file;

static dptr place(int i) { return ((dptr)i + 1) << 32; }

static int object(int i) {
    struct { unsigned devices; size_t size; unsigned long long kinds, flags; } prop = {1, 512 << 20, 0, 0};
    sizes[i] = 512 << 20;
    TRY(CALL("cuMulticastCreate", (handle *, const void *))(&slots[i], &prop));
    return CALL("cuMulticastAddDevice", (handle, int))(slots[i], 0);
}

static int make(int i, size_t bytes, int place, int id) {
    struct { int type, kinds, place, id; void *security; unsigned char flags[8]; } prop = {1, 0, place, id, NULL, {0}};
    sizes[i] = bytes;
    return CALL("cuMemCreate", (handle *, size_t, const void *, uint64_t))(&slots[i], bytes, &prop, 0);
}

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

/* An operation of memory of slot I, or of none. */
static struct map_info operation(int i) {
    struct map_info info = {.array = array, .operation = i < 8 ? 1 : 2, .memory = i < 8 ? slots[i] : 0, .devices = 1};
    return info;
}

static int send(struct map_info *info) {
    return CALL("cuMemMapArrayAsync", (struct map_info *, unsigned, void *))(info, 1, NULL);
}

static int tile(int i, unsigned x, unsigned y, unsigned width, unsigned height) {
    struct map_info info = operation(i);
    info.level.x = 64 * x, info.level.y = 64 * y;
    info.level.width = 64 * width, info.level.height = 64 * height, info.level.depth = 1;
    return send(&info);
}

static int tail(int i, unsigned at, unsigned count) {
    struct map_info info = operation(i);
    info.is_tail = 1, info.tail.offset = at * 65536ull, info.tail.size = count * 65536ull;
    return send(&info);
}

struct descriptor { size_t width, height, depth; unsigned format, channels, flags; };
static const struct descriptor SPARSE = {512, 512, 0, 1, 4, 0x40};

static int run(const char *command, int i, size_t b, size_t c) {
    int j = b % 8;
    if (!strcmp(command, "init")) return CALL("cuInit", (unsigned))(0);
    if (!strcmp(command, "make")) return make(i, b, 1, 0);
    if (!strcmp(command, "object")) return object(i);
    if (!strcmp(command, "bind"))
        return CALL("cuMulticastBindMem", (handle, size_t, handle, size_t, size_t, uint64_t))(slots[i], c, slots[j], 0, sizes[j], 0);
    if (!strcmp(command, "unbind")) return CALL("cuMulticastUnbind", (handle, int, size_t, size_t))(slots[i], 0, b, c);
    if (!strcmp(command, "map")) return CALL("cuMemMap", (dptr, size_t, size_t, handle, uint64_t))(place(i), sizes[i], 0, slots[i], 0);
    if (!strcmp(command, "unmap")) return CALL("cuMemUnmap", (dptr, size_t))(place(i), sizes[i]);
    if (!strcmp(command, "retain")) return CALL("cuMemRetainAllocationHandle", (handle *, void *))(&slots[j], (void *)(uintptr_t)place(i));
    if (!strcmp(command, "dmabuf"))
        return CALL("cuMemGetHandleForAddressRange", (void *, dptr, size_t, int, unsigned long long))(&file, place(i), b << 32, 1, 0);
    if (!strcmp(command, "context")) return CALL("cuCtxCreate_v2", (void **, unsigned, int))(&contexts[i], 0, 0);
    if (!strcmp(command, "destroy")) return CALL("cuCtxDestroy_v2", (void *))(contexts[i]);
    if (!strcmp(command, "sparse")) return CALL("cuArray3DCreate_v2", (void **, const struct descriptor *))(&array, &SPARSE);
    if (!strcmp(command, "levels")) return CALL("cuMipmappedArrayCreate", (void **, const struct descriptor *, unsigned))(&array, &SPARSE, 4);
    if (!strcmp(command, "close")) return close(file);
    if (!strcmp(command, "release")) return CALL("cuMemRelease", (handle))(slots[i]);
    return -1;
}

int main(void) {
    char line[256], command[64];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        int i = 0;
        size_t b = 0, c = 0;
        if (sscanf(line, "%63s %d %zu %zu", command, &i, &b, &c) < 1) continue;
        int type, id;
        unsigned x, y, w, h;
        if (sscanf(line, "at %d %d %d %zu", &type, &id, &i, &b) == 4) {
            printf("at %d\n", make(i % 8, b, type, id));
        } else if (sscanf(line, "tiles %d %u %u %u %u", &i, &x, &y, &w, &h) == 5) {
            printf("tiles %d\n", tile(i % 8, x, y, w, h));
        } else if (sscanf(line, "untile %u %u %u %u", &x, &y, &w, &h) == 4) {
            printf("untile %d\n", tile(8, x, y, w, h));
        } else if (sscanf(line, "tail %d %u %u", &i, &x, &w) == 3) {
            printf("tail %d\n", tail(i, x, w));
        } else if (!strcmp(command, "held")) {
            size_t free = 0, total = 0;
            if (CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&free, &total)) return 3;
            printf("held %zu %zu\n", free, ((size_t(*)(void))symbol("held"))());
        } else {
            printf("%s %d\n", command, run(command, i % 8, b, c));
        }
    }
    return 0;
}
