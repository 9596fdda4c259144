/* Stream-ordered memory. */
#include "cu.h"
#include <unistd.h>


enum { FOLLOW = 1, OPPORTUNISTIC, INTERNAL, THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH };
#define STEP (32 * MIB)

static unsigned long long of(handle pool, int attribute) {
    unsigned long long value = 0;
    DO(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static handle default_pool(void) {
    handle pool;
    DO(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static void set(handle pool, int attribute, unsigned long long value) { DO(cuMemPoolSetAttribute(pool, attribute, &value)); }

static void steps(void) {
    start();
    handle pool = default_pool(), stream;
    dptr small, large;
    size_t before = settled();
    DO(cuStreamCreate(&stream, 1));
    TRUE(of(pool, RESERVED) == 0);
    DO(cuMemAllocAsync(&small, 100, stream));
    TRUE(of(pool, RESERVED) == STEP && of(pool, USED) == 512);
    TRUE(settled() == before - STEP);
    DO(cuMemAllocAsync(&large, STEP + 1, stream));
    TRUE(of(pool, RESERVED) == 3 * STEP);
    DO(cuMemFreeAsync(small, stream));
    DO(cuMemFreeAsync(large, stream));
    TRUE(of(pool, USED) == 0 && of(pool, RESERVED) == 3 * STEP);
    DO(cuStreamSynchronize(stream)); /* the threshold is 0: all free memory is released */
    TRUE(of(pool, RESERVED) == 0 && of(pool, RESERVED_HIGH) == 3 * STEP && of(pool, USED_HIGH) == STEP + 1024);
    TRUE(settled() == before);
    unsigned long long one = 1;
    IS(INVALID_VALUE, cuMemPoolSetAttribute(pool, USED_HIGH, &one));
    IS(INVALID_VALUE, cuMemPoolSetAttribute(pool, RESERVED, &one));
    set(pool, RESERVED_HIGH, 0);
    TRUE(of(pool, RESERVED_HIGH) == 0);
}

static void threshold(void) {
    start();
    handle pool = default_pool(), stream;
    dptr at[4];
    size_t before = settled();
    DO(cuStreamCreate(&stream, 1));
    set(pool, THRESHOLD, 2 * STEP);
    for (int n = 0; n < 4; n++)
        DO(cuMemAllocAsync(&at[n], STEP, stream));
    for (int n = 0; n < 4; n++)
        DO(cuMemFreeAsync(at[n], stream));
    DO(cuCtxSynchronize());
    TRUE(of(pool, RESERVED) == 2 * STEP);
    DO(cuMemPoolTrimTo(pool, STEP));
    TRUE(of(pool, RESERVED) == STEP);
    DO(cuMemPoolTrimTo(pool, 0));
    TRUE(of(pool, RESERVED) == 0 && settled() == before);
}

static void data(void) {
    start();
    handle stream;
    DO(cuStreamCreate(&stream, 1));
    for (int n = 0; n < 200; n++) {
        size_t bytes = 1 + (size_t)n * 7919 % (3 * MIB);
        unsigned char *out = malloc(bytes);
        dptr at;
        DO(cuMemAllocAsync(&at, bytes, stream));
        DO(cuMemsetD8Async(at, (unsigned char)n, bytes, stream));
        DO(cuMemcpyDtoHAsync_v2(out, at, bytes, stream));
        TRUE(out[0] == (unsigned char)n && out[bytes - 1] == (unsigned char)n);
        DO(cuMemFreeAsync(at, stream));
        IS(INVALID_VALUE, cuMemFreeAsync(at, stream));
        free(out);
    }
    dptr at;
    DO(cuMemAllocAsync(&at, 0, stream));
    TRUE(at == 0);
    DO(cuMemFreeAsync(at, stream));
    DO(cuMemAllocAsync(&at, 1000, stream));
    DO(cuMemFree_v2(at)); /* cuMemFree accepts a pool's pointer */
    DO(cuMemAlloc_v2(&at, 1000));
    DO(cuMemFreeAsync(at, stream)); /* and cuMemFreeAsync accepts a pointer of cuMemAlloc */
    DO(cuStreamSynchronize(stream));
}

/* Work on another stream without an order after the allocation accesses it too early. */
static void too_early(void) {
    static int judged;
    start();
    handle one, two;
    dptr at;
    DO(cuStreamCreate(&one, 1));
    DO(cuStreamCreate(&two, 1));
    DO(cuLaunchHostFunc(one, wait_until_set, &judged));
    DO(cuMemAllocAsync(&at, 1000, one));
    DO(cuMemsetD8Async(at, 1, 1000, two));
    IS(ILLEGAL_ADDRESS, cuStreamSynchronize(two));
    __atomic_store_n(&judged, 1, __ATOMIC_RELEASE);
    IS(ILLEGAL_ADDRESS, cuMemAlloc_v2(&at, 1)); /* the context is lost */
}

static void in_order(void) {
    start();
    handle one, two;
    dptr at;
    DO(cuStreamCreate(&one, 1));
    DO(cuStreamCreate(&two, 1));
    DO(cuMemAllocAsync(&at, 1000, one));
    DO(cuStreamSynchronize(one));
    DO(cuMemsetD8Async(at, 1, 1000, two));
    DO(cuStreamSynchronize(two));
}

static void exhaustion(void) {
    start();
    handle pool = default_pool(), stream;
    static dptr at[4096];
    size_t before = settled();
    DO(cuStreamCreate(&stream, 1));
    set(pool, THRESHOLD, ~0ull);
    for (int round = 0; round < 3; round++) {
        int count = 0;
        result last;
        while ((last = cuMemAllocAsync(&at[count], 5 * MIB, stream)) == OK)
            TRUE(++count < 4096);
        IS(OUT_OF_MEMORY, last);
        TRUE((size_t)count * 5 * MIB > before / 2);
        for (int n = 0; n < count; n++)
            DO(cuMemFreeAsync(at[n], stream));
        DO(cuStreamSynchronize(stream));
        TRUE(of(pool, RESERVED) > before / 2); /* kept */
    }
    /* segments of 32 MiB cannot hold 200 MiB: the pool must release them first */
    DO(cuMemAllocAsync(&at[0], 200 * MIB, stream));
    DO(cuMemFreeAsync(at[0], stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemPoolTrimTo(pool, 0));
    TRUE(settled() == before);
}

static void own_pools(void) {
    start();
    struct pool_props props = { .type = 1, .location = { 1, 0 }, .max = 64 * MIB };
    handle pool, current, stream;
    dptr at, more;
    size_t before = settled();
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemPoolCreate(&pool, &props));
    DO(cuMemAllocFromPoolAsync(&at, 40 * MIB, pool, stream));
    IS(OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&more, 40 * MIB, pool, stream));
    DO(cuDeviceSetMemPool(0, pool));
    DO(cuDeviceGetMemPool(&current, 0));
    TRUE(current == pool);
    IS(INVALID_VALUE, cuMemPoolDestroy(default_pool()));
    DO(cuMemPoolDestroy(pool));
    IS(INVALID_VALUE, cuMemPoolDestroy(pool));
    DO(cuDeviceGetMemPool(&current, 0));
    TRUE(current == default_pool());
    DO(cuMemsetD8Async(at, 1, 40 * MIB, stream)); /* the allocation stays valid until it is freed */
    TRUE(settled() == before - 64 * MIB);
    DO(cuMemFreeAsync(at, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(settled() == before);
    props.location.id = 9;
    IS(INVALID_VALUE, cuMemPoolCreate(&pool, &props));
    props.type = 0;
    IS(INVALID_VALUE, cuMemPoolCreate(&pool, &props));
}

TESTS(T(steps), T(threshold), T(data), T(too_early), T(in_order), T(exhaustion), T(own_pools))
