/* A program that binds memory to multicast objects, on the driver multicast_driver.c. It executes
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
 *   release I          -> release RESULT    cuMemRelease; the slot keeps the number
 *   held               -> held FREE HELD    free memory by cuMemGetInfo, and what the driver holds */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/driver.h"

typedef unsigned long long dptr;
typedef uint64_t handle;

static handle slots[8];
static size_t sizes[8];

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
        if (sscanf(line, "at %d %d %d %zu", &type, &id, &i, &b) == 4) {
            printf("at %d\n", make(i % 8, b, type, id));
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
