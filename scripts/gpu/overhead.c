/* Nanoseconds a call takes: a launch of a kernel that does nothing, allocation with free, a query; and two that reach no
 * driver, the clock and the processor's counter, which a virtual machine may make slow. JSON on standard output. */
#include "driver.h"

#include <time.h>

enum { BATCHES = 15, LAUNCHES = 500, PAIRS = 200, QUERIES = 500 };
typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static void *kernel;
static launch_fn launch;
static int (*synchronize)(void);
static int (*mem_alloc)(dptr *, size_t);
static int (*mem_free)(dptr);
static int (*mem_info)(size_t *, size_t *);

static void launches(void) {
    for (int i = 0; i < LAUNCHES; i++)
        if (launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)) exit(1);
}

static void pairs(void) {
    dptr at;
    for (int i = 0; i < PAIRS; i++)
        if (mem_alloc(&at, 1 << 20) || mem_free(at)) exit(1);
}

static void queries(void) {
    size_t available, all;
    for (int i = 0; i < QUERIES; i++)
        if (mem_info(&available, &all)) exit(1);
}

static void clocks(void) {
    struct timespec now;
    for (int i = 0; i < QUERIES; i++) clock_gettime(CLOCK_MONOTONIC, &now);
}

static void counters(void) {
#ifdef __x86_64__
    for (int i = 0; i < QUERIES; i++) __builtin_ia32_rdtsc();
#endif
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

/* The median batch, with the device idle before each. */
static double measure(void (*work)(void), int calls) {
    double nanoseconds[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        struct timespec from, to;
        if (synchronize()) exit(1);
        clock_gettime(CLOCK_MONOTONIC, &from);
        work();
        clock_gettime(CLOCK_MONOTONIC, &to);
        nanoseconds[batch] = ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / calls;
    }
    qsort(nanoseconds, BATCHES, sizeof *nanoseconds, ascending);
    return nanoseconds[BATCHES / 2];
}

int main(void) {
    void *module;
    make_context();
    CU("cuModuleLoadData", (void **, const void *), (&module, nothing_ptx));
    CU("cuModuleGetFunction", (void **, void *, const char *), (&kernel, module, "nothing"));
    launch = (launch_fn)driver_symbol("cuLaunchKernel");
    synchronize = (int (*)(void))driver_symbol("cuCtxSynchronize");
    mem_alloc = (int (*)(dptr *, size_t))driver_symbol("cuMemAlloc_v2");
    mem_free = (int (*)(dptr))driver_symbol("cuMemFree_v2");
    mem_info = (int (*)(size_t *, size_t *))driver_symbol("cuMemGetInfo_v2");
    launches();
    printf("{\"cuLaunchKernel\": %.1f, ", measure(launches, LAUNCHES));
    printf("\"cuMemAlloc+cuMemFree of 1 MiB\": %.1f, ", measure(pairs, PAIRS));
    printf("\"cuMemGetInfo\": %.1f, ", measure(queries, QUERIES));
    printf("\"clock_gettime\": %.1f, ", measure(clocks, QUERIES));
    printf("\"rdtsc\": %.1f}\n", measure(counters, QUERIES));
    return 0;
}
