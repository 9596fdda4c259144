/* Batches of copies (cuMemcpyBatchAsync, CUDA 12.8, and its second version, CUDA 13) between kernels: to the device, within it, and back. JSON on standard
 * output: of each version what it answers, whether all bytes came back, and the microseconds of a batch's call; null where the driver has no such function. */
#include "driver.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

enum { PIECES = 64, ROUNDS = 20, IN_ORDER = 1 };
static const size_t BYTES = (size_t)64 << 20;

/* CUmemcpyAttributes */
struct copying {
    int order, from[2], to[2];
    unsigned flags;
};

static void *stream, *kernel;
static int version, answer;
static double took;
static int calls;

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void batch(void *function, dptr to, dptr from) {
    dptr tos[PIECES], froms[PIECES];
    size_t sizes[PIECES], first = 0, failed = 0;
    struct copying how = {.order = IN_ORDER};
    for (size_t i = 0; i < PIECES; i++) {
        sizes[i] = BYTES / PIECES;
        tos[i] = to + i * sizes[i];
        /* The last piece comes first, so that a batch that is one copy is seen. */
        froms[i] = from + (PIECES - 1 - i) * sizes[i];
    }
    double before = microseconds();
    int result = version == 1 ? ((int (*)(dptr *, dptr *, size_t *, size_t, struct copying *, size_t *, size_t, size_t *, void *))function)(
                                    tos, froms, sizes, PIECES, &how, &first, 1, &failed, stream)
                              : ((int (*)(dptr *, dptr *, size_t *, size_t, struct copying *, size_t *, size_t, void *))function)(
                                    tos, froms, sizes, PIECES, &how, &first, 1, stream);
    took += microseconds() - before, calls++;
    if (result) answer = result;
}

static void launch(void) {
    CU("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
       (kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static int whole(const uint64_t *put, const uint64_t *got) {
    size_t words = BYTES / 8, piece = words / PIECES;
    for (size_t i = 0; i < words; i++)
        if (got[i] != put[(PIECES - 1 - i / piece) * piece + i % piece]) return 0;
    return 1;
}

static void ask(const char *name, uint64_t *put, uint64_t *got, dptr one, dptr two) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *function = driver ? dlsym(driver, name) : NULL;
    int good = 1;
    if (!function) {
        printf("\"%s\": null", name);
        return;
    }
    answer = 0, took = 0, calls = 0;
    for (uint64_t round = 1; round <= ROUNDS && !answer; round++) {
        for (size_t i = 0; i < BYTES / 8; i += 512) put[i] = round << 32 | i;
        launch();
        batch(function, one, (dptr)(uintptr_t)put);
        launch();
        batch(function, two, one);
        launch();
        batch(function, (dptr)(uintptr_t)got, two);
        launch();
        CU("cuStreamSynchronize", (void *), (stream));
        /* Each of three batches turned the order round. */
        good = good && whole(put, got);
    }
    printf("\"%s\": {\"answer\": %d, \"whole\": %s, \"call_us\": %.1f}", name, answer, good ? "true" : "false", took / calls);
}

int main(void) {
    void *module;
    uint64_t *put, *got;
    dptr one, two;
    make_context();
    CU("cuModuleLoadData", (void **, const void *), (&module, nothing_ptx));
    CU("cuModuleGetFunction", (void **, void *, const char *), (&kernel, module, "nothing"));
    CU("cuStreamCreate", (void **, unsigned), (&stream, 1));
    CU("cuMemHostAlloc", (void **, size_t, unsigned), ((void **)&put, BYTES, 0));
    CU("cuMemHostAlloc", (void **, size_t, unsigned), ((void **)&got, BYTES, 0));
    memset(put, 0, BYTES);
    CU("cuMemAlloc_v2", (dptr *, size_t), (&one, BYTES));
    CU("cuMemAlloc_v2", (dptr *, size_t), (&two, BYTES));
    printf("{");
    version = 1, ask("cuMemcpyBatchAsync", put, got, one, two);
    printf(", ");
    version = 2, ask("cuMemcpyBatchAsync_v2", put, got, one, two);
    printf("}\n");
    return 0;
}
