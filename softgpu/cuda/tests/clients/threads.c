/* Threads that allocate, write, check and free all kinds of memory at random. Another thread's byte in a thread's memory is an error. */
#include "cu.h"
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 6, ROUNDS = 150, LIVE = 24 };
static handle context;
static int reports;

struct block { int kind; dptr at, physical; size_t bytes; unsigned mark; };

static unsigned draw(unsigned *seed) { return *seed = *seed * 1664525u + 1013904223u, *seed >> 8; }

static result take(struct block *block, handle stream, unsigned *seed) {
    struct access access = { { 1, 0 }, 3 };
    struct alloc_prop prop = { .type = 1, .location = { 1, 0 } };
    result got;
    block->kind = (int)(draw(seed) % 4);
    block->bytes = draw(seed) % 5 ? 4 + draw(seed) % 20000 : 4 + draw(seed) % (3 << 20);
    block->bytes &= ~(size_t)3;
    switch (block->kind) {
    case 0: return cuMemAlloc_v2(&block->at, block->bytes);
    case 1: return cuMemAllocAsync(&block->at, block->bytes, stream);
    case 2: return cuMemAllocManaged(&block->at, block->bytes, 1);
    }
    block->bytes = 2 * MIB;
    if ((got = cuMemCreate(&block->physical, block->bytes, &prop, 0)) != OK)
        return got;
    DO(cuMemAddressReserve(&block->at, block->bytes, 0, 0, 0));
    DO(cuMemMap(block->at, block->bytes, 0, block->physical, 0));
    DO(cuMemRelease(block->physical));
    DO(cuMemSetAccess(block->at, block->bytes, &access, 1));
    return OK;
}

static void put_back(struct block *block, handle stream) {
    switch (block->kind) {
    case 0: case 2: DO(cuMemFree_v2(block->at)); break;
    case 1: DO(cuMemFreeAsync(block->at, stream)); break;
    default:
        DO(cuStreamSynchronize(stream));
        DO(cuMemUnmap(block->at, block->bytes));
        DO(cuMemAddressFree(block->at, block->bytes));
    }
}

static void check(struct block *block, handle stream) {
    static __thread unsigned out[3 << 18];
    DO(cuMemcpyDtoHAsync_v2(out, block->at, block->bytes, stream));
    for (size_t n = 0; n < block->bytes / 4; n++)
        if (out[n] != block->mark) {
            fprintf(stderr, "kind %d, %zu bytes: %x instead of %x at %zu\n", block->kind, block->bytes, out[n], block->mark, n * 4);
            exit(1);
        }
}

static void *work(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number * 77 + 1, mark = (unsigned)(uintptr_t)number << 24;
    struct block live[LIVE];
    int count = 0;
    handle stream;
    DO(cuCtxSetCurrent(context));
    DO(cuStreamCreate(&stream, 1));
    for (int round = 0; round < ROUNDS; round++) {
        if (reports)
            TRUE(write(1, ".", 1) == 1);
        if (count < LIVE && draw(&seed) % 3) {
            result got = take(&live[count], stream, &seed);
            TRUE(got == OK || got == OUT_OF_MEMORY);
            if (got != OK)
                continue;
            live[count].mark = ++mark;
            DO(cuMemsetD32Async(live[count].at, mark, live[count].bytes / 4, stream));
            count++;
        } else if (count) {
            unsigned which = draw(&seed) % (unsigned)count;
            check(&live[which], stream);
            put_back(&live[which], stream);
            live[which] = live[--count];
        }
    }
    while (count--) {
        check(&live[count], stream);
        put_back(&live[count], stream);
    }
    DO(cuStreamDestroy_v2(stream));
    return NULL;
}

static void all(void) {
    pthread_t thread[THREADS];
    handle pool;
    context = start();
    size_t before = settled();
    for (uintptr_t n = 0; n < THREADS; n++)
        TRUE(!pthread_create(&thread[n], NULL, work, (void *)(n + 1)));
    for (int n = 0; n < THREADS; n++)
        pthread_join(thread[n], NULL);
    DO(cuCtxSynchronize());
    DO(cuDeviceGetDefaultMemPool(&pool, 0));
    DO(cuMemPoolTrimTo(pool, 0));
    TRUE(settled() + 2 * MIB >= before);
}

/* The same, with a byte on standard output for every step. */
static void watched(void) {
    reports = 1;
    all();
}

enum { REGISTRATIONS = 3000 };
static pthread_barrier_t both;
static void *page;

static void *registers(void *unused) {
    dptr seen;
    (void)unused;
    DO(cuCtxSetCurrent(context));
    for (int round = 0; round < REGISTRATIONS; round++) {
        pthread_barrier_wait(&both);
        result got = cuMemHostRegister_v2(page, 4096, 1 | 2);
        TRUE(got == OK || got == ALREADY_REGISTERED);
        DO(cuMemHostGetDevicePointer_v2(&seen, page, 0));
        TRUE(seen == (dptr)(uintptr_t)page);
        pthread_barrier_wait(&both);
        if (got == OK) {
            DO(cuMemHostUnregister(page));
            IS(INVALID_VALUE, cuMemHostGetDevicePointer_v2(&seen, page, 0));
        }
    }
    return NULL;
}

/* A page that another thread has registered can be used at once. */
static void same_page(void) {
    pthread_t other;
    context = start();
    page = aligned_alloc(4096, 4096);
    pthread_barrier_init(&both, NULL, 2);
    TRUE(pthread_create(&other, NULL, registers, NULL) == 0);
    registers(NULL);
    pthread_join(other, NULL);
}

TESTS(T(all), T(watched), T(same_page))
