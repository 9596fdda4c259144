/* Pools of the host's memory and of managed memory. */
#include "cu.h"

enum { THRESHOLD = 4, RESERVED = 5, USED = 7 };
enum { PINNED = 1, MANAGED = 2 };
enum { NOWHERE, DEVICE, HOST, HOST_NUMA };
#define STEP (32 * MIB)

result cuMemPoolSetAccess(handle, const struct access *, size_t), cuMemPoolGetAccess(int *, handle, struct location *);
result cuMemGetDefaultMemPool(handle *, struct location *, int), cuDeviceGetAttribute(int *, int, int);
result cuStreamBeginCapture_v2(handle, int), cuStreamEndCapture(handle, handle *), cuMemcpyAsync(dptr, dptr, size_t, handle);

static unsigned long long of(handle pool, int attribute) {
    unsigned long long value = 0;
    DO(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static handle pool_of(int type, int where, int id) {
    struct pool_props props = {.type = type, .location = {where, id}};
    handle pool;
    DO(cuMemPoolCreate(&pool, &props));
    return pool;
}

static handle stream_of(void) {
    handle stream;
    DO(cuStreamCreate(&stream, 1));
    return stream;
}

/* The memory is the host's: no device has less, the host reads it, and a device once it may. */
static void host(void) {
    start();
    struct access access = {{DEVICE, 0}, 3};
    int places[] = {HOST, HOST_NUMA};
    for (int n = 0; n < 2; n++) {
        handle stream = stream_of(), pool = pool_of(PINNED, places[n], 0);
        size_t before = settled();
        dptr at, other;
        DO(cuMemPoolSetAccess(pool, &access, 1));
        DO(cuMemAllocFromPoolAsync(&at, 3 * MIB, pool, stream));
        TRUE(of(pool, RESERVED) == STEP && of(pool, USED) == 3 * MIB);
        DO(cuMemAlloc_v2(&other, 3 * MIB));
        unsigned char *bytes = (unsigned char *)(uintptr_t)at;
        DO(cuStreamSynchronize(stream));
        for (size_t i = 0; i < 3 * MIB; i++)
            bytes[i] = (unsigned char)(i * 31 + 5);
        DO(cuMemcpyAsync(other, at, 3 * MIB, stream));
        DO(cuMemsetD8Async(at, 0, 3 * MIB, stream));
        DO(cuMemcpyAsync(at, other, 3 * MIB, stream));
        DO(cuStreamSynchronize(stream));
        TRUE(pattern(bytes, 3 * MIB, 5));
        DO(cuMemFree_v2(other));
        TRUE(settled() == before);
        DO(cuMemFreeAsync(at, stream));
        DO(cuStreamSynchronize(stream));
        TRUE(of(pool, RESERVED) == 0 && of(pool, USED) == 0);
        DO(cuMemAllocFromPoolAsync(&at, 1, pool, stream));
        DO(cuMemPoolDestroy(pool));
        DO(cuMemFree_v2(at)); /* cuMemFree accepts it too, after its pool is gone */
    }
}

/* Before it is given access, a device that writes there faults: at once, as memsets of the host's memory are complete when
 * the call returns. */
static void host_without_access(void) {
    start();
    handle stream = stream_of(), pool = pool_of(PINNED, HOST, 0);
    dptr at;
    int rights = 7;
    struct location device = {DEVICE, 0};
    DO(cuMemPoolGetAccess(&rights, pool, &device));
    TRUE(rights == 0);
    DO(cuMemAllocFromPoolAsync(&at, 1000, pool, stream));
    DO(cuStreamSynchronize(stream));
    *(char *)(uintptr_t)at = 1;
    IS(ILLEGAL_ADDRESS, cuMemsetD8Async(at, 1, 1000, stream));
    IS(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

/* Stream order holds on the host's memory too. */
static void host_too_early(void) {
    static int judged;
    start();
    handle one = stream_of(), two = stream_of(), pool = pool_of(PINNED, HOST, 0);
    struct access access = {{DEVICE, 0}, 3};
    dptr at;
    DO(cuMemPoolSetAccess(pool, &access, 1));
    DO(cuLaunchHostFunc(one, wait_until_set, &judged));
    DO(cuMemAllocFromPoolAsync(&at, 1000, pool, one));
    IS(ILLEGAL_ADDRESS, cuMemsetD8Async(at, 1, 1000, two));
    IS(ILLEGAL_ADDRESS, cuStreamSynchronize(two));
    __atomic_store_n(&judged, 1, __ATOMIC_RELEASE);
}

/* The memory takes what has been touched, may be larger than the device, and comes back whole. */
static void managed(void) {
    start();
    handle stream = stream_of(), pool = pool_of(MANAGED, DEVICE, 0);
    dptr at, large;
    size_t before = settled();
    DO(cuMemAllocFromPoolAsync(&at, 16 * MIB, pool, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(of(pool, RESERVED) == STEP && of(pool, USED) == 16 * MIB);
    TRUE(settled() == before); /* nothing has touched it */
    unsigned char *bytes = (unsigned char *)(uintptr_t)at;
    memset(bytes, 7, 16 * MIB);
    DO(cuMemsetD8Async(at + 8 * MIB, 9, 4 * MIB, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(settled() == before - 4 * MIB);
    TRUE(bytes[0] == 7 && bytes[8 * MIB] == 9 && bytes[12 * MIB - 1] == 9 && bytes[12 * MIB] == 7);
    DO(cuMemPrefetchAsync(at, 16 * MIB, 0, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(settled() == before - 16 * MIB);
    DO(cuMemPrefetchAsync(at, 16 * MIB, -1, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(settled() == before - 16 * MIB && bytes[9 * MIB] == 9); /* kept until it is needed */
    DO(cuMemAllocFromPoolAsync(&large, 1024 * MIB, pool, stream));
    DO(cuMemsetD8Async(large, 3, 1024 * MIB, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(((unsigned char *)(uintptr_t)large)[1024 * MIB - 1] == 3 && bytes[0] == 7);
    IS(INVALID_VALUE, cuMemPrefetchAsync(at, 17 * MIB, 0, stream)); /* beyond the allocation */
    DO(cuMemFreeAsync(large, stream));
    DO(cuMemFreeAsync(at, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(of(pool, RESERVED) == 0 && settled() == before);
    IS(INVALID_VALUE, cuMemPrefetchAsync(at, 1, 0, stream));
    DO(cuMemPoolDestroy(pool));
}

/* A pool's place is what its memory prefers. */
static void preferred(void) {
    start();
    handle stream = stream_of(), pool = pool_of(MANAGED, HOST, 0);
    struct access access = {{DEVICE, 0}, 1};
    dptr at;
    int place = 7, rights = 7;
    struct location device = {DEVICE, 0};
    size_t before = settled();
    DO(cuMemAllocFromPoolAsync(&at, 4 * MIB, pool, stream));
    DO(cuMemsetD8Async(at, 9, 4 * MIB, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemRangeGetAttribute(&place, 4, 2, at, 4 * MIB));
    TRUE(place == -1 && settled() == before); /* it stays on the host */
    DO(cuMemPoolGetAccess(&rights, pool, &device));
    TRUE(rights == 0); /* none was given, and none is needed */
    DO(cuMemPoolSetAccess(pool, &access, 1));
    DO(cuMemPoolGetAccess(&rights, pool, &device));
    TRUE(rights == 1); /* what was given is told, and changes nothing */
    DO(cuMemsetD8Async(at, 9, 4 * MIB, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemFreeAsync(at, stream));
}

/* What such pools cannot do. */
static void refused(void) {
    start();
    handle stream = stream_of(), host = pool_of(PINNED, HOST, 0), graph;
    struct pool_props props = {.type = PINNED, .handles = 1, .location = {HOST_NUMA, 0}};
    struct location nowhere = {NOWHERE, 0};
    handle pool;
    dptr at;
    int file = -1;
    IS(NOT_SUPPORTED, cuMemPoolCreate(&pool, &props)); /* a node's pool that can be exported */
    IS(INVALID_VALUE, cuMemPoolExportToShareableHandle(&file, host, 1, 0));
    DO(cuMemGetDefaultMemPool(&pool, &nowhere, MANAGED));
    DO(cuStreamBeginCapture_v2(stream, 2));
    IS(NOT_SUPPORTED, cuMemAllocFromPoolAsync(&at, 1, host, stream));
    IS(NOT_SUPPORTED, cuMemAllocFromPoolAsync(&at, 1, pool, stream));
    DO(cuStreamEndCapture(stream, &graph));
    IS(OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&at, (size_t)1 << 60, host, stream));
    IS(OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&at, (size_t)1 << 60, pool, stream));
}

/* With managed=fixed no device can have managed memory that moves. */
static void fixed(void) {
    start();
    struct pool_props props = {.type = MANAGED, .location = {DEVICE, 0}};
    struct location nowhere = {NOWHERE, 0};
    handle pool;
    IS(NOT_SUPPORTED, cuMemPoolCreate(&pool, &props));
    IS(NOT_SUPPORTED, cuMemGetDefaultMemPool(&pool, &nowhere, MANAGED));
}

/* Drivers before 13.0. */
static void older(void) {
    start();
    struct pool_props managed = {.type = MANAGED, .location = {DEVICE, 0}};
    struct pool_props host = {.type = PINNED, .location = {HOST, 0}};
    struct pool_props node = {.type = PINNED, .location = {HOST_NUMA, 0}};
    handle pool;
    int nodes = 7, hosts = 7;
    DO(cuDeviceGetAttribute(&nodes, 142, 0));
    DO(cuDeviceGetAttribute(&hosts, 144, 0));
    TRUE(nodes == 1 && hosts == 0);
    IS(INVALID_VALUE, cuMemPoolCreate(&pool, &managed));
    IS(INVALID_VALUE, cuMemPoolCreate(&pool, &host));
    DO(cuMemPoolCreate(&pool, &node));
}

TESTS(T(host), T(host_without_access), T(host_too_early), T(managed), T(preferred), T(refused), T(fixed), T(older))
