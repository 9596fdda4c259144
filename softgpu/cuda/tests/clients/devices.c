/* Several devices, batches, texture objects. */
#include "cu.h"

static handle contexts[2];

static void two(void) {
    DO(cuInit(0));
    for (int n = 0; n < 2; n++) {
        int device;
        DO(cuDeviceGet(&device, n));
        DO(cuDevicePrimaryCtxRetain(&contexts[n], device));
    }
}

static void between_devices(void) {
    two();
    dptr at[2];
    size_t bytes = 3 * MIB, before[2];
    unsigned char *in = made(bytes, 1), *out = malloc(bytes);
    for (int n = 0; n < 2; n++) {
        unsigned ordinal;
        DO(cuCtxSetCurrent(contexts[n]));
        before[n] = settled();
        DO(cuMemAlloc_v2(&at[n], bytes));
        TRUE(settled() == before[n] - 4 * MIB); /* only on this device */
        DO(cuPointerGetAttribute(&ordinal, 9, at[n]));
        TRUE(ordinal == (unsigned)n);
    }
    DO(cuCtxSetCurrent(contexts[0]));
    DO(cuMemcpyHtoD_v2(at[0], in, bytes));
    DO(cuMemcpyPeer(at[1], contexts[1], at[0], contexts[0], bytes));
    IS(INVALID_CONTEXT, cuMemcpyPeer(at[1], (handle)1, at[0], contexts[0], bytes));
    DO(cuMemcpyDtoH_v2(out, at[1], bytes));
    TRUE(pattern(out, bytes, 1));
    DO(cuMemFree_v2(at[1])); /* the current context is of the other device */
    DO(cuCtxSetCurrent(contexts[1]));
    TRUE(settled() == before[1]);
}

/* Devices that cannot access each other's memory: rights are refused, copies between them are made all the same. */
static void without_peers(void) {
    enum { PEER_ACCESS_UNSUPPORTED = 217, ACCESS_SUPPORTED = 2 };
    two();
    int can = 9, supported = 9;
    dptr at[2], mapped, physical;
    handle pool;
    unsigned char out = 0;
    DO(cuDeviceCanAccessPeer(&can, 0, 1));
    DO(cuDeviceGetP2PAttribute(&supported, ACCESS_SUPPORTED, 0, 1));
    TRUE(can == 0 && supported == 0);
    DO(cuCtxSetCurrent(contexts[0]));
    IS(PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(contexts[1], 0));
    struct alloc_prop prop = { .type = 1, .location = { 1, 0 } };
    struct access own = { { 1, 0 }, 3 }, others = { { 1, 1 }, 3 }, none = { { 1, 1 }, 0 }, both[] = { own, others };
    DO(cuMemAddressReserve(&mapped, 2 * MIB, 0, 0, 0));
    DO(cuMemCreate(&physical, 2 * MIB, &prop, 0));
    DO(cuMemMap(mapped, 2 * MIB, 0, physical, 0));
    IS(INVALID_DEVICE, cuMemSetAccess(mapped, 2 * MIB, both, 2));
    IS(INVALID_VALUE, cuMemsetD8_v2(mapped, 1, 1)); /* none was given */
    DO(cuMemSetAccess(mapped, 2 * MIB, &own, 1));
    DO(cuMemSetAccess(mapped, 2 * MIB, &none, 1));
    DO(cuMemsetD8_v2(mapped, 1, 1));
    DO(cuDeviceGetDefaultMemPool(&pool, 0));
    IS(INVALID_DEVICE, cuMemPoolSetAccess(pool, &others, 1));
    DO(cuMemPoolSetAccess(pool, &own, 1));
    for (int n = 0; n < 2; n++) {
        DO(cuCtxSetCurrent(contexts[n]));
        DO(cuMemAlloc_v2(&at[n], 1));
        DO(cuMemsetD8_v2(at[n], (unsigned char)(n + 5), 1));
        DO(cuCtxSynchronize());
    }
    DO(cuMemcpyPeer(at[1], contexts[1], at[0], contexts[0], 1));
    DO(cuMemcpyDtoH_v2(&out, at[1], 1));
    TRUE(out == 5);
}

static void rights_by_device(void) {
    two();
    DO(cuCtxSetCurrent(contexts[0]));
    struct alloc_prop prop = { .type = 1, .location = { 1, 1 } };
    struct location where = { 1, 0 };
    struct access access[] = { { { 1, 0 }, 1 }, { { 1, 1 }, 3 } };
    dptr physical, at;
    unsigned long long flags;
    DO(cuMemCreate(&physical, 2 * MIB, &prop, 0));
    DO(cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0));
    DO(cuMemMap(at, 2 * MIB, 0, physical, 0));
    DO(cuMemSetAccess(at, 2 * MIB, access, 2));
    DO(cuMemGetAccess(&flags, &where, at));
    TRUE(flags == 1);
    where.id = 1;
    DO(cuMemGetAccess(&flags, &where, at));
    TRUE(flags == 3);
    where.id = 2;
    IS(INVALID_DEVICE, cuMemGetAccess(&flags, &where, at));
}

static void batches(void) {
    start();
    enum { MANY = 10 };
    handle stream;
    dptr to[MANY], from[MANY];
    size_t sizes[MANY], starts[] = { 0, 5 }, failed = 0;
    unsigned char *in[MANY], out[MANY * 1000];
    struct copy_attr attrs[] = { { .order = 1 }, { .order = 2 } };
    DO(cuStreamCreate(&stream, 1));
    for (int n = 0; n < MANY; n++) {
        sizes[n] = (size_t)(n + 1) * 1000;
        DO(cuMemAlloc_v2(&to[n], sizes[n]));
        in[n] = made(sizes[n], (unsigned)n);
        from[n] = (dptr)(uintptr_t)in[n];
    }
    IS(INVALID_VALUE, cuMemcpyBatchAsync(to, from, sizes, MANY, attrs, starts, 2, &failed, NULL));
    DO(cuMemcpyBatchAsync(to, from, sizes, MANY, attrs, starts, 2, &failed, stream));
    TRUE(failed == ~(size_t)0);
    for (int n = 0; n < MANY; n++) {
        DO(cuMemcpyDtoHAsync_v2(out, to[n], sizes[n], stream));
        TRUE(pattern(out, sizes[n], (unsigned)n));
    }
    sizes[7]++;
    to[7] -= 1;
    IS(INVALID_VALUE, cuMemcpyBatchAsync(to, from, sizes, MANY, attrs, starts, 2, &failed, stream));
    TRUE(failed == 7);
    starts[0] = 1;
    IS(INVALID_VALUE, cuMemcpyBatchAsync(to, from, sizes, MANY, attrs, starts, 2, &failed, stream));
    attrs[0].order = 0;
    IS(INVALID_VALUE, cuMemcpyWithAttributesAsync(to[0], from[0], 10, attrs, stream));
    IS(INVALID_VALUE, cuMemcpyHtoD(0x1000, out, 10)); /* softgpu's addresses exceed 32 bits */
}

static void textures(void) {
    start();
    dptr texture, at;
    handle array;
    char sampling[104] = { 0 };
    struct array_desc desc = { 16, 16, 32, 1 };
    DO(cuArrayCreate_v2(&array, &desc));
    struct resource resource = { .type = 0, .res.array = array }, back;
    DO(cuTexObjectCreate(&texture, &resource, sampling, NULL));
    DO(cuTexObjectGetResourceDesc(&back, texture));
    TRUE(back.res.array == array);
    DO(cuTexObjectDestroy(texture));
    IS(INVALID_VALUE, cuTexObjectDestroy(texture));
    DO(cuMemAlloc_v2(&at, 4096));
    resource = (struct resource){ .type = 2, .res.linear = { at, 32, 1, 4096 } };
    DO(cuTexObjectCreate(&texture, &resource, sampling, NULL));
    IS(INVALID_VALUE, cuSurfObjectCreate(&texture, &resource));
    resource.res.linear.bytes++;
    IS(INVALID_VALUE, cuTexObjectCreate(&texture, &resource, sampling, NULL));
}

TESTS(T(between_devices), T(without_peers), T(rights_by_device), T(batches), T(textures))
