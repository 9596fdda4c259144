/* Virtual memory management. */
#include "cu.h"

#define PAGE (2 * MIB)

result cuModuleLoadData(handle *, const void *), cuModuleGetFunction(handle *, handle, const char *);
result cuLaunchKernel(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **);
result cuEventRecord(handle, handle), cuEventSynchronize(handle), cuEventQuery(handle);

static struct alloc_prop prop(int handles) { return (struct alloc_prop){ .type = 1, .handles = handles, .location = { 1, 0 } }; }

static void allow(dptr at, size_t bytes, int flags) {
    struct access access = { { 1, 0 }, flags };
    DO(cuMemSetAccess(at, bytes, &access, 1));
}

static dptr memory(size_t bytes) {
    dptr made;
    struct alloc_prop want = prop(0);
    DO(cuMemCreate(&made, bytes, &want, 0));
    return made;
}

static void handle_first(void) {
    start();
    size_t before = settled(), granularity;
    struct alloc_prop want = prop(0);
    dptr at, physical;
    DO(cuMemGetAllocationGranularity(&granularity, &want, 0));
    TRUE(granularity == PAGE);
    IS(INVALID_VALUE, cuMemCreate(&physical, PAGE + 1, &want, 0));
    IS(INVALID_VALUE, cuMemAddressReserve(&at, 1000, 0, 0, 0));
    DO(cuMemAddressReserve(&at, 4 * PAGE, 0, 0, 0));
    TRUE(settled() == before); /* reserved addresses take no memory */
    physical = memory(4 * PAGE);
    TRUE(settled() == before - 4 * PAGE);
    DO(cuMemMap(at, 4 * PAGE, 0, physical, 0));
    TRUE(settled() == before - 4 * PAGE);
    DO(cuMemRelease(physical)); /* the mapping keeps the memory */
    IS(INVALID_VALUE, cuMemRelease(physical));
    TRUE(settled() == before - 4 * PAGE);
    allow(at, 4 * PAGE, 3);
    DO(cuMemsetD8_v2(at, 5, 4 * PAGE));
    DO(cuCtxSynchronize());
    IS(INVALID_VALUE, cuMemAddressFree(at, 4 * PAGE)); /* still mapped */
    DO(cuMemUnmap(at, 4 * PAGE));
    TRUE(settled() == before);
    DO(cuMemAddressFree(at, 4 * PAGE));
    IS(INVALID_VALUE, cuMemAddressFree(at, 4 * PAGE));
}

static void mapping_first(void) {
    start();
    size_t before = settled();
    dptr at, physical = memory(PAGE), same;
    unsigned char *in = made(PAGE, 9), *out = malloc(PAGE);
    DO(cuMemAddressReserve(&at, 2 * PAGE, 0, 0, 0));
    DO(cuMemMap(at, PAGE, 0, physical, 0));
    allow(at, PAGE, 3);
    DO(cuMemcpyHtoD_v2(at, in, PAGE));
    DO(cuCtxSynchronize());
    DO(cuMemUnmap(at, PAGE));
    TRUE(settled() == before - PAGE); /* the handle keeps the memory */
    DO(cuMemMap(at + PAGE, PAGE, 0, physical, 0));
    allow(at + PAGE, PAGE, 1);
    DO(cuMemcpyDtoH_v2(out, at + PAGE, PAGE));
    TRUE(pattern(out, PAGE, 9)); /* the bytes are unchanged */
    DO(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)(at + PAGE)));
    TRUE(same == physical);
    DO(cuMemRelease(physical));
    DO(cuMemRelease(physical));
    DO(cuMemUnmap(at + PAGE, PAGE));
    TRUE(settled() == before);
    DO(cuMemAddressFree(at, 2 * PAGE));
}

static void wrong_arguments(void) {
    start();
    dptr at, physical = memory(2 * PAGE), other;
    struct alloc_prop want = prop(2);
    IS(NOT_SUPPORTED, cuMemCreate(&other, PAGE, &want, 0));
    want = prop(0), want.location.id = 5;
    IS(INVALID_DEVICE, cuMemCreate(&other, PAGE, &want, 0));
    want = prop(0);
    IS(OUT_OF_MEMORY, cuMemCreate(&other, (size_t)1 << 50, &want, 0));
    DO(cuMemAddressReserve(&at, 4 * PAGE, 0, 0, 0));
    IS(NOT_SUPPORTED, cuMemMap(at, 2 * PAGE, PAGE, physical, 0)); /* the offset must be 0 */
    IS(NOT_SUPPORTED, cuMemMap(at, 3 * PAGE, 0, physical, 0));    /* larger than the physical memory */
    IS(NOT_SUPPORTED, cuMemMap(at, PAGE, 0, physical, 0));        /* a part of it */
    IS(INVALID_VALUE, cuMemMap(at + 3 * PAGE, 2 * PAGE, 0, physical, 0)); /* past the reservation */
    IS(INVALID_VALUE, cuMemMap(at + 1, 2 * PAGE, 0, physical, 0));
    DO(cuMemMap(at, 2 * PAGE, 0, physical, 0));
    IS(INVALID_VALUE, cuMemMap(at + PAGE, 2 * PAGE, 0, physical, 0)); /* mapped already */
    IS(INVALID_VALUE, cuMemUnmap(at, PAGE));                          /* a part of a mapping */
    DO(cuMemUnmap(at + 2 * PAGE, PAGE));                              /* not mapped */
    struct access access = { { 1, 0 }, 3 };
    IS(INVALID_VALUE, cuMemSetAccess(at, 4 * PAGE, &access, 1));
    IS(INVALID_VALUE, cuMemFree_v2(at));
    DO(cuMemMap(at + 2 * PAGE, 2 * PAGE, 0, physical, 0)); /* a second mapping is allowed */
    DO(cuMemUnmap(at, 4 * PAGE));
}

static void no_access(void) {
    start();
    dptr at, physical = memory(PAGE);
    unsigned long long flags = 9;
    struct location here = { 1, 0 };
    DO(cuMemAddressReserve(&at, PAGE, 0, 0, 0));
    DO(cuMemMap(at, PAGE, 0, physical, 0));
    DO(cuMemGetAccess(&flags, &here, at));
    TRUE(flags == 0);
    IS(INVALID_VALUE, cuMemsetD8_v2(at, 1, PAGE));
    DO(cuCtxSynchronize());
}

static void read_only(void) {
    start();
    dptr at, physical = memory(PAGE);
    char byte;
    DO(cuMemAddressReserve(&at, PAGE, 0, 0, 0));
    DO(cuMemMap(at, PAGE, 0, physical, 0));
    allow(at, PAGE, 1);
    DO(cuMemcpyDtoH_v2(&byte, at, 1));
    IS(INVALID_VALUE, cuMemsetD8_v2(at, 1, PAGE));
    DO(cuCtxSynchronize());
}

static void unmapped_under_work(void) {
    static int unmapped;
    start();
    handle stream;
    dptr at, physical = memory(PAGE);
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemAddressReserve(&at, PAGE, 0, 0, 0));
    DO(cuMemMap(at, PAGE, 0, physical, 0));
    allow(at, PAGE, 3);
    DO(cuLaunchHostFunc(stream, wait_until_set, &unmapped));
    DO(cuMemsetD8Async(at, 1, PAGE, stream));
    DO(cuMemUnmap(at, PAGE)); /* does not wait for work: the caller must */
    __atomic_store_n(&unmapped, 1, __ATOMIC_RELEASE);
    IS(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

/* A page at `at`. */
static void mapped(dptr at) {
    DO(cuMemMap(at, PAGE, 0, memory(PAGE), 0));
    allow(at, PAGE, 3);
}

/* A kernel of so many milliseconds, which has the page at `at` for all of them. */
static void launch(handle stream, unsigned long long ms, dptr at) {
    static handle module, function;
    unsigned long long ns = ms * 1000000, bytes = PAGE;
    void *params[] = { &ns, &at, &bytes };
    if (!function) {
        DO(cuModuleLoadData(&module, "image"));
        DO(cuModuleGetFunction(&function, module, "hold"));
    }
    DO(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* Two pages, and a stream in which a kernel of the first has begun. */
static dptr held(handle *stream, unsigned long long ms) {
    dptr at;
    start();
    DO(cuStreamCreate(stream, 1));
    DO(cuMemAddressReserve(&at, 2 * PAGE, 0, 0, 0));
    mapped(at), mapped(at + PAGE);
    launch(*stream, ms, at);
    return at;
}

static void unmapped_and_back(void) {
    handle stream;
    dptr at = held(&stream, 300);
    DO(cuMemUnmap(at, PAGE));
    mapped(at); /* it is there again before the kernel ends */
    IS(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

/* What a context that was lost before had under way costs no other one anything. */
static void unmapped_after_a_loss(void) {
    handle lost, stream, own, first;
    dptr at;
    setenv("SOFTGPU_FAIL", "cuEventQuery:1:CUDA_ERROR_ECC_UNCORRECTABLE!!", 1);
    first = start();
    at = held(&own, 0);
    DO(cuCtxSynchronize());
    DO(cuCtxCreate_v2(&lost, 0, 0));
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemsetD8Async(at, 1, PAGE, stream));
    IS(ECC_UNCORRECTABLE, cuEventQuery(NULL));
    IS(ECC_UNCORRECTABLE, cuStreamSynchronize(stream));
    DO(cuMemUnmap(at, PAGE));
    DO(cuCtxSetCurrent(first));
    mapped(at);
    DO(cuMemsetD8Async(at, 2, PAGE, own));
    DO(cuStreamSynchronize(own));
}

static void unmapped_beside(void) {
    handle stream;
    dptr at = held(&stream, 100);
    DO(cuMemUnmap(at + PAGE, PAGE));
    mapped(at + PAGE);
    DO(cuStreamSynchronize(stream));
    DO(cuMemUnmap(at, PAGE)); /* its work is known to be over */
    mapped(at);
    launch(stream, 0, at);
    DO(cuStreamSynchronize(stream));
}

static void rights_taken(void) {
    handle stream;
    dptr at = held(&stream, 300);
    allow(at, PAGE, 0);
    allow(at, PAGE, 3);
    IS(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

/* An ended kernel that nobody has waited for may still run on a slower device. After two milliseconds it is over here, so a
 * busy machine may need several tries. */
static void unmapped_before_the_wait(void) {
    handle stream;
    dptr at = held(&stream, 0);
    int faulted = 0;
    for (int n = 0; n < 1000 && !faulted; n++) {
        launch(stream, 0, at);
        DO(cuMemUnmap(at, PAGE));
        mapped(at);
        faulted = cuStreamSynchronize(stream) == ILLEGAL_ADDRESS;
    }
    TRUE(faulted);
}

/* A kernel that begins while its memory is away, which is there again at its end. */
static void began_without(void) {
    static int go;
    handle stream, event;
    dptr at = held(&stream, 0);
    DO(cuEventCreate(&event, 0));
    DO(cuStreamSynchronize(stream));
    DO(cuLaunchHostFunc(stream, wait_until_set, &go));
    DO(cuEventRecord(event, stream));
    launch(stream, 300, at);
    DO(cuMemUnmap(at, PAGE)); /* it has not begun */
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    IS(ILLEGAL_ADDRESS, cuEventSynchronize(event)); /* what is before it is over */
    mapped(at);
    IS(ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

/* Its opposite: the memory is there again before it begins. */
static void began_with(void) {
    static int go;
    handle stream;
    dptr at = held(&stream, 0);
    DO(cuStreamSynchronize(stream));
    DO(cuLaunchHostFunc(stream, wait_until_set, &go));
    launch(stream, 1, at);
    DO(cuMemUnmap(at, PAGE));
    mapped(at);
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    DO(cuStreamSynchronize(stream));
}

static void side_by_side(void) {
    start();
    dptr at, base;
    size_t size, before = settled();
    enum { MANY = 16 };
    unsigned char *in = made(MANY * PAGE, 2), *out = malloc(MANY * PAGE);
    unsigned mapped;
    DO(cuMemAddressReserve(&at, MANY * PAGE, 0, 0, 0));
    for (int n = 0; n < MANY; n++) {
        dptr physical = memory(PAGE);
        DO(cuMemMap(at + (dptr)n * PAGE, PAGE, 0, physical, 0));
        DO(cuMemRelease(physical));
    }
    allow(at, MANY * PAGE, 3);
    DO(cuMemcpyHtoD_v2(at, in, MANY * PAGE)); /* one copy over many mappings */
    DO(cuMemcpyDtoH_v2(out, at, MANY * PAGE));
    TRUE(pattern(out, MANY * PAGE, 2));
    DO(cuMemGetAddressRange_v2(&base, &size, at + PAGE + 5));
    TRUE(base == at + PAGE && size == PAGE);
    DO(cuPointerGetAttribute(&size, 12, at + PAGE));
    TRUE(size == MANY * PAGE);
    DO(cuPointerGetAttribute(&mapped, 13, at));
    TRUE(mapped == 1);
    DO(cuMemUnmap(at, MANY * PAGE));
    IS(INVALID_VALUE, cuPointerGetAttribute(&mapped, 13, at));
    TRUE(settled() == before);
}

static void exhaustion(void) {
    start();
    size_t before = settled();
    static dptr all[4096];
    struct alloc_prop want = prop(0);
    for (int round = 0; round < 2; round++) {
        int count = 0;
        result last;
        while ((last = cuMemCreate(&all[count], 6 * MIB, &want, 0)) == OK)
            TRUE(++count < 4096);
        IS(OUT_OF_MEMORY, last);
        TRUE((size_t)count * 6 * MIB > before - 6 * MIB);
        for (int n = 0; n < count; n++)
            DO(cuMemRelease(all[n]));
        TRUE(settled() == before);
    }
}

TESTS(T(handle_first), T(mapping_first), T(wrong_arguments), T(no_access), T(read_only), T(unmapped_under_work), T(unmapped_and_back), T(unmapped_after_a_loss),
      T(unmapped_beside), T(rights_taken), T(unmapped_before_the_wait), T(began_without), T(began_with), T(side_by_side), T(exhaustion))
