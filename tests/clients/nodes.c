/* A CUDA driver program with graphs of copies and memsets, which it makes once and launches later. It knows nothing of gpushare
 * and answers one command a line. I is a slot, 0 to 4.
 *
 *   init              -> init RESULT        device 0, its primary context, a stream, pinned memory
 *   alloc I BYTES     -> alloc RESULT       a multiple of 4096
 *   fill I VALUE      -> fill RESULT        a memset to 32-bit VALUEs, and waits
 *   check I VALUE     -> check WRONG        values that are not VALUE, or 1000000000 and the driver's error
 *   free I            -> free RESULT
 *   lines             -> lines RESULT       captures graph 0: a copy from slot 0 to slot 1, a memset of slot 2 to fives, and a copy
 *                                           of the beginning of slot 0 to pinned memory
 *   boxes             -> boxes RESULT       captures graph 1: of slot 0 the left half of each row of 1024 bytes to slot 3, and of
 *                                           each slice of four such rows the first two to slot 4
 *   pinned VALUE      -> pinned WRONG       values there that are not VALUE
 *   boxed I VALUE     -> boxed WRONG        values of slot 3 or 4 that are not VALUE in the boxes or not 0 beside them
 *   launch N          -> launch RESULT      graph N, and waits */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/driver.h"

typedef unsigned long long dptr;

#define CU(name, ...) (((int (*)())symbol(#name))(__VA_ARGS__))

enum { SLOTS = 5, ROW = 1024, HIGH = 4, SLICE = HIGH * ROW, GLOBAL = 0 };

/* CUDA_MEMCPY2D, and the sides of CUDA_MEMCPY3D. */
struct flat { size_t sx, sy; int st; const void *sh; dptr sd; void *sa; size_t sp, dx, dy; int dt; void *dh; dptr dd; void *da; size_t dp, width, height; };
struct side { size_t x, y, z, level; int kind; const void *host; dptr at; void *array, *reserved; size_t pitch, height; };
struct box { struct side from, to; size_t width, height, depth; };

static void *stream, *graphs[2];
static dptr slots[SLOTS];
static size_t sizes[SLOTS];
static uint32_t *pinned;

static int init(void) {
    void *context;
    TRY(CU(cuInit, 0));
    TRY(CU(cuDevicePrimaryCtxRetain, &context, 0));
    TRY(CU(cuCtxSetCurrent, context));
    TRY(CU(cuStreamCreate, &stream, 1));
    return CU(cuMemHostAlloc, (void **)&pinned, (size_t)SLICE, 0);
}

static int fill(int i, uint32_t value) {
    TRY(CU(cuMemsetD32Async, slots[i], value, sizes[i] / 4, stream));
    return CU(cuStreamSynchronize, stream);
}

static int ended(int n) {
    void *graph;
    TRY(CU(cuStreamEndCapture, stream, &graph));
    TRY(CU(cuGraphInstantiateWithFlags, &graphs[n], graph, 0ULL));
    return CU(cuGraphDestroy, graph);
}

static int lines(void) {
    TRY(CU(cuStreamBeginCapture_v2, stream, GLOBAL));
    TRY(CU(cuMemcpyDtoDAsync_v2, slots[1], slots[0], sizes[0], stream));
    TRY(CU(cuMemsetD32Async, slots[2], 5u, sizes[2] / 4, stream));
    TRY(CU(cuMemcpyDtoHAsync_v2, pinned, slots[0], (size_t)SLICE, stream));
    return ended(0);
}

static int boxes(void) {
    struct flat flat = {.st = 2, .sd = slots[0], .sp = ROW, .dt = 2, .dd = slots[3], .dp = ROW, .width = ROW / 2, .height = sizes[0] / ROW};
    struct box box = {.from = {.kind = 2, .at = slots[0], .pitch = ROW, .height = HIGH}, .to = {.kind = 2, .at = slots[4], .pitch = ROW, .height = HIGH},
                      .width = ROW, .height = HIGH / 2, .depth = sizes[0] / SLICE};
    TRY(CU(cuStreamBeginCapture_v2, stream, GLOBAL));
    TRY(CU(cuMemcpy2DAsync_v2, &flat, stream));
    TRY(CU(cuMemcpy3DAsync_v2, &box, stream));
    return ended(1);
}

static int launch(int n) {
    TRY(CU(cuGraphLaunch, graphs[n], stream));
    return CU(cuStreamSynchronize, stream);
}

/* How many values of a slot are wrong that should be `value`, or where `boxed` says no, 0. */
static long wrong(int i, uint32_t value, int (*boxed)(size_t)) {
    long wrong = 0;
    uint32_t *seen = malloc(sizes[i]);
    int error = CU(cuMemcpyDtoH_v2, seen, slots[i], sizes[i]);
    for (size_t n = 0; n < sizes[i] / 4; n++) wrong += seen[n] != (boxed(4 * n) ? value : 0);
    free(seen);
    return error ? 1000000000L + error : wrong;
}

static int all(size_t offset) { return (void)offset, 1; }
static int left(size_t offset) { return offset % ROW < ROW / 2; }
static int upper(size_t offset) { return offset % SLICE < SLICE / 2; }

static long host(uint32_t value) {
    long wrong = 0;
    for (int n = 0; n < SLICE / 4; n++) wrong += pinned[n] != value;
    return wrong;
}

int main(void) {
    char line[256], name[32];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 3;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long a = 0, b = 0;
        if (sscanf(line, "%31s %llu %llu", name, &a, &b) < 1) continue;
        long answer;
        if (!strcmp(name, "init")) answer = init();
        else if (!strcmp(name, "alloc")) answer = CU(cuMemAlloc_v2, &slots[a % SLOTS], sizes[a % SLOTS] = b);
        else if (!strcmp(name, "fill")) answer = fill(a % SLOTS, b);
        else if (!strcmp(name, "check")) answer = wrong(a % SLOTS, b, all);
        else if (!strcmp(name, "free")) answer = CU(cuMemFree_v2, slots[a % SLOTS]);
        else if (!strcmp(name, "lines")) answer = lines();
        else if (!strcmp(name, "boxes")) answer = boxes();
        else if (!strcmp(name, "pinned")) answer = host(a);
        else if (!strcmp(name, "boxed")) answer = wrong(a % SLOTS, b, a == 3 ? left : upper);
        else if (!strcmp(name, "launch")) answer = launch(a % 2);
        else return 4;
        printf("%s %ld\n", name, answer);
    }
    return 0;
}
