/* Linear, pinned and managed memory, copies and memsets. */
#include "cu.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

static void without_context(void) {
    size_t free, total;
    dptr at;
    IS(3, cuMemGetInfo_v2(&free, &total));
    DO(cuInit(0));
    IS(INVALID_CONTEXT, cuMemGetInfo_v2(&free, &total));
    IS(INVALID_CONTEXT, cuMemAlloc_v2(&at, 1));
    IS(INVALID_CONTEXT, cuMemFree_v2(0));
}

/* A thread without a context: calls in a created stream, and of memory, are made in theirs; those of a default stream are not. */
static void in_a_stream_alone(void) {
    start();
    dptr at, pooled;
    handle stream;
    unsigned char *host, *own = (unsigned char *)"x";
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemAlloc_v2(&at, 4));
    DO(cuMemAllocHost_v2((void **)&host, 4));
    DO(cuCtxSetCurrent(NULL));
    IS(INVALID_CONTEXT, cuMemsetD8Async(at, 1, 4, NULL));
    IS(INVALID_CONTEXT, cuMemcpyHtoDAsync_v2(at, own, 1, NULL));
    IS(INVALID_CONTEXT, cuMemAllocAsync(&pooled, 4, NULL));
    IS(INVALID_CONTEXT, cuMemAllocAsync(&pooled, 4, (handle)2));
    IS(INVALID_CONTEXT, cuMemsetD8_v2(at, 1, 4));
    DO(cuMemAllocAsync(&pooled, 4, stream));
    DO(cuMemsetD8Async(pooled, 7, 4, stream));
    DO(cuMemcpyHtoDAsync_v2(pooled, own, 1, stream));
    DO(cuMemcpyDtoHAsync_v2(host, pooled, 4, stream));
    DO(cuMemFreeAsync(pooled, stream));
    DO(cuMemFree_v2(at)); /* waits for the device */
    TRUE(host[0] == 'x' && host[3] == 7);
    IS(INVALID_VALUE, cuMemFree_v2(at));
}

static void exhaustion(void) {
    start();
    enum { MOST = 65536 };
    static dptr at[MOST];
    const size_t sizes[] = { 512, 100000, 1 << 20, 3 << 20, 100 << 20 };
    size_t before = settled();
    for (int round = 0; round < 2; round++)
        for (int kind = 1; kind < 5; kind++) {
            int count = 0;
            result last;
            while ((last = cuMemAlloc_v2(&at[count], sizes[kind])) == OK)
                TRUE(++count < MOST);
            IS(OUT_OF_MEMORY, last);
            TRUE(count >= 1);
            TRUE((size_t)count * sizes[kind] <= before);
            TRUE((size_t)count * sizes[kind] >= before / 3 || kind == 4);
            for (int n = 0; n < count; n++)
                DO(cuMemFree_v2(at[n]));
            /* one empty block may be kept */
            TRUE(settled() + 2 * MIB >= before);
        }
}

static void wrong_arguments(void) {
    start();
    dptr at, base;
    size_t size;
    IS(INVALID_VALUE, cuMemAlloc_v2(&at, 0));
    IS(INVALID_VALUE, cuMemAlloc_v2(NULL, 1));
    IS(OUT_OF_MEMORY, cuMemAlloc_v2(&at, (size_t)1 << 60));
    IS(OUT_OF_MEMORY, cuMemAlloc_v2(&at, ~(size_t)0));
    DO(cuMemFree_v2(0));
    DO(cuMemFreeHost(NULL));
    IS(INVALID_VALUE, cuMemHostUnregister(NULL));
    DO(cuMemAlloc_v2(&at, 1000));
    IS(INVALID_VALUE, cuMemFree_v2(at + 1));
    IS(INVALID_VALUE, cuMemFree_v2(0x1234));
    DO(cuMemGetAddressRange_v2(&base, &size, at + 999));
    TRUE(base == at && size == 1000);
    DO(cuMemFree_v2(at));
    IS(INVALID_VALUE, cuMemFree_v2(at));
    IS(NOT_FOUND, cuMemGetAddressRange_v2(&base, &size, at));
    unsigned old;
    IS(OUT_OF_MEMORY, cuMemAlloc(&old, 1000));
}

static void round_trips(void) {
    handle context = start();
    for (size_t bytes = 1; bytes < 5 * MIB; bytes = bytes * 7 + 1) {
        dptr one, two;
        unsigned char *in = made(bytes, 3), *out = calloc(1, bytes);
        DO(cuMemAlloc_v2(&one, bytes));
        DO(cuMemAlloc_v2(&two, bytes));
        DO(cuMemcpyHtoD_v2(one, in, bytes));
        memset(in, 0, bytes); /* staged: a change now must have no effect */
        DO(cuMemcpyDtoD_v2(two, one, bytes));
        DO(cuMemcpyDtoH_v2(out, two, bytes));
        TRUE(pattern(out, bytes, 3));
        memset(out, 0, bytes);
        DO(cuMemcpyPeer(one, context, two, context, bytes));
        DO(cuMemcpy((dptr)(uintptr_t)out, one, bytes));
        TRUE(pattern(out, bytes, 3));
        IS(INVALID_VALUE, cuMemcpyHtoD_v2(one, in, bytes + 1));
        IS(INVALID_VALUE, cuMemcpyDtoH_v2(out, two + 1, bytes));
        IS(INVALID_VALUE, cuMemcpyDtoD_v2(0x1000, two, bytes));
        DO(cuMemcpyHtoD_v2(one, in, 0));
        DO(cuMemFree_v2(one));
        DO(cuMemFree_v2(two));
        IS(INVALID_VALUE, cuMemcpyDtoH_v2(out, two, bytes));
        free(in);
        free(out);
    }
}

static void fills(void) {
    start();
    dptr at;
    unsigned char out[4096];
    DO(cuMemAlloc_v2(&at, sizeof out));
    DO(cuMemsetD8_v2(at, 0xab, sizeof out));
    DO(cuMemsetD32_v2(at + 4, 0x04030201, 2));
    DO(cuMemsetD16_v2(at + 12, 0x1122, 1));
    DO(cuMemsetD2D8_v2(at + 1024, 512, 7, 100, 3));
    DO(cuMemcpyDtoH_v2(out, at, sizeof out));
    TRUE(out[3] == 0xab && !memcmp(out + 4, "\1\2\3\4\1\2\3\4\x22\x11\xab", 11));
    TRUE(out[1024 + 99] == 7 && out[1024 + 100] == 0xab && out[2048 + 99] == 7 && out[2560] == 0xab);
    IS(INVALID_VALUE, cuMemsetD32_v2(at + 2, 0, 1));
    IS(INVALID_VALUE, cuMemsetD8_v2(at, 0, sizeof out + 1));
    IS(INVALID_VALUE, cuMemsetD8_v2(0x100, 0, 1));
}

static void pitched(void) {
    start();
    dptr at;
    size_t pitch, width = 300, height = 40;
    unsigned char *in = made(width * height, 1), *out = calloc(width, height);
    IS(INVALID_VALUE, cuMemAllocPitch_v2(&at, &pitch, width, height, 5));
    DO(cuMemAllocPitch_v2(&at, &pitch, width, height, 4));
    TRUE(pitch == 512);
    struct copy2d up = { .st = 1, .sh = in, .sp = width, .dt = 2, .dd = at, .dp = pitch, .width = width, .height = height };
    DO(cuMemcpy2D_v2(&up));
    struct copy2d down = { .st = 4, .sd = at, .sp = pitch, .dt = 1, .dh = out, .dp = width, .width = width, .height = height };
    DO(cuMemcpy2D_v2(&down));
    TRUE(pattern(out, width * height, 1));
    up.dp = width - 1;
    IS(INVALID_VALUE, cuMemcpy2D_v2(&up));
    up.dp = pitch, up.height = height + 1;
    IS(INVALID_VALUE, cuMemcpy2D_v2(&up));
    DO(cuMemFree_v2(at));
}

static void pinned(void) {
    start();
    void *at, *own = aligned_alloc(4096, 8192);
    dptr device, seen;
    unsigned flags;
    DO(cuMemHostAlloc(&at, 0, 0));
    TRUE(!at);
    IS(INVALID_VALUE, cuMemHostAlloc(&at, 100, 0x100));
    DO(cuMemHostAlloc(&at, 10000, 3));
    memset(at, 1, 10000);
    DO(cuMemHostGetFlags(&flags, at));
    TRUE(flags == 3);
    DO(cuMemHostGetDevicePointer_v2(&seen, (char *)at + 5, 0));
    TRUE(seen == (dptr)(uintptr_t)at + 5);
    DO(cuMemAlloc_v2(&device, 10000));
    DO(cuMemsetD8_v2(device, 9, 10000));
    DO(cuMemcpyDtoHAsync_v2(at, device, 10000, NULL));
    DO(cuCtxSynchronize());
    TRUE(((char *)at)[9999] == 9);
    DO(cuMemsetD8_v2((dptr)(uintptr_t)at, 4, 10)); /* a memset of host memory is complete when it returns */
    TRUE(((char *)at)[9] == 4 && ((char *)at)[10] == 9);
    IS(INVALID_VALUE, cuMemFree_v2((dptr)(uintptr_t)at));
    IS(NOT_REGISTERED, cuMemHostUnregister(at));
    DO(cuMemFreeHost(at));
    IS(INVALID_VALUE, cuMemFreeHost(at));
    DO(cuMemHostRegister_v2(own, 8192, 0));
    IS(ALREADY_REGISTERED, cuMemHostRegister_v2((char *)own + 4096, 4096, 0));
    IS(INVALID_VALUE, cuMemFreeHost(own));
    DO(cuMemHostUnregister(own));
    IS(NOT_REGISTERED, cuMemHostUnregister(own));
}

/* Registering takes the pages of a range: all must be there, and writable unless the device only reads them. */
static void register_checks(void) {
    enum { READ_ONLY = 8, PAGES = 4, HOST_PAGE = 4096 };
    start();
    dptr device;
    DO(cuMemAlloc_v2(&device, HOST_PAGE));
    int private = MAP_PRIVATE | MAP_ANONYMOUS, file = memfd_create("short", 0);
    unsigned char *at = mmap(NULL, PAGES * HOST_PAGE, PROT_READ | PROT_WRITE, private, -1, 0), out = 0;
    DO(munmap(at + 2 * HOST_PAGE, HOST_PAGE));
    IS(INVALID_VALUE, cuMemHostRegister_v2(at, PAGES * HOST_PAGE, 0));
    IS(INVALID_VALUE, cuMemHostRegister_v2(at, PAGES * HOST_PAGE, READ_ONLY));
    DO(cuMemHostRegister_v2(at, 2 * HOST_PAGE, 0));
    DO(cuMemHostRegister_v2(at + 3 * HOST_PAGE + 100, 100, 0));
    DO(cuMemHostUnregister(at));
    at[0] = 5;
    DO(mprotect(at, HOST_PAGE, PROT_READ));
    IS(INVALID_VALUE, cuMemHostRegister_v2(at, HOST_PAGE, 0));
    DO(cuMemHostRegister_v2(at, HOST_PAGE, READ_ONLY));
    DO(cuMemcpyHtoD_v2(device, at, 1));
    DO(cuMemcpyDtoH_v2(&out, device, 1));
    TRUE(out == 5);
    DO(cuMemHostUnregister(at));
    DO(ftruncate(file, HOST_PAGE));
    unsigned char *beyond = mmap(NULL, 2 * HOST_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    IS(INVALID_VALUE, cuMemHostRegister_v2(beyond, 2 * HOST_PAGE, 0));
    DO(cuMemHostRegister_v2(beyond, HOST_PAGE, 0));
}

/* A copy to memory that was registered for reading is a fault, as a kernel's write is. */
static void register_read_only(void) {
    enum { READ_ONLY = 8, HOST_PAGE = 4096 };
    start();
    dptr device;
    handle stream;
    DO(cuMemAlloc_v2(&device, HOST_PAGE));
    DO(cuStreamCreate(&stream, 1));
    unsigned char *at = mmap(NULL, HOST_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    DO(cuMemHostRegister_v2(at, HOST_PAGE, READ_ONLY));
    DO(cuMemcpyHtoDAsync_v2(device, at, HOST_PAGE, stream));
    DO(cuStreamSynchronize(stream));
    cuMemcpyDtoHAsync_v2(at, device, HOST_PAGE, stream);
    TRUE(cuStreamSynchronize(stream) != OK);
}

/* The latest legal moments: pinned memory is read when the copy runs, pageable memory when the call is made. */
static void asynchronous(void) {
    start();
    handle stream;
    dptr at;
    unsigned char *pinned, *pageable = made(MIB, 5), *out = malloc(MIB);
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemAlloc_v2(&at, MIB));
    DO(cuMemAllocHost_v2((void **)&pinned, MIB));
    DO(cuMemcpyHtoDAsync_v2(at, pageable, MIB, stream));
    memset(pageable, 0, MIB);
    DO(cuMemcpyDtoHAsync_v2(out, at, MIB, stream)); /* a copy to pageable memory is complete when it returns */
    TRUE(pattern(out, MIB, 5));
    memset(pinned, 1, MIB);
    DO(cuMemcpyHtoDAsync_v2(at, pinned, MIB, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyDtoHAsync_v2(out, at, MIB, stream));
    TRUE(out[0] == 1 && out[MIB - 1] == 1);
    IS(INVALID_VALUE, cuMemcpyHtoDAsync_v2(at, pinned, MIB + 1, stream));
    DO(cuStreamDestroy_v2(stream));
}

/* A page of a file in memory that is registered, device memory of ones, and the file mapped a second time. */
static char *registered(dptr *ones, int *file, char **beside) {
    start();
    *file = memfd_create("pinned", 0);
    TRUE(!ftruncate(*file, MIB));
    char *at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
    *beside = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, *file, 0);
    DO(cuMemHostRegister_v2(at, MIB, 0));
    DO(cuMemAlloc_v2(ones, MIB));
    DO(cuMemsetD8_v2(*ones, 1, MIB));
    DO(cuMemcpyDtoH_v2(at, *ones, MIB));
    TRUE((*beside)[0] == 1 && (*beside)[MIB - 1] == 1 && at[5] == 1);
    return at;
}

static void registered_pages_stay(void) {
    dptr ones;
    int file;
    char *beside, *at = registered(&ones, &file, &beside);
    memset(beside, 2, MIB);
    at = mmap(at, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    DO(cuMemcpyDtoH_v2(at + 4096, ones, 4096)); /* it goes where the pages are */
    TRUE(at[4096] == 0 && beside[4096] == 1 && beside[8192] == 2);
    memset(at, 3, MIB);
    DO(cuMemcpyHtoD_v2(ones, at + 8192, 4096));
    DO(cuMemHostUnregister(at));
    DO(cuMemcpyDtoH_v2(beside, ones, 4096));
    TRUE(beside[0] == 2);
    DO(cuMemcpyDtoH_v2(at, ones, 4096)); /* now it is plain memory */
    TRUE(at[0] == 2);
    DO(cuMemHostRegister_v2(at, MIB, 0));
    DO(cuMemsetD8_v2((dptr)(uintptr_t)at, 4, 4096));
    DO(cuCtxSynchronize());
    TRUE(at[4095] == 4 && at[4096] == 3);
}

static void registered_with_a_hole(void) {
    dptr ones;
    int file;
    char *beside, *at = registered(&ones, &file, &beside);
    TRUE(!fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 4096));
    DO(cuMemcpyDtoH_v2(at, ones, 8192)); /* beside it */
    IS(ILLEGAL_ADDRESS, cuMemcpyDtoH_v2(at, ones, 12288));
}

static void managed(void) {
    start();
    dptr at;
    unsigned type, is;
    size_t before = settled(), size = 10 * MIB;
    IS(INVALID_VALUE, cuMemAllocManaged(&at, size, 0));
    IS(INVALID_VALUE, cuMemAllocManaged(&at, 0, 1));
    DO(cuMemAllocManaged(&at, size, 1));
    TRUE(settled() == before); /* nothing is resident yet */
    memset((void *)(uintptr_t)at, 6, size);
    TRUE(((char *)(uintptr_t)at)[size - 1] == 6);
    TRUE(settled() == before);
    DO(cuMemPrefetchAsync(at, size, 0, NULL));
    DO(cuCtxSynchronize());
    TRUE(settled() == before - size);
    TRUE(((char *)(uintptr_t)at)[size - 1] == 6);
    DO(cuMemsetD8_v2(at, 7, size));
    DO(cuCtxSynchronize());
    TRUE(((char *)(uintptr_t)at)[0] == 7);
    int where = 0;
    DO(cuMemRangeGetAttribute(&where, 4, 4, at, size));
    TRUE(where == 0);
    DO(cuMemPrefetchAsync(at, size, -1, NULL));
    DO(cuCtxSynchronize());
    TRUE(settled() == before);
    DO(cuMemRangeGetAttribute(&where, 4, 4, at, size));
    TRUE(where == -1);
    DO(cuMemAdvise(at, size, 3, 0));
    DO(cuMemRangeGetAttribute(&where, 4, 2, at, 4096));
    TRUE(where == 0);
    IS(INVALID_DEVICE, cuMemAdvise(at, size, 3, 77));
    IS(INVALID_VALUE, cuMemAdvise(at, size + 1, 1, 0));
    DO(cuPointerGetAttribute(&type, 2, at));
    DO(cuPointerGetAttribute(&is, 8, at));
    TRUE(type == 2 && is == 1);
    DO(cuMemFree_v2(at));
    IS(INVALID_VALUE, cuMemPrefetchAsync(at, size, 0, NULL));
}

/* More managed memory than the device has: the oldest is evicted, no bytes are lost, no allocation fails. */
static void oversubscribed(void) {
    start();
    size_t before = settled(), piece = 32 * MIB, count = before / piece + 4;
    dptr *at = calloc(count, sizeof *at), plain;
    for (size_t n = 0; n < count; n++) {
        DO(cuMemAllocManaged(&at[n], piece, 1));
        DO(cuMemsetD32_v2(at[n], (unsigned)n, piece / 4));
    }
    DO(cuCtxSynchronize());
    for (size_t n = 0; n < count; n++)
        TRUE(((unsigned *)(uintptr_t)at[n])[piece / 4 - 1] == n);
    DO(cuMemAlloc_v2(&plain, 128 * MIB)); /* evicts */
    DO(cuMemFree_v2(plain));
    for (size_t n = 0; n < count; n++)
        DO(cuMemFree_v2(at[n]));
    TRUE(settled() == before);
}

static void context_takes_all_with_it(void) {
    handle primary = start(), context, array;
    dptr at;
    void *host;
    size_t before = settled();
    struct array_desc desc = { 256, 256, 32, 1 };
    DO(cuCtxCreate_v2(&context, 0, 0));
    DO(cuMemAlloc_v2(&at, 100));
    DO(cuMemAlloc_v2(&at, 20 * MIB));
    DO(cuMemsetD8_v2(at, 1, 20 * MIB));
    DO(cuArrayCreate_v2(&array, &desc));
    DO(cuMemHostAlloc(&host, 4096, 0));
    DO(cuCtxDestroy_v2(context));
    DO(cuCtxSetCurrent(primary));
    TRUE(settled() == before);
    IS(INVALID_VALUE, cuMemFree_v2(at));
    IS(INVALID_HANDLE, cuArrayDestroy(array));
    IS(INVALID_VALUE, cuMemFreeHost(host));
}

static void attributes(void) {
    handle context = start();
    dptr at, value, start_, again;
    unsigned type, ordinal, legacy;
    unsigned long long size, id, id2;
    DO(cuMemAlloc_v2(&at, 5000));
    DO(cuPointerGetAttribute(&value, 1, at + 10));
    TRUE((handle)(uintptr_t)value == context);
    DO(cuPointerGetAttribute(&type, 2, at + 10));
    DO(cuPointerGetAttribute(&ordinal, 9, at));
    DO(cuPointerGetAttribute(&start_, 11, at + 4999));
    DO(cuPointerGetAttribute(&size, 12, at));
    DO(cuPointerGetAttribute(&legacy, 10, at));
    TRUE(type == 2 && ordinal == 0 && start_ == at && size == 5000 && legacy == 1);
    DO(cuPointerGetAttribute(&id, 7, at));
    IS(INVALID_VALUE, cuPointerGetAttribute(&value, 4, at));
    DO(cuMemFree_v2(at));
    IS(INVALID_VALUE, cuPointerGetAttribute(&type, 2, at));
    DO(cuMemAlloc_v2(&again, 5000));
    DO(cuPointerGetAttribute(&id2, 7, again));
    TRUE(id2 != id);
    int asked[] = { 2, 9 }, local;
    void *to[] = { &type, &ordinal };
    DO(cuPointerGetAttributes(2, asked, to, (dptr)(uintptr_t)&local));
    TRUE(type == 0 && (int)ordinal == -2);
}

#ifndef MANY
#define MANY 200000
#endif

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void speed(void) {
    start();
    static dptr at[MANY];
    double begin = seconds();
    for (int n = 0; n < MANY; n++)
        DO(cuMemAlloc_v2(&at[n], 512));
    double middle = seconds();
    for (int n = 0; n < MANY; n++)
        DO(cuMemFree_v2(at[(n * 7919LL) % MANY]));
    printf("%d live allocations of 512 bytes: %.0f ns each to allocate, %.0f ns to free\n", MANY, (middle - begin) * 1e9 / MANY,
           (seconds() - middle) * 1e9 / MANY);
}

TESTS(T(without_context), T(in_a_stream_alone), T(exhaustion), T(wrong_arguments), T(round_trips), T(fills), T(pitched), T(pinned), T(register_checks), T(register_read_only), T(registered_pages_stay), T(registered_with_a_hole),
      T(asynchronous),
      T(managed), T(oversubscribed), T(context_takes_all_with_it), T(attributes), T(speed))
