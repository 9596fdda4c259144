/* A CUDA driver program with physical memory of its own (cuMemCreate), as allocators with segments
 * that grow make it. It answers one command a line on its standard input and knows nothing of
 * gpushare. I is a slot, 0 to 63: one physical allocation, mapped in the segment of 64 GiB at a
 * place of its own, and perhaps elsewhere.
 *
 *   init               -> init RESULT
 *   gone, comes        -> WORD RESULT         the context is released; another one is made
 *   make I BYTES KINDS -> make RESULT         cuMemCreate; KINDS 1: it can be exported
 *   map I              -> map RESULT          at its place, with access
 *   again I            -> again RESULT        at a second place, read only
 *   unmap I, drop I    -> unmap RESULT        the first mapping; a reference of the handle
 *   unagain I          -> unagain RESULT      the second mapping
 *   grow I BYTES       -> grow RESULT         make, map and drop
 *   fill I SEED        -> fill RESULT
 *   check I SEED       -> check WRONG         bytes that are wrong, or 1000000000 and the driver's error
 *   through I SEED     -> through WRONG       the same through the second mapping
 *   write I            -> write RESULT        through the second mapping, by a kernel: an illegal address ends the context
 *   access I           -> access A B          cuMemGetAccess of device 0 at both places
 *   wait I, waits I    -> wait RESULT, waits SYNC    SYNC_MEMOPS
 *   retain I           -> retain SAME RESULT  whether the handle for the address is the slot's; keeps the reference
 *   export I           -> export RESULT       and imports it again: the reference is kept, the file is closed
 *   unimport           -> unimport RESULT     drops that
 *   file I             -> file RESULT         exports it as the file
 *   import I           -> import RESULT       a handle of the file's memory, in a slot of its own
 *   close              -> close RESULT        the file
 *   info               -> info FREE           cuMemGetInfo
 *   about I            -> about TYPE KINDS RESULT    cuMemGetAllocationPropertiesFromHandle
 *   unreserve          -> unreserve RESULT    cuMemAddressFree of all places, which is refused while anything is mapped
 *   plain BYTES        -> plain RESULT        cuMemAlloc
 *   free               -> free RESULT         the last of those */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/driver.h"
#include "common/bytes.h"

typedef unsigned long long dptr;
#define COUNT 64
#define ROOM (1ull << 30)

static dptr base, second, alone;
static unsigned long long handles[COUNT], imported;
static size_t sizes[COUNT], filed;
static int file = -1;
static void *kernel;

struct prop { int type, kinds; int place, id; void *meta; unsigned char compression, rdma; unsigned short usage; unsigned char rest[4]; };
struct access { int place, id; int flags; };

static dptr at(int i) { return base + i * ROOM; }
static dptr elsewhere(int i) { return second + i * ROOM; }

static int begin(void) {
    int device;
    void *context, *module;
    TRY(CALL("cuInit", (unsigned))(0));
    TRY(CALL("cuDeviceGet", (int *, int))(&device, 0));
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, device));
    TRY(CALL("cuCtxSetCurrent", (void *))(context));
    TRY(CALL("cuModuleLoadData", (void **, const void *))(&module, "any image"));
    TRY(CALL("cuModuleGetFunction", (void **, void *, const char *))(&kernel, module, "fill"));
    int (*reserve)(dptr *, size_t, size_t, dptr, unsigned long long) = (void *)symbol("cuMemAddressReserve");
    TRY(reserve(&base, COUNT * ROOM, 0, 0, 0));
    return reserve(&second, COUNT * ROOM, 0, 0, 0);
}

static int comes(void) {
    void *context;
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, 0));
    return CALL("cuCtxSetCurrent", (void *))(context);
}

static int make(int i, size_t bytes, int kinds) {
    struct prop prop = {1, kinds, 1, 0, NULL, 0, 1, 0, {0}};
    sizes[i] = bytes;
    return CALL("cuMemCreate", (unsigned long long *, size_t, void *, unsigned long long))(&handles[i], bytes, &prop, 0);
}

static int map(int i, dptr place, int flags) {
    struct access access = {1, 0, flags};
    TRY(CALL("cuMemMap", (dptr, size_t, size_t, unsigned long long, unsigned long long))(place, sizes[i], 0, handles[i], 0));
    return CALL("cuMemSetAccess", (dptr, size_t, void *, size_t))(place, sizes[i], &access, 1);
}

static int drop(unsigned long long handle) { return CALL("cuMemRelease", (unsigned long long))(handle); }
static int unmap(int i, dptr place) { return CALL("cuMemUnmap", (dptr, size_t))(place, sizes[i]); }

static int fill(int i, uint64_t seed) { return fill_bytes(at(i), sizes[i], seed); }

static long check(int i, dptr place, uint64_t seed) {
    int error;
    long wrong = check_bytes(place, sizes[i], seed, NULL, &error);
    return error ? 1000000000L + error : wrong;
}

static int put(int i) {
    dptr place = elsewhere(i);
    uint64_t count = 1;
    uint32_t value = 1;
    void *parameters[] = {&place, &count, &value};
    TRY(CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                                void **))(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    return CALL("cuStreamSynchronize", (void *))(NULL);
}

static int export(int i) {
    filed = sizes[i];
    return CALL("cuMemExportToShareableHandle", (void *, unsigned long long, int, unsigned long long))(&file, handles[i], 1, 0);
}

static int import(unsigned long long *handle) {
    return CALL("cuMemImportFromShareableHandle", (unsigned long long *, void *, int))(handle, (void *)(intptr_t)file, 1);
}

static int share(int i) {
    TRY(export(i));
    int result = import(&imported);
    return result ? result : close(file);
}

static size_t available(void) {
    size_t free = 0, all = 0;
    CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&free, &all);
    return free;
}

static unsigned long long access_at(dptr place) {
    struct { int place, id; } location = {1, 0};
    unsigned long long flags = 99;
    int result = CALL("cuMemGetAccess", (unsigned long long *, void *, dptr))(&flags, &location, place);
    return result ? 1000 + result : flags;
}

int main(void) {
    char line[256], name[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 3;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long a = 0, b = 0, c = 0;
        int one = 1, result = -1;
        if (sscanf(line, "%31s %llu %llu %llu", name, &a, &b, &c) < 1) continue;
        int i = a % COUNT;
        if (!strcmp(name, "init")) result = begin();
        else if (!strcmp(name, "gone")) result = CALL("cuDevicePrimaryCtxRelease_v2", (int))(0);
        else if (!strcmp(name, "comes")) result = comes();
        else if (!strcmp(name, "make")) result = make(i, b, c);
        else if (!strcmp(name, "map")) result = map(i, at(i), 3);
        else if (!strcmp(name, "again")) result = map(i, elsewhere(i), 1);
        else if (!strcmp(name, "unmap")) result = unmap(i, at(i));
        else if (!strcmp(name, "unagain")) result = unmap(i, elsewhere(i));
        else if (!strcmp(name, "unreserve")) result = CALL("cuMemAddressFree", (dptr, size_t))(base, COUNT * ROOM);
        else if (!strcmp(name, "unimport")) result = drop(imported);
        else if (!strcmp(name, "drop")) result = drop(handles[i]);
        else if (!strcmp(name, "grow")) {
            result = make(i, b, 1);
            if (!result) result = map(i, at(i), 3);
            if (!result) result = drop(handles[i]);
        } else if (!strcmp(name, "fill")) result = fill(i, b);
        else if (!strcmp(name, "write")) result = put(i);
        else if (!strcmp(name, "wait")) result = CALL("cuPointerSetAttribute", (const void *, int, dptr))(&one, 6, at(i));
        else if (!strcmp(name, "export")) result = share(i);
        else if (!strcmp(name, "file")) result = export(i);
        else if (!strcmp(name, "import")) {
            sizes[i] = filed;
            result = import(&handles[i]);
        } else if (!strcmp(name, "close")) result = close(file);
        else if (!strcmp(name, "info")) printf("info %zu\n", available());
        else if (!strcmp(name, "plain")) result = CALL("cuMemAlloc_v2", (dptr *, size_t))(&alone, a);
        else if (!strcmp(name, "free")) result = CALL("cuMemFree_v2", (dptr))(alone);
        else if (!strcmp(name, "check")) printf("check %ld\n", check(i, at(i), b));
        else if (!strcmp(name, "through")) printf("through %ld\n", check(i, elsewhere(i), b));
        else if (!strcmp(name, "access")) printf("access %llu %llu\n", access_at(at(i)), access_at(elsewhere(i)));
        else if (!strcmp(name, "waits")) {
            int sync = 7;
            CALL("cuPointerGetAttribute", (void *, int, dptr))(&sync, 6, at(i) + 4096);
            printf("waits %d\n", sync);
        } else if (!strcmp(name, "retain")) {
            unsigned long long kept = 0;
            int answer = CALL("cuMemRetainAllocationHandle", (unsigned long long *, void *))(&kept, (void *)(uintptr_t)at(i));
            printf("retain %d %d\n", kept == handles[i], answer);
        } else if (!strcmp(name, "about")) {
            struct prop prop;
            memset(&prop, 0, sizeof prop);
            int answer = CALL("cuMemGetAllocationPropertiesFromHandle", (void *, unsigned long long))(&prop, handles[i]);
            printf("about %d %d %d\n", prop.type, prop.kinds, answer);
        } else return 4;
        if (result >= 0) printf("%s %d\n", name, result);
    }
    return 0;
}
