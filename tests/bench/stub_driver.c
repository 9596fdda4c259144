/* A CUDA driver that does next to nothing, so that what a call costs above it is the library's. One device, one context; memory is
 * addresses and no bytes. STUB_UUID (32 hex digits) is the device's UUID, for a daemon that must know it. Built as libcuda.so.1. */
#include <stdio.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2 };

static const uint64_t base = 0x7f0000000000ull, step = 512;
static uint64_t used, *freed, room;
static size_t freed_count;
static int context_storage;

int cuInit(unsigned flags) { return (int)(flags & 0); }
int cuDriverGetVersion(int *version) { return *version = 12080, SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = (size_t)64 << 30, (void)device, SUCCESS; }
int cuDeviceGetUuid(void *uuid, int device) {
    const char *text = getenv("STUB_UUID");
    (void)device;
    memset(uuid, 7, 16);
    for (int i = 0; text && i < 16; i++) sscanf(text + 2 * i, "%2hhx", (unsigned char *)uuid + i);
    return SUCCESS;
}
int cuDeviceGetUuid_v2(void *uuid, int device) { return cuDeviceGetUuid(uuid, device); }
int cuCtxGetCurrent(void **context) { return *context = &context_storage, SUCCESS; }
int cuCtxGetDevice(int *device) { return *device = 0, SUCCESS; }
int cuCtxPushCurrent_v2(void *context) { return (void)context, SUCCESS; }
int cuCtxPopCurrent_v2(void **context) { return cuCtxGetCurrent(context); }
int cuDevicePrimaryCtxRetain(void **context, int device) { return (void)device, cuCtxGetCurrent(context); }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return (void)device, *flags = 0, *active = 0, SUCCESS; }
int cuMemGetInfo_v2(size_t *available, size_t *all) { return *available = *all = (size_t)64 << 30, SUCCESS; }

int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
    (void)bytes;
    *at = base + step * (freed_count ? freed[--freed_count] : used++);
    return SUCCESS;
}

int cuMemFree_v2(uint64_t at) {
    if (freed_count == room) {
        room = room ? 2 * room : 1024;
        freed = realloc(freed, room * sizeof *freed);
        if (!freed) return OUT_OF_MEMORY;
    }
    freed[freed_count++] = (at - base) / step;
    return SUCCESS;
}

/* Physical memory and addresses are numbers. */
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    enum { HAS_VIRTUAL_MEMORY = 102 };
    (void)device;
    if (attribute != HAS_VIRTUAL_MEMORY) return INVALID_VALUE;
    return *value = 1, SUCCESS;
}
int cuMemGetAllocationGranularity(size_t *bytes, const void *prop, int kind) {
    return (void)prop, (void)kind, *bytes = (size_t)2 << 20, SUCCESS;
}
int cuMemAddressReserve(uint64_t *at, size_t bytes, size_t alignment, uint64_t near, uint64_t flags) {
    static uint64_t next = 0x7d0000000000ull;
    (void)alignment, (void)near, (void)flags;
    *at = next;
    next += bytes;
    return SUCCESS;
}
int cuMemAddressFree(uint64_t at, size_t bytes) { return (void)at, (void)bytes, SUCCESS; }
int cuMemCreate(uint64_t *handle, size_t bytes, const void *prop, uint64_t flags) {
    static uint64_t next;
    (void)bytes, (void)prop, (void)flags;
    return *handle = ++next, SUCCESS;
}
int cuMemRelease(uint64_t handle) { return (void)handle, SUCCESS; }
int cuMemMap(uint64_t at, size_t bytes, size_t offset, uint64_t handle, uint64_t flags) {
    return (void)at, (void)bytes, (void)offset, (void)handle, (void)flags, SUCCESS;
}
int cuMemSetAccess(uint64_t at, size_t bytes, const void *list, size_t count) {
    return (void)at, (void)bytes, (void)list, (void)count, SUCCESS;
}
int cuMemUnmap(uint64_t at, size_t bytes) { return (void)at, (void)bytes, SUCCESS; }

/* One pool: it grows by 32 MiB where nothing that was freed is left, and lets go of nothing. Whatever is submitted is done. */
static const uint64_t pool_base = 0x7e0000000000ull, pool_step = 32 << 20;
static uint64_t pool_used, *pool_freed, pool_room;
static size_t pool_freed_count;

int cuMemAllocAsync(uint64_t *at, size_t bytes, void *stream) {
    (void)bytes, (void)stream;
    *at = pool_base + step * (pool_freed_count ? pool_freed[--pool_freed_count] : pool_used++);
    return SUCCESS;
}

int cuMemFreeAsync(uint64_t at, void *stream) {
    (void)stream;
    if (pool_freed_count == pool_room) {
        pool_room = pool_room ? 2 * pool_room : 1024;
        pool_freed = realloc(pool_freed, pool_room * sizeof *pool_freed);
        if (!pool_freed) return OUT_OF_MEMORY;
    }
    pool_freed[pool_freed_count++] = (at - pool_base) / step;
    return SUCCESS;
}

int cuDeviceGetDefaultMemPool(void **pool, int device);
int cuDeviceGetMemPool(void **pool, int device) { return *pool = &pool_used, (void)device, SUCCESS; }
int cuMemPoolTrimTo(void *pool, size_t keep) { return (void)pool, (void)keep, SUCCESS; }
int cuMemPoolGetAttribute(void *pool, int attribute, void *value) {
    enum { REUSE_OPPORTUNISTIC = 2, RESERVED = 5, USED = 7 };
    (void)pool;
    if (attribute == RESERVED) return *(uint64_t *)value = (pool_used * step + pool_step - 1) / pool_step * pool_step, SUCCESS;
    if (attribute == USED) return *(uint64_t *)value = (pool_used - pool_freed_count) * step, SUCCESS;
    if (attribute == REUSE_OPPORTUNISTIC) return *(int *)value = 1, SUCCESS;
    return INVALID_VALUE;
}

int cuStreamCreate(void **stream, unsigned flags) { return *stream = malloc(1), (void)flags, SUCCESS; }
int cuStreamGetCtx(void *stream, void **context) { return (void)stream, cuCtxGetCurrent(context); }
int cuStreamGetId(void *stream, uint64_t *id) { return *id = (uintptr_t)stream, SUCCESS; }
int cuStreamGetFlags(void *stream, unsigned *flags) { return (void)stream, *flags = 1, SUCCESS; }
int cuStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = 0, SUCCESS; }
int cuStreamQuery(void *stream) { return (void)stream, SUCCESS; }
int cuThreadExchangeStreamCaptureMode(int *mode) {
    static _Thread_local int now;
    int before = now;
    now = *mode;
    return *mode = before, SUCCESS;
}
int cuEventCreate(void **event, unsigned flags) { return *event = malloc(1), (void)flags, SUCCESS; }
int cuEventRecord(void *event, void *stream) { return (void)event, (void)stream, SUCCESS; }
int cuEventQuery(void *event) { return (void)event, SUCCESS; }
int cuEventElapsedTime(float *ms, void *start, void *end) { return (void)start, (void)end, *ms = 0.001f, SUCCESS; }
int cuEventDestroy_v2(void *event) { return free(event), SUCCESS; }

int cuCtxSetCurrent(void *context) { return (void)context, SUCCESS; }
int cuModuleLoadData(void **module, const void *image) { return (void)image, cuCtxGetCurrent(module); }
int cuModuleGetFunction(void **function, void *module, const char *name) { return (void)name, *function = module, SUCCESS; }
int cuStreamSynchronize(void *stream) { return (void)stream, SUCCESS; }
int cuMemsetD8Async(uint64_t at, unsigned char value, size_t bytes, void *stream) {
    return (void)at, (void)value, (void)bytes, (void)stream, SUCCESS;
}
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    return (void)to, (void)from, (void)bytes, (void)stream, SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    return (void)to, (void)from, (void)bytes, (void)stream, SUCCESS;
}
int cuGraphLaunch(void *exec, void *stream) { return (void)exec, (void)stream, SUCCESS; }

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **params, void **extra) {
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)params, (void)extra;
    return SUCCESS;
}
int cuDeviceGetDefaultMemPool(void **pool, int device) { return cuDeviceGetMemPool(pool, device); }
