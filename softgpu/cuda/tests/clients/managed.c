/* Managed memory beside other processes. Waits for a line on standard input after each step. */
#include "cu.h"

static void step(const char *what) {
    char line[16];
    puts(what);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(3);
}

enum { WORDS = 64 };
static const size_t size = 256 * MIB;

static int right(dptr at) {
    const unsigned *words = (const unsigned *)(uintptr_t)at;
    for (size_t n = 0; n < size / 4; n += WORDS)
        if (words[n] != (unsigned)(n * 7 + 1))
            return 0;
    return 1;
}

/* Has 256 MiB on the device, and looks whether they are right whenever it goes on. */
static void holder(void) {
    start();
    dptr at;
    DO(cuMemAllocManaged(&at, size, 1));
    unsigned *words = (unsigned *)(uintptr_t)at;
    for (size_t n = 0; n < size / 4; n += WORDS)
        words[n] = (unsigned)(n * 7 + 1);
    DO(cuMemPrefetchAsync(at, size, 0, NULL));
    DO(cuCtxSynchronize());
    step("there");
    TRUE(right(at));
    DO(cuMemPrefetchAsync(at, size, 0, NULL));
    DO(cuCtxSynchronize());
    step("back");
    TRUE(right(at));
    DO(cuMemFree_v2(at));
    step("freed");
}

/* Takes 320 MiB that no other process's managed memory keeps it from. */
static void intruder(void) {
    start();
    dptr at;
    DO(cuMemAlloc_v2(&at, 320 * MIB));
    step("taken");
    DO(cuMemFree_v2(at));
    step("freed");
}

/* The same in managed memory. */
static void rival(void) {
    start();
    dptr at;
    DO(cuMemAllocManaged(&at, 320 * MIB, 1));
    DO(cuMemsetD8_v2(at, 5, 320 * MIB));
    DO(cuCtxSynchronize());
    step("taken");
    TRUE(((unsigned char *)(uintptr_t)at)[320 * MIB - 1] == 5);
    DO(cuMemFree_v2(at));
    step("freed");
}

/* With managed=fixed: an allocation takes its memory at once, and neither moves nor leaves. */
static void fixed(void) {
    start();
    dptr at, other;
    size_t before = settled();
    DO(cuMemAllocManaged(&at, 160 * MIB, 1));
    TRUE(settled() == before - 160 * MIB);
    IS(INVALID_DEVICE, cuMemPrefetchAsync(at, 160 * MIB, 0, NULL));
    IS(INVALID_DEVICE, cuMemPrefetchAsync(at, 160 * MIB, -1, NULL));
    IS(INVALID_DEVICE, cuMemAdvise(at, 160 * MIB, 3, 0));
    IS(INVALID_DEVICE, cuMemAdvise(at, 160 * MIB, 5, 0));
    DO(cuMemAdvise(at, 160 * MIB, 3, -1));
    IS(OUT_OF_MEMORY, cuMemAllocManaged(&other, 160 * MIB, 1));
    IS(OUT_OF_MEMORY, cuMemAlloc_v2(&other, 160 * MIB));
    DO(cuMemsetD8_v2(at, 3, 160 * MIB));
    DO(cuCtxSynchronize());
    TRUE(((unsigned char *)(uintptr_t)at)[160 * MIB - 1] == 3);
    DO(cuMemFree_v2(at));
    TRUE(settled() == before);
}

/* A range that is mostly read has a copy on the host and one on the device, until it is written. */
static void mostly_read(void) {
    start();
    dptr at;
    size_t before = settled();
    DO(cuMemAllocManaged(&at, 8 * MIB, 1));
    memset((void *)(uintptr_t)at, 9, 8 * MIB);
    DO(cuMemPrefetchAsync(at, 8 * MIB, -1, NULL));
    DO(cuMemAdvise(at, 8 * MIB, 1, 0));
    DO(cuMemPrefetchAsync(at, 8 * MIB, 0, NULL));
    DO(cuCtxSynchronize());
    TRUE(settled() == before - 8 * MIB);
    DO(cuMemPrefetchAsync(at, 8 * MIB, -1, NULL));
    DO(cuCtxSynchronize());
    TRUE(settled() == before - 8 * MIB); /* a copy on the host does not take the one on the device */
    DO(cuMemAdvise(at, 8 * MIB, 2, 0));
    DO(cuMemPrefetchAsync(at, 8 * MIB, -1, NULL));
    DO(cuCtxSynchronize());
    TRUE(settled() == before);
    DO(cuMemFree_v2(at));
}

/* Prefetches to a place, and waits. */
static void moved(dptr at, size_t bytes, int where) {
    DO(cuMemPrefetchAsync(at, bytes, where, NULL));
    DO(cuCtxSynchronize());
}

/* What a prefetch sends home keeps its memory on the device, until other memory or its end takes it. */
static void kept(void) {
    start();
    dptr at, plain, rest;
    size_t before = settled(), piece = 64 * MIB;
    DO(cuMemAllocManaged(&at, piece, 1));
    memset((void *)(uintptr_t)at, 9, piece);
    moved(at, piece, 0);
    for (int i = 0; i < 3; i++) {
        moved(at, piece, -1);
        TRUE(settled() == before - piece);
        moved(at, piece, 0); /* to the memory that it has kept */
        TRUE(settled() == before - piece);
    }
    moved(at, piece, -1);
    /* A part of it goes, and no more than has to. */
    DO(cuMemAlloc_v2(&plain, before - piece / 2));
    TRUE(settled() == 0);
    DO(cuMemFree_v2(plain));
    TRUE(settled() == before - piece / 2);
    moved(at, piece, 0);
    TRUE(settled() == before - piece);
    TRUE(((unsigned char *)(uintptr_t)at)[piece - 1] == 9);
    moved(at, piece, -1);
    DO(cuMemAlloc_v2(&plain, before));
    IS(OUT_OF_MEMORY, cuMemAlloc_v2(&rest, 2 * MIB));
    DO(cuMemFree_v2(plain));
    TRUE(settled() == before);
    moved(at, piece, 0);
    moved(at, piece, -1);
    TRUE(((unsigned char *)(uintptr_t)at)[0] == 9);
    DO(cuMemFree_v2(at));
    TRUE(settled() == before);
}

TESTS(T(holder), T(intruder), T(rival), T(fixed), T(mostly_read), T(kept))
