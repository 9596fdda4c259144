/* A program that races others of its tenant for memory, driven line by line.
 *
 *   init                       -> init RESULT
 *   fit BYTES ROUNDS SEED      -> fit REFUSALS        random allocations, never more than BYTES of them at once
 *   greedy BYTES ROUNDS SEED   -> greedy REFUSALS     random allocations up to BYTES each; half are freed at each refusal
 *   huge BYTES ROUNDS          -> huge GRANTED        asks for BYTES and frees what is granted
 *   drop                       -> drop RESULT         frees everything
 *
 * RESULT is the CUresult as a number. Anything but out-of-memory where memory is asked for ends it
 * with status 1. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long dptr;

enum { MOST = 65536, OUT_OF_MEMORY = 2 };

static int (*mem_alloc)(dptr *, size_t);
static int (*mem_free)(dptr);
static struct { dptr at; size_t size; } live[MOST];
static size_t count, held;
static uint64_t seed;

static uint64_t next(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static int allocate(size_t size) {
    if (count == MOST) exit(1);
    int result = mem_alloc(&live[count].at, size);
    if (result && result != OUT_OF_MEMORY) exit(1);
    if (!result) {
        live[count++].size = size;
        held += size;
    }
    return result;
}

static void release(size_t index) {
    if (mem_free(live[index].at)) exit(1);
    held -= live[index].size;
    live[index] = live[--count];
}

static size_t fit(size_t bytes, size_t rounds) {
    size_t refusals = 0;
    while (rounds--) {
        size_t size = (next() % (bytes / 4) / 512 + 1) * 512;
        while (count && held + size > bytes) release(next() % count);
        refusals += allocate(size) != 0;
    }
    return refusals;
}

static size_t greedy(size_t bytes, size_t rounds) {
    size_t refusals = 0;
    while (rounds--) {
        if (!allocate(next() % bytes + 1)) continue;
        refusals++;
        for (size_t half = count / 2; half; half--) release(next() % count);
    }
    return refusals;
}

static size_t huge(size_t bytes, size_t rounds) {
    size_t granted = 0;
    while (rounds--) {
        if (allocate(bytes)) continue;
        granted++;
        release(count - 1);
    }
    return granted;
}

static int start(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!driver) exit(1);
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*current)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    mem_alloc = (int (*)(dptr *, size_t))dlsym(driver, "cuMemAlloc_v2");
    mem_free = (int (*)(dptr))dlsym(driver, "cuMemFree_v2");
    int result = init(0);
    if (!result) result = retain(&context, 0);
    return result ? result : current(context);
}

int main(void) {
    char line[128], word[16];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long bytes = 0, rounds = 0, number = 1;
        if (sscanf(line, "%15s %llu %llu %llu", word, &bytes, &rounds, &number) < 1) continue;
        seed = number * 0x9e3779b97f4a7c15ull | 1;
        if (!strcmp(word, "init")) printf("init %d\n", start());
        else if (!strcmp(word, "fit")) printf("fit %zu\n", fit(bytes, rounds));
        else if (!strcmp(word, "greedy")) printf("greedy %zu\n", greedy(bytes, rounds));
        else if (!strcmp(word, "huge")) printf("huge %zu\n", huge(bytes, rounds));
        else if (!strcmp(word, "drop")) {
            while (count) release(0);
            printf("drop 0\n");
        }
    }
    return 0;
}
