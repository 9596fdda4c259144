/* Shared by the memory clients: the driver's functions by their exported names, and error reports. */
#ifndef CU_H
#define CU_H
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long dptr;
typedef void *handle;
typedef int result;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, ECC_UNCORRECTABLE = 214,
       INVALID_HANDLE = 400,
       NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, NOT_SUPPORTED = 801 };

#define MIB ((size_t)1 << 20)

#define IS(code, call) do { long got_ = (long)(call); if (got_ != (long)(code)) { \
    fprintf(stderr, "%s:%d: %s is %ld, not %ld\n", __FILE__, __LINE__, #call, got_, (long)(code)); exit(1); } } while (0)
#define DO(call) IS(OK, call)
#define TRUE(what) do { if (!(what)) { fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); exit(1); } } while (0)

struct location { int type, id; };
struct access { struct location location; int flags; };
struct alloc_prop { int type, handles; struct location location; void *win32; unsigned char flags[8]; };
struct pool_props { int type, handles; struct location location; void *win32; size_t max; unsigned short usage; unsigned char rest[54]; };
struct array_desc { size_t width, height; int format; unsigned channels; };
struct array3d_desc { size_t width, height, depth; int format; unsigned channels, flags; };
struct copy2d { size_t sx, sy; int st; const void *sh; dptr sd; handle sa; size_t sp;
                size_t dx, dy; int dt; void *dh; dptr dd; handle da; size_t dp; size_t width, height; };
struct ipc { char bytes[64]; };

result cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxRetain(handle *, int), cuDevicePrimaryCtxReset_v2(int);
result cuCtxSetCurrent(handle), cuCtxSynchronize(void), cuCtxCreate_v2(handle *, unsigned, int), cuCtxDestroy_v2(handle);
result cuCtxEnablePeerAccess(handle, unsigned), cuDeviceCanAccessPeer(int *, int, int), cuDeviceGetP2PAttribute(int *, int, int, int);
result cuLaunchHostFunc(handle, void (*)(void *), void *);
result cuStreamCreate(handle *, unsigned), cuStreamSynchronize(handle), cuStreamDestroy_v2(handle);
result cuMemAlloc(unsigned *, unsigned), cuMemAlloc_v2(dptr *, size_t), cuMemFree_v2(dptr), cuMemGetInfo_v2(size_t *, size_t *);
result cuMemAllocPitch_v2(dptr *, size_t *, size_t, size_t, unsigned), cuMemGetAddressRange_v2(dptr *, size_t *, dptr);
result cuMemAllocManaged(dptr *, size_t, unsigned), cuMemPrefetchAsync(dptr, size_t, int, handle), cuMemAdvise(dptr, size_t, int, int);
result cuMemRangeGetAttribute(void *, size_t, int, dptr, size_t);
result cuMemHostAlloc(void **, size_t, unsigned), cuMemAllocHost_v2(void **, size_t), cuMemFreeHost(void *);
result cuMemHostRegister_v2(void *, size_t, unsigned), cuMemHostUnregister(void *), cuMemHostGetDevicePointer_v2(dptr *, void *, unsigned);
result cuMemHostGetFlags(unsigned *, void *);
result cuMemcpyHtoD_v2(dptr, const void *, size_t), cuMemcpyDtoH_v2(void *, dptr, size_t), cuMemcpyDtoD_v2(dptr, dptr, size_t);
result cuMemcpy(dptr, dptr, size_t), cuMemcpy_ptds(dptr, dptr, size_t), cuMemcpyHtoDAsync_v2(dptr, const void *, size_t, handle);
result cuMemcpyDtoHAsync_v2(void *, dptr, size_t, handle), cuMemcpyHtoDAsync_v2_ptsz(dptr, const void *, size_t, handle);
result cuMemcpyHtoA_v2(handle, size_t, const void *, size_t), cuMemcpyAtoH_v2(void *, handle, size_t, size_t);
result cuMemcpyAtoA_v2(handle, size_t, handle, size_t, size_t), cuMemcpy2D_v2(const struct copy2d *);
result cuMemcpyPeer(dptr, handle, dptr, handle, size_t);
result cuMemsetD8_v2(dptr, unsigned char, size_t), cuMemsetD32_v2(dptr, unsigned, size_t), cuMemsetD16_v2(dptr, unsigned short, size_t);
result cuMemsetD2D8_v2(dptr, size_t, unsigned char, size_t, size_t), cuMemsetD8Async(dptr, unsigned char, size_t, handle);
result cuMemsetD32Async(dptr, unsigned, size_t, handle);
result cuMemAllocAsync(dptr *, size_t, handle), cuMemFreeAsync(dptr, handle), cuMemAllocFromPoolAsync(dptr *, size_t, handle, handle);
result cuMemPoolCreate(handle *, const struct pool_props *), cuMemPoolDestroy(handle), cuMemPoolTrimTo(handle, size_t);
result cuMemPoolSetAccess(handle, const struct access *, size_t);
result cuMemPoolSetAttribute(handle, int, void *), cuMemPoolGetAttribute(handle, int, void *);
result cuMemPoolExportToShareableHandle(void *, handle, int, unsigned long long);
result cuMemPoolImportFromShareableHandle(handle *, void *, int, unsigned long long);
result cuMemPoolExportPointer(struct ipc *, dptr), cuMemPoolImportPointer(dptr *, handle, struct ipc *);
result cuDeviceGetDefaultMemPool(handle *, int), cuDeviceGetMemPool(handle *, int), cuDeviceSetMemPool(int, handle);
result cuMemAddressReserve(dptr *, size_t, size_t, dptr, unsigned long long), cuMemAddressFree(dptr, size_t);
result cuMemCreate(dptr *, size_t, const struct alloc_prop *, unsigned long long), cuMemRelease(dptr);
result cuMemMap(dptr, size_t, size_t, dptr, unsigned long long), cuMemUnmap(dptr, size_t);
result cuMemSetAccess(dptr, size_t, const struct access *, size_t), cuMemGetAccess(unsigned long long *, const struct location *, dptr);
result cuMemRetainAllocationHandle(dptr *, void *), cuMemGetAllocationGranularity(size_t *, const struct alloc_prop *, int);
result cuMemExportToShareableHandle(void *, dptr, int, unsigned long long), cuMemImportFromShareableHandle(dptr *, void *, int);
result cuArrayCreate_v2(handle *, const struct array_desc *), cuArray3DCreate_v2(handle *, const struct array3d_desc *);
result cuArrayDestroy(handle), cuArrayGetDescriptor_v2(struct array_desc *, handle);
result cuMipmappedArrayCreate(handle *, const struct array3d_desc *, unsigned), cuMipmappedArrayGetLevel(handle *, handle, unsigned);
result cuMipmappedArrayDestroy(handle);
struct copy_attr { int order; struct location src, dst; unsigned flags; };
struct resource { int type; union { handle array; struct { dptr at; int format; unsigned channels; size_t bytes; } linear; int rest[32]; } res; unsigned flags; };
result cuMemcpyBatchAsync(dptr *, dptr *, size_t *, size_t, struct copy_attr *, size_t *, size_t, size_t *, handle);
result cuMemcpyWithAttributesAsync(dptr, dptr, size_t, struct copy_attr *, handle), cuMemcpyHtoD(unsigned, const void *, unsigned);
result cuTexObjectCreate(dptr *, const struct resource *, const void *, const void *), cuTexObjectDestroy(dptr);
result cuTexObjectGetResourceDesc(struct resource *, dptr), cuSurfObjectCreate(dptr *, const struct resource *);
result cuIpcGetMemHandle(struct ipc *, dptr), cuIpcOpenMemHandle_v2(dptr *, struct ipc, unsigned), cuIpcCloseMemHandle(dptr);
result cuEventCreate(handle *, unsigned), cuIpcGetEventHandle(struct ipc *, handle), cuIpcOpenEventHandle(handle *, struct ipc);
result cuPointerGetAttribute(void *, int, dptr), cuPointerGetAttributes(unsigned, int *, void **, dptr);

/* Initialises the driver and makes the primary context of device 0 current. */
static inline handle start(void) {
    int device;
    handle context;
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
    DO(cuDevicePrimaryCtxRetain(&context, device));
    DO(cuCtxSetCurrent(context));
    return context;
}

/* Free bytes after all delayed memory has returned. */
static inline size_t settled(void) {
    size_t free = 0, total = 0;
    for (int n = 0; n < 32; n++)
        DO(cuMemGetInfo_v2(&free, &total));
    return free;
}

/* A host function that keeps its stream until the value is set. */
static inline void wait_until_set(void *value) {
    while (!__atomic_load_n((int *)value, __ATOMIC_ACQUIRE))
        usleep(100);
}

static inline int pattern(const unsigned char *at, size_t bytes, unsigned seed) {
    for (size_t n = 0; n < bytes; n++)
        if (at[n] != (unsigned char)(n * 31 + seed))
            return 0;
    return 1;
}

static inline unsigned char *made(size_t bytes, unsigned seed) {
    unsigned char *at = malloc(bytes);
    for (size_t n = 0; n < bytes; n++)
        at[n] = (unsigned char)(n * 31 + seed);
    return at;
}

/* The cases of a program, selected by name. */
struct test { const char *name; void (*run)(void); };
#define TESTS(...) int main(int argc, char **argv) { \
    static const struct test tests[] = { __VA_ARGS__ }; \
    for (size_t n = 0; argc == 2 && n < sizeof tests / sizeof *tests; n++) \
        if (!strcmp(argv[1], tests[n].name)) { tests[n].run(); return 0; } \
    fprintf(stderr, "no such case\n"); return 2; }
#define T(f) { #f, f }
#endif
