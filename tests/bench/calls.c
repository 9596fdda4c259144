/* What driver calls cost: a pair of cuMemAlloc and cuMemFree, one of cuMemAllocAsync and cuMemFreeAsync, a
 * cuLaunchKernel, a cuGraphLaunch, a cuMemGetInfo, a cuStreamSynchronize, a cuEventQuery, a cuEventRecord, a memset or a copy.
 *
 *   usage: calls alloc|random|async|launch|graph|info|wait|query|record|memset|bulk|copy|down ROUNDS [LIVE [NEIGHBOURS]]
 *          calls hold 0 1 NEIGHBOURS   starts them, prints a line, and ends with its standard input
 *          calls exit 0             starts, and prints CLOCK_MONOTONIC in nanoseconds as its last act but exiting
 *
 * alloc makes and frees one allocation beside LIVE others; async does so in the order of a stream, beside others of the same pool; random replaces one of the LIVE, chosen at random, so that nothing about it
 * is in the caches. NEIGHBOURS processes have initialised the driver and hold
 * memory meanwhile. Prints nanoseconds a round: the median of 21 batches, in this thread's own processor time. None of these calls waits for
 * anything, and by the clock on the wall a busy machine's other programs are measured: seen as 55 to 200 ns for one and the same code. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 21 };

typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static int (*mem_alloc)(uint64_t *, size_t);
static int (*mem_free)(uint64_t);
static int (*alloc_async)(uint64_t *, size_t, void *);
static int (*free_async)(uint64_t, void *);
static void *stream;
static launch_fn launch;
static int (*graph_launch)(void *, void *);
static int (*mem_info)(size_t *, size_t *);
static int (*synchronize)(void *);
static int (*event_query)(void *), (*event_record)(void *, void *);
static int (*memset_async)(uint64_t, unsigned char, size_t, void *);
static int (*copy_async)(uint64_t, uint64_t, size_t, void *), (*down_async)(void *, uint64_t, size_t, void *);
static uint64_t *live, seed = 88172645463325252ull;

static void start(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    if (!init || init(0)) exit(1);
    mem_alloc = (int (*)(uint64_t *, size_t))dlsym(driver, "cuMemAlloc_v2");
    mem_free = (int (*)(uint64_t))dlsym(driver, "cuMemFree_v2");
    launch = (launch_fn)dlsym(driver, "cuLaunchKernel");
    graph_launch = (int (*)(void *, void *))dlsym(driver, "cuGraphLaunch");
    mem_info = (int (*)(size_t *, size_t *))dlsym(driver, "cuMemGetInfo_v2");
    synchronize = (int (*)(void *))dlsym(driver, "cuStreamSynchronize");
    event_query = (int (*)(void *))dlsym(driver, "cuEventQuery");
    event_record = (int (*)(void *, void *))dlsym(driver, "cuEventRecord");
    memset_async = (int (*)(uint64_t, unsigned char, size_t, void *))dlsym(driver, "cuMemsetD8Async");
    copy_async = (int (*)(uint64_t, uint64_t, size_t, void *))dlsym(driver, "cuMemcpyAsync");
    down_async = (int (*)(void *, uint64_t, size_t, void *))dlsym(driver, "cuMemcpyDtoHAsync_v2");
    if (!event_query || !event_record || !memset_async || !copy_async || !down_async) exit(1);
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    void *context;
    if (!mem_alloc || !mem_free || !launch || !graph_launch || !mem_info || !synchronize || !retain || retain(&context, 0)) exit(1);
}

static void start_async(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    alloc_async = (int (*)(uint64_t *, size_t, void *))dlsym(driver, "cuMemAllocAsync");
    free_async = (int (*)(uint64_t, void *))dlsym(driver, "cuMemFreeAsync");
    int (*create)(void **, unsigned) = (int (*)(void **, unsigned))dlsym(driver, "cuStreamCreate");
    if (!alloc_async || !free_async || !create || create(&stream, 1)) exit(1);
}

static uint64_t next(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static void replace(size_t rounds, size_t count) {
    while (rounds--) {
        uint64_t *slot = &live[next() % count];
        if (mem_free(*slot) || mem_alloc(slot, 512)) exit(1);
    }
}

static void pairs(size_t rounds) {
    uint64_t at;
    while (rounds--)
        if (mem_alloc(&at, 512) || mem_free(at)) exit(1);
}

static void async_pairs(size_t rounds) {
    uint64_t at;
    while (rounds--)
        if (alloc_async(&at, 512, stream) || free_async(at, stream)) exit(1);
}

static void launches(size_t rounds) {
    while (rounds--)
        if (launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)) exit(1);
}

static void graph_launches(size_t rounds) {
    while (rounds--)
        if (graph_launch(NULL, NULL)) exit(1);
}

static void questions(size_t rounds) {
    size_t left, all;
    while (rounds--)
        if (mem_info(&left, &all)) exit(1);
}

static int print_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%lld\n", now.tv_sec * 1000000000ll + now.tv_nsec);
    return 0;
}

static void waits(size_t rounds) {
    while (rounds--)
        if (synchronize(NULL)) exit(1);
}

static void queries(size_t rounds) {
    while (rounds--)
        if (event_query(&seed)) exit(1);
}

static void records(size_t rounds) {
    while (rounds--)
        if (event_record(&seed, NULL)) exit(1);
}

static void memsets(size_t rounds, size_t bytes) {
    while (rounds--)
        if (memset_async(4096, 0, bytes, NULL)) exit(1);
}

static void copies(size_t rounds) {
    while (rounds--)
        if (copy_async(4096, 8192, 4096, NULL)) exit(1);
}

static void downs(size_t rounds) {
    while (rounds--)
        if (down_async(&seed, 8192, 8, NULL)) exit(1);
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

/* A process that holds a little and waits for the end of `until`. */
static void neighbour(int ready, int until) {
    uint64_t at;
    char byte = 0;
    start();
    if (mem_alloc(&at, 1 << 20) || write(ready, &byte, 1) != 1) _exit(1);
    _exit(read(until, &byte, 1) != 0);
}

static void start_neighbours(int count) {
    int ready[2], until[2];
    if (pipe(ready) || pipe(until)) exit(1);
    for (int i = 0; i < count; i++) {
        if (fork()) continue;
        close(until[1]);
        neighbour(ready[1], until[0]);
    }
    close(until[0]);
    alarm(300); /* One that could not start never says that it is ready. */
    for (char byte; count; count--)
        if (read(ready[0], &byte, 1) != 1) exit(1);
    alarm(0);
}

static void batch(const char *call, size_t rounds, size_t count) {
    if (!strcmp(call, "alloc")) pairs(rounds);
    else if (!strcmp(call, "random")) replace(rounds, count);
    else if (!strcmp(call, "async")) async_pairs(rounds);
    else if (!strcmp(call, "graph")) graph_launches(rounds);
    else if (!strcmp(call, "info")) questions(rounds);
    else if (!strcmp(call, "wait")) waits(rounds);
    else if (!strcmp(call, "query")) queries(rounds);
    else if (!strcmp(call, "record")) records(rounds);
    else if (!strcmp(call, "memset")) memsets(rounds, 4096);
    else if (!strcmp(call, "bulk")) memsets(rounds, 2 << 20);
    else if (!strcmp(call, "copy")) copies(rounds);
    else if (!strcmp(call, "down")) downs(rounds);
    else launches(rounds);
}

/* Valgrind counts the instructions of this function and of what it calls, in its thread, and no others: by its name. */
__attribute__((noinline, noclone)) static void measured(const char *call, size_t rounds, size_t count) {
    batch(call, rounds, count);
    __asm__ volatile("" ::: "memory"); /* The call before is no jump. */
}

int main(int argc, char **argv) {
    double nanoseconds[BATCHES];
    if (argc < 3) return 2;
    size_t rounds = strtoull(argv[2], NULL, 10), count = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    if (argc > 4) start_neighbours(atoi(argv[4]));
    if (!strcmp(argv[1], "hold")) return puts("ready") < 0 || fflush(stdout) || getchar() != EOF;
    start();
    if (!strcmp(argv[1], "exit")) return print_now();
    if (!count) count = 1;
    /* Large pages, so that the bench's own list costs as little as it can. */
    size_t bytes = (count * sizeof *live + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1);
    live = aligned_alloc(2 << 20, bytes);
    if (!live) return 1;
    madvise(live, bytes, MADV_HUGEPAGE);
    int async = !strcmp(argv[1], "async");
    if (async) start_async();
    for (size_t i = 0; i < count; i++)
        if (async ? alloc_async(&live[i], 512, stream) : mem_alloc(&live[i], 512)) return 1;
    launches(1); /* As every thread that waits for work has launched some. */
    batch(argv[1], 2, count); /* What a first call does once is no cost of the others. */
    for (int batch = 0; batch < BATCHES; batch++) {
        struct timespec from, to;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        measured(argv[1], rounds / BATCHES, count);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        nanoseconds[batch] = ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / (double)(rounds / BATCHES);
    }
    qsort(nanoseconds, BATCHES, sizeof *nanoseconds, ascending);
    printf("%.1f\n", nanoseconds[BATCHES / 2]);
    return 0;
}
