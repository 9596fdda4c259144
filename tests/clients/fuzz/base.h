/* The base of all families of the fuzzer's calls: the driver's functions, a thread's objects, and
 * choices that depend on the call's own number only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../common/driver.h"

enum { SLOTS = 4, MIB = 1 << 20, STATIC = 4096, OUT_OF_MEMORY = 2, NOT_READY = 600, EMPTY = -1 };

typedef unsigned long long dptr;
typedef uint64_t u64;
struct location { int type, id; };
struct prop { int type, handle_types; struct location location; void *win32; unsigned char flags[8]; };
struct access { struct location location; int flags; };
struct pool_props { int type, handle_types; struct location location; void *win32; size_t max; unsigned char rest[56]; };
struct node_params { struct pool_props pool; const void *access; size_t accesses, bytes; dptr at; };
struct array2d { size_t width, height; int format; unsigned channels; };
struct array3d { size_t width, height, depth; int format; unsigned channels, flags; };
struct copy2d {
    size_t sx, sy; int st; const void *sh; dptr sd; void *sa; size_t sp;
    size_t dx, dy; int dt; void *dh; dptr dd; void *da; size_t dp;
    size_t width, height;
};
struct copy3d {
    size_t sx, sy, sz, sl; int st; const void *sh; dptr sd; void *sa, *sr; size_t sp, sn;
    size_t dx, dy, dz, dl; int dt; void *dh; dptr dd; void *da, *dr; size_t dp, dn;
    size_t width, height, depth;
};
struct kernel_params { void *function; unsigned grid[3], block[3], shared; void **params, **extra; void *kernel, *context; };
struct host_params { void (*does)(void *); void *with; };
struct config { unsigned grid[3], block[3], shared; void *stream, *attributes; unsigned count; };
struct memset_params { dptr at; size_t pitch; unsigned value, element; size_t width, height; };

/* The objects of one thread. An empty slot holds null, and calls get that null as it is. */
struct thread {
    u64 seed, random;
    int number, forced;
    char extra[256];
    pthread_t runs;
    unsigned other_calls, values;
    dptr fixed, buffer[SLOTS], ordered[SLOTS], range[SLOTS];
    size_t bytes[SLOTS];
    int known[SLOTS], mapped[SLOTS];
    unsigned long long physical[SLOTS];
    void *imported[SLOTS], *library[SLOTS], *object[SLOTS], *registered;
    void *stream[SLOTS], *event[SLOTS], *pool[SLOTS], *array[SLOTS], *mipmap[SLOTS], *graph[SLOTS], *exec[SLOTS], *module[SLOTS],
        *function[SLOTS], *context[SLOTS], *host[SLOTS];
};

static void *nvml, *primary;
static int threads = 1;

static u64 mixed(u64 x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static unsigned below(struct thread *t, unsigned end) { return (t->random = mixed(t->random)) % end; }
static unsigned slot(struct thread *t) { return below(t, SLOTS); }
static int rarely(struct thread *t) { return below(t, 8) == 0; }
static void *garbage(void) { return (void *)0x1357900; }

/* A slot with something in it, if there is one; and one that is empty, if there is one. */
static unsigned first(struct thread *t, const u64 *of, int empty) {
    unsigned from = slot(t);
    for (unsigned i = 0; i < SLOTS; i++)
        if ((of[(from + i) % SLOTS] == 0) == empty) return (from + i) % SLOTS;
    return from;
}
#define USED(t, of) first(t, (const u64 *)(t)->of, 0)
#define UNUSED(t, of) first(t, (const u64 *)(t)->of, 1)

/* A handle of these, sometimes none of them. */
static void *some(struct thread *t, void **of) {
    return rarely(t) ? (below(t, 2) ? garbage() : NULL) : of[first(t, (const u64 *)of, 0)];
}

/* Streams: the thread's own; alone also the default one. */
static void *stream_of(struct thread *t, unsigned of) {
    if (t->stream[of] || threads == 1) return t->stream[of];
    return (void *)2; /* CU_STREAM_PER_THREAD */
}
static void *some_stream(struct thread *t) {
    if (rarely(t) && below(t, 2)) return garbage();
    return stream_of(t, slot(t));
}
static int captures(void *stream) {
    int status = 0;
    return CALL("cuStreamIsCapturing", (void *, int *))(stream, &status) || status;
}

static size_t some_bytes(struct thread *t) {
    static const size_t sizes[] = {1, 512, 4096, 100000, MIB, 3 * MIB, 8 * MIB, 20 * MIB, 48 * MIB};
    return rarely(t) ? (below(t, 2) ? 0 : (size_t)1 << 61) : sizes[below(t, sizeof sizes / sizeof *sizes)];
}

/* In stream order: a driver without memory may wait for work first, or be forbidden to by a
 * capture. */
static size_t some_ordered_bytes(struct thread *t) {
    size_t bytes = some_bytes(t);
    return bytes > 48 * MIB ? 0 : bytes;
}

static u64 hash(const unsigned char *bytes, size_t count) {
    u64 h = 14695981039346656037ull;
    while (count--) h = (h ^ *bytes++) * 1099511628211ull;
    return h;
}

/* An allocation that is as if refused: taken back by `back`. */
#define FORCED(t, result, back) \
    if ((t)->forced && !(result)) { back; return OUT_OF_MEMORY; }

static void must(int result, const char *what) {
    if (!result) return;
    fprintf(stderr, "%s: %d\n", what, result);
    exit(2);
}

/* Waits for a stream unless it captures. */
static int settled(void *stream) { return captures(stream) ? NOT_READY : CALL("cuStreamSynchronize", (void *))(stream); }
