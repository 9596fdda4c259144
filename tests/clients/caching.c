/* A CUDA driver program with a caching allocator as PyTorch's: dropped blocks are cached and reused
 * for the same size. When the driver has no memory, the whole cache is freed and the request is
 * repeated, with the allocator's lock held all the time. It knows nothing of gpushare.
 *
 *   usage: caching [LIBRARY]      loads LIBRARY first, and does nothing with it
 *
 *   init          -> init RESULT
 *   pooled        -> pooled 0                      from now on blocks are of the default pool (cuMemAllocAsync), and the
 *                                                  host waits for all frees together
 *   take BYTES    -> take RESULT REFUSALS FREED    the driver's out-of-memories and what they freed
 *   drop          -> drop 0                        the most recent one goes to the cache
 *   spill         -> spill RESULT                  the cache is freed, as by empty_cache
 *   segment N BYTES -> segment RESULT REFUSALS FREED   an allocation of N handles of physical memory: at the driver's
 *                                                  out-of-memory the handles made so far and the whole cache are freed, and
 *                                                  all handles are made once more
 *   plain BYTES   -> plain RESULT                  cuMemAlloc by a library beside the allocator, which never asks twice
 *   create BYTES  -> create RESULT                 cuMemCreate by such a library
 *
 * RESULT is the CUresult as a number. The end of the input ends it with status 0. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024, OUT_OF_MEMORY = 2 };

typedef unsigned long long dptr;
static struct block { dptr at; size_t bytes; } used[MOST], cache[MOST];
static int uses, cached;
static int (*mem_alloc)(dptr *, size_t);
static int (*mem_free)(dptr);
static int (*alloc_async)(dptr *, size_t, void *);
static int (*free_async)(dptr, void *);
static int (*synchronize)(void);
static int is_pooled;
static int (*mem_create)(dptr *, size_t, const void *, unsigned long long);
static int (*mem_release)(dptr);
static int (*reserve)(dptr *, size_t, size_t, dptr, unsigned long long);
static int (*map)(dptr, size_t, size_t, dptr, unsigned long long);
static int (*set_access)(dptr, size_t, const void *, size_t);

/* Of the device 0: pinned memory, and reading and writing. */
static const struct { int type, kinds, place, id; void *meta; unsigned char rest[8]; } prop = {1, 0, 1, 0, NULL, {0}};
static const struct { int place, id, flags; } access_to = {1, 0, 3};

static int start(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!driver) exit(2);
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    mem_alloc = (int (*)(dptr *, size_t))dlsym(driver, "cuMemAlloc_v2");
    mem_free = (int (*)(dptr))dlsym(driver, "cuMemFree_v2");
    alloc_async = (int (*)(dptr *, size_t, void *))dlsym(driver, "cuMemAllocAsync");
    free_async = (int (*)(dptr, void *))dlsym(driver, "cuMemFreeAsync");
    synchronize = (int (*)(void))dlsym(driver, "cuCtxSynchronize");
    mem_create = (int (*)(dptr *, size_t, const void *, unsigned long long))dlsym(driver, "cuMemCreate");
    mem_release = (int (*)(dptr))dlsym(driver, "cuMemRelease");
    reserve = (int (*)(dptr *, size_t, size_t, dptr, unsigned long long))dlsym(driver, "cuMemAddressReserve");
    map = (int (*)(dptr, size_t, size_t, dptr, unsigned long long))dlsym(driver, "cuMemMap");
    set_access = (int (*)(dptr, size_t, const void *, size_t))dlsym(driver, "cuMemSetAccess");
    int result = init(0);
    if (!result) result = retain(&context, 0);
    return result ? result : set(context);
}

static int give(dptr *at, size_t bytes) {
    return is_pooled ? alloc_async(at, bytes, NULL) : mem_alloc(at, bytes);
}

static int spill(void) {
    int first = 0;
    while (cached) {
        dptr at = cache[--cached].at;
        int result = is_pooled ? free_async(at, NULL) : mem_free(at);
        if (!first) first = result;
    }
    if (is_pooled && !first) first = synchronize();
    return first;
}

/* Counts the driver's refusals and the blocks that were freed for them. */
static int take(size_t bytes, int *refusals, int *freed) {
    struct block block = {0, bytes};
    for (int i = 0; i < cached; i++) {
        if (cache[i].bytes != bytes) continue;
        used[uses++] = cache[i];
        cache[i] = cache[--cached];
        return 0;
    }
    int result = give(&block.at, bytes);
    if (result == OUT_OF_MEMORY) {
        ++*refusals;
        *freed += cached;
        spill();
        result = give(&block.at, bytes);
        *refusals += result == OUT_OF_MEMORY;
    }
    if (!result) used[uses++] = block;
    return result;
}

/* Makes all of the handles, or none. */
static int pages(dptr *handles, int count, size_t bytes) {
    for (int i = 0; i < count; i++) {
        int result = mem_create(&handles[i], bytes, &prop, 0);
        if (!result) continue;
        while (i) mem_release(handles[--i]);
        return result;
    }
    return 0;
}

static int segment(int count, size_t bytes, int *refusals, int *freed) {
    dptr handles[MOST], at;
    int result = pages(handles, count, bytes);
    if (result == OUT_OF_MEMORY) {
        ++*refusals;
        *freed += cached;
        spill();
        result = pages(handles, count, bytes);
        *refusals += result == OUT_OF_MEMORY;
    }
    if (!result) result = reserve(&at, count * bytes, 0, 0, 0);
    for (int i = 0; i < count && !result; i++) result = map(at + i * bytes, bytes, 0, handles[i], 0);
    return result ? result : set_access(at, count * bytes, &access_to, 1);
}

int main(int argc, char **argv) {
    char word[32], line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && !dlopen(argv[1], RTLD_NOW)) return 2;
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long bytes = 0, each = 0;
        dptr other;
        if (sscanf(line, "%31s %llu %llu", word, &bytes, &each) < 1) continue;
        if (!strcmp(word, "init")) {
            printf("init %d\n", start());
        } else if (!strcmp(word, "pooled")) {
            is_pooled = 1;
            puts("pooled 0");
        } else if (!strcmp(word, "take") && uses < MOST) {
            int refusals = 0, freed = 0, result = take(bytes, &refusals, &freed);
            printf("take %d %d %d\n", result, refusals, freed);
        } else if (!strcmp(word, "drop") && uses && cached < MOST) {
            cache[cached++] = used[--uses];
            puts("drop 0");
        } else if (!strcmp(word, "spill")) {
            printf("spill %d\n", spill());
        } else if (!strcmp(word, "segment") && bytes <= MOST) {
            int refusals = 0, freed = 0, result = segment((int)bytes, each, &refusals, &freed);
            printf("segment %d %d %d\n", result, refusals, freed);
        } else if (!strcmp(word, "plain")) {
            printf("plain %d\n", mem_alloc(&other, bytes));
        } else if (!strcmp(word, "create")) {
            printf("create %d\n", mem_create(&other, bytes, &prop, 0));
        } else {
            printf("unknown %s\n", word);
        }
    }
    return 0;
}
