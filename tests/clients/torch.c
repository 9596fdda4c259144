/* A CUDA driver program that allocates as PyTorch's CUDACachingAllocator is documented to, in one of three configurations.
 * It answers one command a line on its standard input and knows nothing of gpushare. I is a tensor, 0 to 1023.
 *
 *   init HOW          -> init RESULT        0 segments of cuMemAlloc, 1 expandable segments, 2 cudaMallocAsync
 *   take I BYTES      -> take RESULT        a tensor
 *   give I            -> give RESULT        its memory goes back to the cache
 *   empty             -> empty RESULT       torch.cuda.empty_cache
 *   fill I SEED       -> fill RESULT
 *   check I SEED      -> check WRONG        bytes that are wrong, or 1000000000 and the driver's error
 *   plain BYTES       -> plain RESULT       cuMemAlloc by a library beside the allocator
 *   held              -> held BYTES         what the allocator holds of the driver
 *
 * Sizes are rounded to 512. Up to 1 MiB they are parts of segments of 2 MiB, below 10 MiB of segments of 20 MiB, and else have
 * segments of their own, rounded to 2 MiB. The smallest free block that fits is taken, and split where at least 512 bytes (in
 * small segments and expandable ones) or more than 1 MiB are left. Freed neighbours merge. An expandable segment grows by
 * pages of 2 MiB or 20 MiB, whose handles could be exported, and are kept. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/driver.h"

typedef unsigned long long dptr;
typedef unsigned long long handle;
#define MIB (1ull << 20)
#define MOST 8192
#define TENSORS 1024
#define PAGES 2048
#define ROOM (16ull << 30)

/* A part of a segment, and its neighbours in that. */
struct block { dptr at; size_t size; int used, small, before, behind, live; };
static struct block blocks[MOST];
static int count;

/* An expandable segment. */
static struct { dptr base; size_t size; int last; handle pages[PAGES]; } grown[2];

static struct { dptr at; size_t size; int block; } tensors[TENSORS];
static void *context, *stream;
static size_t held;
static int how;

struct prop { int type, kinds; int place, id; void *meta; unsigned char compression, rdma; unsigned short usage; unsigned char rest[4]; };
struct access { int place, id; int flags; };

static int begin(void) {
    int device;
    TRY(CALL("cuInit", (unsigned))(0));
    TRY(CALL("cuDeviceGet", (int *, int))(&device, 0));
    TRY(CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, device));
    TRY(CALL("cuCtxSetCurrent", (void *))(context));
    TRY(CALL("cuStreamCreate", (void **, unsigned))(&stream, 1));
    if (how == 1) for (int small = 0; small < 2; small++) {
        int (*reserve)(dptr *, size_t, size_t, dptr, unsigned long long) = (void *)symbol("cuMemAddressReserve");
        TRY(reserve(&grown[small].base, ROOM, 0, 0, 0));
        grown[small].last = -1;
    }
    if (how == 2) {
        void *pool;
        uint64_t all = UINT64_MAX;
        int on = 1;
        TRY(CALL("cuDeviceGetDefaultMemPool", (void **, int))(&pool, device));
        int (*set)(void *, int, void *) = (void *)symbol("cuMemPoolSetAttribute");
        TRY(set(pool, 4, &all));
        for (int rule = 1; rule <= 3; rule++) TRY(set(pool, rule, &on));
    }
    return 0;
}

static size_t up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

static int add(dptr at, size_t size, int small, int before, int behind) {
    int n = 0;
    while (n < count && blocks[n].live) n++;
    if (n == MOST) exit(5);
    if (n == count) count++;
    blocks[n] = (struct block){at, size, 0, small, before, behind, 1};
    if (before >= 0) blocks[before].behind = n;
    if (behind >= 0) blocks[behind].before = n;
    return n;
}

static int best(size_t size, int small) {
    int found = -1;
    for (int n = 0; n < count; n++)
        if (blocks[n].live && !blocks[n].used && blocks[n].small == small && blocks[n].size >= size
            && (found < 0 || blocks[n].size < blocks[found].size)) found = n;
    return found;
}

/* Makes the expandable segment's free end at least so large. */
static int grow(size_t size, int small, int *made) {
    struct prop prop = {1, 1, 1, 0, NULL, 0, 0, 0, {0}};
    struct access access = {1, 0, 3};
    size_t page = small ? 2 * MIB : 20 * MIB;
    int last = grown[small].last;
    size_t there = last >= 0 && !blocks[last].used ? blocks[last].size : 0, more = up(size - there, page);
    dptr end = grown[small].base + grown[small].size;
    for (size_t done = 0; done < more; done += page) {
        handle *own = &grown[small].pages[(grown[small].size + done) / page];
        TRY(CALL("cuMemCreate", (handle *, size_t, void *, unsigned long long))(own, page, &prop, 0));
        TRY(CALL("cuMemMap", (dptr, size_t, size_t, handle, unsigned long long))(end + done, page, 0, *own, 0));
    }
    TRY(CALL("cuMemSetAccess", (dptr, size_t, void *, size_t))(end, more, &access, 1));
    grown[small].size += more;
    held += more;
    if (there) blocks[last].size += more;
    else grown[small].last = last = add(end, more, small, last, -1);
    *made = last;
    return 0;
}

static int segment(size_t size, int small, int *made) {
    if (how == 1) return grow(size, small, made);
    size_t bytes = small ? 2 * MIB : size < 10 * MIB ? 20 * MIB : up(size, 2 * MIB);
    dptr at;
    TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, bytes));
    held += bytes;
    *made = add(at, bytes, small, -1, -1);
    return 0;
}

/* Gives back what no tensor is in: segments, and the free pages at the end of expandable ones. */
static int empty(void) {
    TRY(CALL("cuStreamSynchronize", (void *))(stream));
    for (int n = 0; n < count && how == 0; n++) {
        if (!blocks[n].live || blocks[n].used || blocks[n].before >= 0 || blocks[n].behind >= 0) continue;
        TRY(CALL("cuMemFree_v2", (dptr))(blocks[n].at));
        held -= blocks[n].size;
        blocks[n].live = 0;
    }
    for (int small = 0; small < 2 && how == 1; small++) {
        size_t page = small ? 2 * MIB : 20 * MIB;
        struct block *end = grown[small].last >= 0 ? &blocks[grown[small].last] : NULL;
        while (end && !end->used && end->size >= page) {
            dptr at = grown[small].base + (grown[small].size -= page);
            TRY(CALL("cuMemUnmap", (dptr, size_t))(at, page));
            TRY(CALL("cuMemRelease", (handle))(grown[small].pages[grown[small].size / page]));
            held -= page, end->size -= page;
            if (end->size) continue;
            end->live = 0;
            grown[small].last = end->before;
            if (end->before >= 0) blocks[end->before].behind = -1;
            end = NULL;
        }
    }
    return 0;
}

static int take(int i, size_t bytes) {
    tensors[i].size = bytes;
    if (how == 2) return CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&tensors[i].at, bytes, stream);
    size_t size = up(bytes, 512);
    int small = size <= MIB, n = best(size, small), result;
    if (n < 0 && (result = segment(size, small, &n))) {
        if (result != 2) return result;
        TRY(empty());
        TRY(segment(size, small, &n));
    }
    size_t left = blocks[n].size - size;
    if (small || how == 1 ? left >= 512 : left > MIB) {
        int rest = add(blocks[n].at + size, left, small, n, blocks[n].behind);
        blocks[n].size = size;
        if (how == 1 && grown[small].last == n) grown[small].last = rest;
    }
    blocks[n].used = 1;
    tensors[i].at = blocks[n].at;
    tensors[i].block = n;
    return 0;
}

/* The second of two neighbours becomes a part of the first, if both are free. */
static int merged(int first, int second) {
    if (first < 0 || second < 0 || blocks[first].used || blocks[second].used) return 0;
    blocks[first].size += blocks[second].size;
    blocks[first].behind = blocks[second].behind;
    if (blocks[second].behind >= 0) blocks[blocks[second].behind].before = first;
    blocks[second].live = 0;
    if (how == 1 && grown[blocks[first].small].last == second) grown[blocks[first].small].last = first;
    return 1;
}

static int give(int i) {
    if (how == 2) return CALL("cuMemFreeAsync", (dptr, void *))(tensors[i].at, stream);
    int n = tensors[i].block;
    blocks[n].used = 0;
    merged(n, blocks[n].behind);
    merged(blocks[n].before, n);
    return 0;
}

static void pattern(unsigned char *bytes, size_t size, uint64_t seed) {
    for (size_t i = 0; i + 4 <= size; i += 4) {
        uint32_t word = (seed + 1) * 0x9E3779B9u + i;
        memcpy(bytes + i, &word, 4);
    }
}

static int fill(int i, uint64_t seed) {
    unsigned char *bytes = calloc(1, tensors[i].size);
    pattern(bytes, tensors[i].size, seed);
    int result = CALL("cuMemcpyHtoDAsync_v2", (dptr, const void *, size_t, void *))(tensors[i].at, bytes, tensors[i].size, stream);
    if (!result) result = CALL("cuStreamSynchronize", (void *))(stream);
    free(bytes);
    return result;
}

static long check(int i, uint64_t seed) {
    unsigned char *bytes = calloc(1, tensors[i].size), *right = calloc(1, tensors[i].size);
    long wrong = 0;
    pattern(right, tensors[i].size, seed);
    int error = CALL("cuMemcpyDtoH_v2", (void *, dptr, size_t))(bytes, tensors[i].at, tensors[i].size);
    for (size_t n = 0; n < tensors[i].size; n++) wrong += bytes[n] != right[n];
    free(bytes);
    free(right);
    return error ? 1000000000L + error : wrong;
}

int main(void) {
    char line[256], name[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 3;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long a = 0, b = 0;
        int result = -1;
        if (sscanf(line, "%31s %llu %llu", name, &a, &b) < 1) continue;
        int i = a % TENSORS;
        if (!strcmp(name, "init")) how = a, result = begin();
        else if (!strcmp(name, "take")) result = take(i, b);
        else if (!strcmp(name, "give")) result = give(i);
        else if (!strcmp(name, "empty")) result = empty();
        else if (!strcmp(name, "fill")) result = fill(i, b);
        else if (!strcmp(name, "plain")) {
            dptr alone;
            result = CALL("cuMemAlloc_v2", (dptr *, size_t))(&alone, a);
        } else if (!strcmp(name, "check")) printf("check %ld\n", check(i, b));
        else if (!strcmp(name, "held")) printf("held %zu\n", held);
        else return 4;
        if (result >= 0) printf("%s %d\n", name, result);
    }
    return 0;
}
