/* Driver calls of every family in a sequence that a seed gives, right and wrong ones, and what they
 * answer. It knows nothing of gpushare.
 *
 *   usage: fuzz SEED COUNT THREADS [only=I,J-K,…] [refused=I,J-K,…]
 *
 * Prints "THREAD.INDEX NAME RESULT …" a call: the CUresult as a number and the call's results, in a
 * form that does not depend on addresses, time or other processes. Contents are read back and
 * hashed. A call depends on the seed and its index only, so that `only` can leave calls out. For
 * calls in `refused` no memory is had: one that allocates is made, taken back, and told as 2 (out
 * of memory); if it fails by itself its own answer is told. A call of a graph is not made then.
 *
 * With THREADS above 1 each thread has its own objects, and makes only calls whose results do not
 * depend on other threads. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 4, MOST = 4096, MIB = 1 << 20, STATIC = 4096, OUT_OF_MEMORY = 2, NOT_READY = 600, EMPTY = -1 };

typedef unsigned long long dptr;
typedef uint64_t u64;
struct location { int type, id; };
struct prop { int type, handle_types; struct location location; void *win32; unsigned char flags[8]; };
struct access { struct location location; int flags; };
struct pool_props { int type, handle_types; struct location location; void *win32; size_t max; unsigned char rest[56]; };
struct node_params { struct pool_props pool; const void *access; size_t accesses, bytes; dptr at; };
struct array2d { size_t width, height; int format; unsigned channels; };
struct array3d { size_t width, height, depth; int format; unsigned channels, flags; };
struct memset_params { dptr at; size_t pitch; unsigned value, element; size_t width, height; };

/* What one thread has. A slot that is empty holds null, and is used as it is. */
struct thread {
    u64 seed, random;
    int number, count, index, forced;
    char extra[256];
    dptr fixed, buffer[SLOTS], ordered[SLOTS], range[SLOTS];
    size_t bytes[SLOTS];
    int known[SLOTS], mapped[SLOTS];
    unsigned long long physical[SLOTS];
    void *stream[SLOTS], *event[SLOTS], *pool[SLOTS], *array[SLOTS], *mipmap[SLOTS], *graph[SLOTS], *exec[SLOTS], *module[SLOTS],
        *function[SLOTS], *context[SLOTS], *host[SLOTS];
};

static void *driver, *nvml, *primary;
static int threads = 1;
static unsigned char only[MOST], refused[MOST];

static void *symbol(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return found;
}
#define CALL(name, ...) ((int (*)(__VA_ARGS__))symbol(name))

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

/* A handle of these, sometimes none of them. */
static void *some(struct thread *t, void **of) { return rarely(t) ? (below(t, 2) ? garbage() : NULL) : of[slot(t)]; }

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
    return CALL("cuStreamIsCapturing", void *, int *)(stream, &status) || status;
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

static int mem_free(dptr at) { return CALL("cuMemFree_v2", dptr)(at); }

static int keep_buffer(struct thread *t, int result, dptr at, size_t bytes) {
    unsigned to = slot(t);
    FORCED(t, result, mem_free(at));
    if (result) return result;
    if (t->buffer[to]) mem_free(t->buffer[to]);
    t->buffer[to] = at, t->bytes[to] = bytes, t->known[to] = 0;
    return 0;
}

static int alloc(struct thread *t) {
    dptr at = 0;
    size_t bytes = some_bytes(t);
    int result = CALL("cuMemAlloc_v2", dptr *, size_t)(rarely(t) && below(t, 2) ? NULL : &at, bytes);
    return keep_buffer(t, result, at, bytes);
}
static int alloc_pitch(struct thread *t) {
    static const unsigned elements[] = {4, 8, 16, 4, 3, 0};
    dptr at = 0;
    size_t pitch = 0, width = 1 + below(t, 5000), height = 1 + below(t, 4000);
    int result = CALL("cuMemAllocPitch_v2", dptr *, size_t *, size_t, size_t, unsigned)(&at, &pitch, width, height, elements[below(t, 6)]);
    if (!result) snprintf(t->extra, sizeof t->extra, "%zu", pitch);
    if (t->forced) *t->extra = 0;
    return keep_buffer(t, result, at, pitch * height);
}
static int alloc_managed(struct thread *t) {
    static const unsigned flags[] = {1, 2, 1, 1, 77, 0};
    dptr at = 0;
    size_t bytes = some_bytes(t);
    int result = CALL("cuMemAllocManaged", dptr *, size_t, unsigned)(&at, bytes, flags[below(t, 6)]);
    return keep_buffer(t, result, at, bytes);
}
static int free_buffer(struct thread *t) {
    unsigned of = slot(t);
    dptr at = rarely(t) ? t->buffer[of] + 1 : t->buffer[of];
    int result = mem_free(at);
    if (!result && at == t->buffer[of]) t->buffer[of] = 0, t->known[of] = 0;
    return result;
}
static int fill_buffer(struct thread *t) {
    unsigned of = slot(t), value = below(t, 256);
    if (!t->buffer[of] || captures(stream_of(t, of))) return EMPTY;
    int result = CALL("cuMemsetD8Async", dptr, unsigned char, size_t, void *)(t->buffer[of], value, t->bytes[of], stream_of(t, of));
    if (!result) t->known[of] = 1;
    return result;
}
static int read_buffer(struct thread *t) {
    unsigned of = slot(t);
    if (!t->buffer[of] || !t->known[of] || captures(stream_of(t, of))) return EMPTY;
    size_t bytes = t->bytes[of] < MIB ? t->bytes[of] : MIB;
    unsigned char *copy = malloc(bytes + 1);
    if (!copy) exit(2);
    int result = CALL("cuMemcpyDtoHAsync_v2", void *, dptr, size_t, void *)(copy, t->buffer[of] + t->bytes[of] - bytes, bytes, stream_of(t, of));
    if (!result) result = CALL("cuStreamSynchronize", void *)(stream_of(t, of));
    if (!result) snprintf(t->extra, sizeof t->extra, "%zu %016llx", bytes, (dptr)hash(copy, bytes));
    free(copy);
    return result;
}
static int write_buffer(struct thread *t) {
    unsigned char bytes[64];
    unsigned of = slot(t);
    memset(bytes, below(t, 256), sizeof bytes);
    if (!t->buffer[of] || t->bytes[of] < sizeof bytes || captures(stream_of(t, of))) return EMPTY;
    return CALL("cuMemcpyHtoDAsync_v2", dptr, const void *, size_t, void *)(t->buffer[of], bytes, sizeof bytes, stream_of(t, of));
}
static int address_range(struct thread *t) {
    dptr base = 0;
    size_t bytes = 0;
    unsigned of = slot(t);
    int result = CALL("cuMemGetAddressRange_v2", dptr *, size_t *, dptr)(&base, &bytes, t->buffer[of]);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d %zu", base == t->buffer[of], bytes);
    return result;
}
static int pointer_attribute(struct thread *t) {
    u64 value = 0;
    unsigned of = slot(t), which = below(t, 2) ? 2 : 8; /* memory type, managed */
    int result = CALL("cuPointerGetAttribute", void *, int, dptr)(&value, which, t->buffer[of]);
    if (!result) snprintf(t->extra, sizeof t->extra, "%u", (unsigned)value);
    return result;
}
static int get_info(struct thread *t) {
    size_t left, all;
    int result = CALL("cuMemGetInfo_v2", size_t *, size_t *)(&left, &all);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d", left <= all);
    return result;
}
static int host_alloc(struct thread *t) {
    unsigned of = slot(t);
    if (t->host[of]) return EMPTY;
    return CALL("cuMemHostAlloc", void **, size_t, unsigned)(&t->host[of], 1 + below(t, 100000), rarely(t) ? 77 : below(t, 4));
}
static int host_free(struct thread *t) {
    unsigned of = slot(t);
    int result = CALL("cuMemFreeHost", void *)(t->host[of]);
    if (!result) t->host[of] = NULL;
    return result;
}

/* Virtual memory. Ranges are 32 MiB. */
static int reserve(struct thread *t) {
    unsigned of = slot(t);
    if (t->range[of]) return EMPTY;
    return CALL("cuMemAddressReserve", dptr *, size_t, size_t, dptr, u64)(&t->range[of], 32 * MIB, 0, 0, rarely(t));
}
static int unreserve(struct thread *t) {
    unsigned of = slot(t);
    int result = CALL("cuMemAddressFree", dptr, size_t)(t->range[of], 32 * MIB);
    if (!result) t->range[of] = 0;
    return result;
}
static int create(struct thread *t) {
    struct prop prop = {rarely(t) ? 7 : 1, 0, {1, rarely(t) ? 99 : 0}, NULL, {0}};
    size_t bytes = rarely(t) ? 32 * MIB + 512 : 32 * MIB;
    unsigned long long handle = 0;
    unsigned to = slot(t);
    if (t->physical[to]) return EMPTY;
    int result = CALL("cuMemCreate", unsigned long long *, size_t, const struct prop *, u64)(&handle, bytes, &prop, rarely(t) ? 1 : 0);
    FORCED(t, result, CALL("cuMemRelease", unsigned long long)(handle));
    if (!result) t->physical[to] = handle;
    return result;
}
static int release(struct thread *t) {
    unsigned of = slot(t);
    int result = CALL("cuMemRelease", unsigned long long)(t->physical[of]);
    if (!result) t->physical[of] = 0;
    return result;
}
static int map(struct thread *t) {
    unsigned at = slot(t), of = slot(t);
    int result = CALL("cuMemMap", dptr, size_t, size_t, unsigned long long, u64)(t->range[at], 32 * MIB, 0, t->physical[of], rarely(t));
    if (!result) t->mapped[at] = 1;
    return result;
}
static int set_access(struct thread *t) {
    struct access access = {{1, 0}, rarely(t) ? 2 : 3};
    unsigned at = slot(t);
    int result = CALL("cuMemSetAccess", dptr, size_t, const struct access *, size_t)(t->range[at], 32 * MIB, &access, 1);
    if (result || access.flags != 3 || captures(stream_of(t, at))) return result;
    unsigned char copy[64];
    result = CALL("cuMemsetD8Async", dptr, unsigned char, size_t, void *)(t->range[at], 7, sizeof copy, stream_of(t, at));
    if (!result) result = CALL("cuMemcpyDtoHAsync_v2", void *, dptr, size_t, void *)(copy, t->range[at], sizeof copy, stream_of(t, at));
    if (!result) result = CALL("cuStreamSynchronize", void *)(stream_of(t, at));
    if (!result) snprintf(t->extra, sizeof t->extra, "%016llx", (dptr)hash(copy, sizeof copy));
    return result;
}
static int unmap(struct thread *t) {
    unsigned at = slot(t);
    int result = CALL("cuMemUnmap", dptr, size_t)(t->range[at], 32 * MIB);
    if (!result) t->mapped[at] = 0;
    return result;
}
static int retain(struct thread *t) {
    unsigned at = slot(t);
    unsigned long long handle = 0;
    int result = CALL("cuMemRetainAllocationHandle", unsigned long long *, void *)(&handle, (void *)(uintptr_t)t->range[at]);
    if (!result) result = CALL("cuMemRelease", unsigned long long)(handle);
    return result;
}
static int share_handle(struct thread *t) {
    int file = -1, result = CALL("cuMemExportToShareableHandle", void *, unsigned long long, int, u64)(&file, t->physical[slot(t)], 1, 0);
    if (result) return result;
    unsigned long long imported = 0;
    result = CALL("cuMemImportFromShareableHandle", unsigned long long *, void *, int)(&imported, (void *)(uintptr_t)file, 1);
    if (!result) result = CALL("cuMemRelease", unsigned long long)(imported);
    close(file);
    return result;
}

/* Stream-ordered memory. An allocation is freed in the stream of its slot. */
static int keep_ordered(struct thread *t, int result, dptr at, unsigned to, void *stream) {
    FORCED(t, result, CALL("cuMemFreeAsync", dptr, void *)(at, stream));
    if (!result) t->ordered[to] = at;
    return result;
}
static int alloc_async(struct thread *t) {
    unsigned to = slot(t);
    void *stream = rarely(t) ? garbage() : stream_of(t, to);
    dptr at = 0;
    if (t->ordered[to] || captures(stream_of(t, to))) return EMPTY;
    int result = CALL("cuMemAllocAsync", dptr *, size_t, void *)(&at, some_ordered_bytes(t), stream);
    return keep_ordered(t, result, at, to, stream);
}
static int alloc_from_pool(struct thread *t) {
    unsigned to = slot(t);
    void *stream = rarely(t) ? garbage() : stream_of(t, to), *pool = some(t, t->pool);
    dptr at = 0;
    if (t->ordered[to] || captures(stream_of(t, to))) return EMPTY;
    int result = CALL("cuMemAllocFromPoolAsync", dptr *, size_t, void *, void *)(&at, some_ordered_bytes(t), pool, stream);
    return keep_ordered(t, result, at, to, stream);
}
static int alloc_captured(struct thread *t) {
    dptr at = 0;
    void *stream = stream_of(t, slot(t));
    if (!captures(stream)) return EMPTY;
    int result = CALL("cuMemAllocAsync", dptr *, size_t, void *)(&at, 2 * MIB, stream);
    if (!result) result = CALL("cuMemFreeAsync", dptr, void *)(at, stream);
    return result;
}
static int free_async(struct thread *t) {
    unsigned of = slot(t);
    if (captures(stream_of(t, of))) return EMPTY;
    int result = CALL("cuMemFreeAsync", dptr, void *)(t->ordered[of], rarely(t) ? garbage() : stream_of(t, of));
    if (!result) t->ordered[of] = 0;
    return result;
}
static int free_ordered_now(struct thread *t) {
    unsigned of = slot(t);
    if (!t->ordered[of] || captures(stream_of(t, of))) return EMPTY;
    int result = CALL("cuStreamSynchronize", void *)(stream_of(t, of));
    if (!result) result = mem_free(t->ordered[of]);
    if (!result) t->ordered[of] = 0;
    return result;
}
static int pool_create(struct thread *t) {
    struct pool_props props = {1, 0, {1, rarely(t) ? 99 : 0}, NULL, 0, {0}};
    unsigned to = slot(t);
    if (t->pool[to]) return EMPTY;
    return CALL("cuMemPoolCreate", void **, const struct pool_props *)(&t->pool[to], &props);
}
static int pool_destroy(struct thread *t) {
    unsigned of = slot(t);
    int result = CALL("cuMemPoolDestroy", void *)(t->pool[of]);
    if (!result) t->pool[of] = NULL;
    return result;
}
static int pool_trim(struct thread *t) { return CALL("cuMemPoolTrimTo", void *, size_t)(some(t, t->pool), below(t, 2) * 64 * MIB); }
static int pool_keep(struct thread *t) {
    u64 threshold = below(t, 2) ? ~0ull : 0;
    return CALL("cuMemPoolSetAttribute", void *, int, void *)(some(t, t->pool), rarely(t) ? 999 : 4, &threshold);
}
static int pool_attribute(struct thread *t) {
    u64 value = 0;
    return CALL("cuMemPoolGetAttribute", void *, int, void *)(some(t, t->pool), 1 + below(t, 9), &value);
}

/* Arrays. */
static int array_create(struct thread *t) {
    static const int formats[] = {1, 2, 3, 16, 32, 32, 77, 0};
    static const unsigned channels[] = {1, 2, 4, 1, 1, 3, 0, 1};
    struct array2d flat = {1 + below(t, 4000), below(t, 4000), formats[below(t, 8)], channels[below(t, 8)]};
    struct array3d deep = {1 + below(t, 400), below(t, 200), below(t, 100), flat.format, flat.channels, rarely(t) ? 1u << below(t, 31) : 0};
    unsigned to = slot(t);
    void *array = NULL;
    if (rarely(t)) flat.width <<= 30, deep.depth <<= 30;
    if (t->array[to]) return EMPTY;
    int result = below(t, 2) ? CALL("cuArrayCreate_v2", void **, const struct array2d *)(&array, &flat)
                             : CALL("cuArray3DCreate_v2", void **, const struct array3d *)(&array, &deep);
    FORCED(t, result, CALL("cuArrayDestroy", void *)(array));
    if (!result) t->array[to] = array;
    return result;
}
static int array_destroy(struct thread *t) {
    unsigned of = slot(t);
    void *array = rarely(t) ? garbage() : t->array[of];
    int result = CALL("cuArrayDestroy", void *)(array);
    if (!result) t->array[of] = NULL;
    return result;
}
static int array_describe(struct thread *t) {
    struct array3d says = {0};
    int result = CALL("cuArray3DGetDescriptor_v2", struct array3d *, void *)(&says, some(t, t->array));
    if (!result) snprintf(t->extra, sizeof t->extra, "%zu %zu %zu %d %u %u", says.width, says.height, says.depth, says.format, says.channels, says.flags);
    return result;
}
static int mipmap_create(struct thread *t) {
    struct array3d descriptor = {1 + below(t, 3000), 1 + below(t, 3000), 0, rarely(t) ? 77 : 32, rarely(t) ? 3 : 1, 0};
    unsigned to = slot(t), levels = below(t, 12);
    void *mipmap = NULL;
    if (t->mipmap[to]) return EMPTY;
    int result = CALL("cuMipmappedArrayCreate", void **, const struct array3d *, unsigned)(&mipmap, &descriptor, levels);
    FORCED(t, result, CALL("cuMipmappedArrayDestroy", void *)(mipmap));
    if (!result) t->mipmap[to] = mipmap;
    return result;
}
static int mipmap_level(struct thread *t) {
    void *level;
    return CALL("cuMipmappedArrayGetLevel", void **, void *, unsigned)(&level, some(t, t->mipmap), below(t, 12));
}
static int mipmap_destroy(struct thread *t) {
    unsigned of = slot(t);
    int result = CALL("cuMipmappedArrayDestroy", void *)(t->mipmap[of]);
    if (!result) t->mipmap[of] = NULL;
    return result;
}

/* Streams and events. */
static int stream_create(struct thread *t) {
    unsigned to = slot(t), flags = threads > 1 ? 1 : rarely(t) ? 77 : below(t, 2);
    if (t->stream[to] || t->ordered[to] || t->known[to]) return EMPTY;
    if (below(t, 2)) return CALL("cuStreamCreateWithPriority", void **, unsigned, int)(&t->stream[to], flags, -(int)below(t, 3));
    return CALL("cuStreamCreate", void **, unsigned)(&t->stream[to], flags);
}
static int stream_destroy(struct thread *t) {
    unsigned of = slot(t);
    if (!t->stream[of] || t->ordered[of] || t->known[of]) return EMPTY;
    int result = CALL("cuStreamDestroy_v2", void *)(t->stream[of]);
    t->stream[of] = NULL;
    return result;
}
static int stream_sync(struct thread *t) { return CALL("cuStreamSynchronize", void *)(some_stream(t)); }
static int stream_query(struct thread *t) {
    int result = CALL("cuStreamQuery", void *)(some_stream(t));
    return result == NOT_READY ? 0 : result;
}
static int stream_flags(struct thread *t) {
    unsigned flags = 0;
    int result = CALL("cuStreamGetFlags", void *, unsigned *)(some_stream(t), &flags);
    if (!result) snprintf(t->extra, sizeof t->extra, "%u", flags);
    return result;
}
static int stream_context(struct thread *t) {
    void *context = NULL;
    int result = CALL("cuStreamGetCtx", void *, void **)(some_stream(t), &context);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d", context == primary);
    return result;
}
static int event_create(struct thread *t) {
    unsigned to = slot(t);
    if (t->event[to]) return EMPTY;
    return CALL("cuEventCreate", void **, unsigned)(&t->event[to], rarely(t) ? 77 : below(t, 4));
}
static int event_destroy(struct thread *t) {
    unsigned of = slot(t);
    if (!t->event[of]) return EMPTY;
    int result = CALL("cuEventDestroy_v2", void *)(t->event[of]);
    t->event[of] = NULL;
    return result;
}
static int event_record(struct thread *t) { return CALL("cuEventRecord", void *, void *)(some(t, t->event), some_stream(t)); }
static int event_query(struct thread *t) {
    int result = CALL("cuEventQuery", void *)(some(t, t->event));
    return result == NOT_READY ? 0 : result;
}
static int event_sync(struct thread *t) { return CALL("cuEventSynchronize", void *)(some(t, t->event)); }
static int event_wait(struct thread *t) {
    return CALL("cuStreamWaitEvent", void *, void *, unsigned)(some_stream(t), some(t, t->event), rarely(t) ? 77 : 0);
}
static int event_elapsed(struct thread *t) {
    float time;
    int result = CALL("cuEventElapsedTime", float *, void *, void *)(&time, some(t, t->event), some(t, t->event));
    return result == NOT_READY ? 0 : result;
}

/* Captures. */
static int begin_capture(struct thread *t) {
    int mode = threads > 1 ? 1 : rarely(t) ? 9 : (int)below(t, 3);
    return CALL("cuStreamBeginCapture_v2", void *, int)(threads > 1 ? stream_of(t, slot(t)) : some_stream(t), mode);
}
static int end_capture(struct thread *t) {
    unsigned of = slot(t), to = slot(t);
    void *graph = NULL;
    int result = CALL("cuStreamEndCapture", void *, void **)(stream_of(t, of), &graph);
    if (result) return result;
    if (t->graph[to]) CALL("cuGraphDestroy", void *)(t->graph[to]);
    t->graph[to] = graph;
    return 0;
}
static int capture_status(struct thread *t) {
    int status = 0, result = CALL("cuStreamIsCapturing", void *, int *)(some_stream(t), &status);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d", status);
    return result;
}
static int exchange_mode(struct thread *t) {
    int mode = (int)below(t, 3), before = mode, result = CALL("cuThreadExchangeStreamCaptureMode", int *)(&mode);
    snprintf(t->extra, sizeof t->extra, "%d %d", before, mode);
    if (!result) result = CALL("cuThreadExchangeStreamCaptureMode", int *)(&mode);
    return result;
}
static int set_fixed(struct thread *t) {
    return CALL("cuMemsetD8Async", dptr, unsigned char, size_t, void *)(t->fixed, below(t, 256), STATIC, some_stream(t));
}

/* Graphs. */
static int graph_create(struct thread *t) {
    unsigned to = slot(t);
    if (t->graph[to]) return EMPTY;
    return CALL("cuGraphCreate", void **, unsigned)(&t->graph[to], rarely(t));
}
static int graph_destroy(struct thread *t) {
    unsigned of = slot(t);
    int result = CALL("cuGraphDestroy", void *)(t->graph[of]);
    if (!result) t->graph[of] = NULL;
    return result;
}
static int graph_memset(struct thread *t) {
    struct memset_params params = {t->fixed, STATIC, below(t, 256), rarely(t) ? 3 : 1, STATIC, 1};
    void *node;
    return CALL("cuGraphAddMemsetNode", void **, void *, void **, size_t, void *, void *)(&node, some(t, t->graph), NULL, 0, &params, primary);
}
static int graph_empty(struct thread *t) {
    void *node;
    return CALL("cuGraphAddEmptyNode", void **, void *, void **, size_t)(&node, some(t, t->graph), NULL, 0);
}
static int graph_memory(struct thread *t) {
    struct node_params params = {{1, 0, {1, rarely(t) ? 99 : 0}, NULL, 0, {0}}, NULL, 0, some_bytes(t), 0};
    void *node, *after, *graph = some(t, t->graph);
    int result = CALL("cuGraphAddMemAllocNode", void **, void *, void **, size_t, struct node_params *)(&node, graph, NULL, 0, &params);
    if (!result) result = CALL("cuGraphAddMemFreeNode", void **, void *, void **, size_t, dptr)(&after, graph, &node, 1, params.at);
    return result;
}
static int graph_clone(struct thread *t) {
    unsigned to = slot(t);
    if (t->graph[to]) return EMPTY;
    return CALL("cuGraphClone", void **, void *)(&t->graph[to], some(t, t->graph));
}
static int graph_nodes(struct thread *t) {
    size_t count = 0;
    int result = CALL("cuGraphGetNodes", void *, void **, size_t *)(some(t, t->graph), NULL, &count);
    if (!result) snprintf(t->extra, sizeof t->extra, "%zu", count);
    return result;
}
static int instantiate(struct thread *t) {
    static const u64 flags[] = {0, 0, 1, 1u << 20};
    unsigned to = slot(t);
    void *graph = some(t, t->graph);
    if (t->exec[to]) return EMPTY;
    return CALL("cuGraphInstantiateWithFlags", void **, void *, u64)(&t->exec[to], graph, flags[below(t, 4)]);
}
static int exec_destroy(struct thread *t) {
    unsigned of = slot(t);
    int result = CALL("cuGraphExecDestroy", void *)(t->exec[of]);
    if (!result) t->exec[of] = NULL;
    return result;
}
static int graph_launch(struct thread *t) {
    void *exec = some(t, t->exec), *stream = some_stream(t);
    if (t->forced) return OUT_OF_MEMORY;
    int result = CALL("cuGraphLaunch", void *, void *)(exec, stream);
    if (!result && !captures(stream)) result = CALL("cuStreamSynchronize", void *)(stream);
    return result;
}
static int graph_upload(struct thread *t) {
    void *exec = some(t, t->exec), *stream = some_stream(t);
    if (t->forced) return OUT_OF_MEMORY;
    return CALL("cuGraphUpload", void *, void *)(exec, stream);
}
static int graph_trim(struct thread *t) { return CALL("cuDeviceGraphMemTrim", int)(rarely(t) ? 99 : 0); }

/* Modules and kernels. */
static int module_load(struct thread *t) {
    unsigned to = slot(t);
    if (t->module[to]) return EMPTY;
    return CALL("cuModuleLoadData", void **, const void *)(&t->module[to], rarely(t) ? NULL : "any image");
}
static int module_unload(struct thread *t) {
    unsigned of = slot(t);
    int result = CALL("cuModuleUnload", void *)(t->module[of]);
    if (!result) t->module[of] = t->function[of] = NULL;
    return result;
}
static int get_function(struct thread *t) {
    unsigned of = slot(t);
    if (t->function[of]) return EMPTY;
    return CALL("cuModuleGetFunction", void **, void *, const char *)(&t->function[of], t->module[of], "spin");
}
static int launch(struct thread *t) {
    u64 time = 1000 * (1 + below(t, 50));
    void *parameters[] = {&time}, *function = some(t, t->function);
    unsigned grid = rarely(t) ? 0 : 1;
    return CALL("cuLaunchKernel", void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)(
        function, grid, 1, 1, rarely(t) ? 4096 : 32, 1, 1, 0, some_stream(t), parameters, NULL);
}
static int occupancy(struct thread *t) {
    int blocks = 0, result = CALL("cuOccupancyMaxActiveBlocksPerMultiprocessor", int *, void *, int, size_t)(&blocks, some(t, t->function), 256, 0);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d", blocks);
    return result;
}

/* Contexts: those made are pushed and popped again; the primary one stays. */
static int context_create(struct thread *t) {
    unsigned to = slot(t);
    void *popped;
    if (t->context[to]) return EMPTY;
    int result = CALL("cuCtxCreate_v2", void **, unsigned, int)(&t->context[to], rarely(t) ? 0x4000 : 0, rarely(t) ? 99 : 0);
    if (!result) result = CALL("cuCtxPopCurrent_v2", void **)(&popped);
    return result;
}
static int context_use(struct thread *t) {
    dptr at = 0;
    unsigned of = slot(t);
    void *popped = NULL;
    if (!t->context[of]) return EMPTY;
    int result = CALL("cuCtxPushCurrent_v2", void *)(t->context[of]);
    if (result) return result;
    result = CALL("cuMemAlloc_v2", dptr *, size_t)(&at, some_bytes(t));
    if (!result) mem_free(at);
    int pop = CALL("cuCtxPopCurrent_v2", void **)(&popped);
    snprintf(t->extra, sizeof t->extra, "%d %d", pop, popped == t->context[of]);
    return t->forced && !result ? OUT_OF_MEMORY : result;
}
static int context_destroy(struct thread *t) {
    unsigned of = slot(t);
    if (!t->context[of]) return EMPTY;
    int result = CALL("cuCtxDestroy_v2", void *)(t->context[of]);
    t->context[of] = NULL;
    return result;
}
static int context_sync(struct thread *t) { return (void)t, CALL("cuCtxSynchronize", void)(); }
static int context_device(struct thread *t) {
    int device = -1, result = CALL("cuCtxGetDevice", int *)(&device);
    snprintf(t->extra, sizeof t->extra, "%d", device);
    return result;
}
static int context_none(struct thread *t) {
    void *popped = NULL;
    dptr at = 0;
    int result = CALL("cuCtxPopCurrent_v2", void **)(&popped);
    int without = CALL("cuMemAlloc_v2", dptr *, size_t)(&at, some_bytes(t));
    snprintf(t->extra, sizeof t->extra, "%d %d", without, popped == primary);
    int back = CALL("cuCtxPushCurrent_v2", void *)(popped);
    return result ? result : back;
}
static int primary_again(struct thread *t) {
    void *context = NULL;
    int result = CALL("cuDevicePrimaryCtxRetain", void **, int)(&context, 0);
    snprintf(t->extra, sizeof t->extra, "%d", context == primary);
    return result ? result : CALL("cuDevicePrimaryCtxRelease_v2", int)(0);
}

/* Memory of other processes, and what NVML says. */
static int ipc_handle(struct thread *t) {
    char handle[64] = {0};
    return CALL("cuIpcGetMemHandle", void *, dptr)(handle, t->buffer[slot(t)]);
}
static int ipc_close(struct thread *t) { return CALL("cuIpcCloseMemHandle", dptr)(below(t, 2) ? 4096 : 0); }
static int monitor(struct thread *t) {
    static const char *const names[] = {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses_v3"};
    unsigned which = below(t, 2), count = 16;
    void *device = NULL;
    char space[4096];
    int (*by_index)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int result = by_index(rarely(t) ? 99 : 0, &device);
    void *function = dlsym(nvml, names[which]);
    if (!result) result = which ? ((int (*)(void *, unsigned *, void *))function)(device, &count, space)
                                : ((int (*)(void *, void *))function)(device, space);
    return result ? 2000 + result : 0; /* Not to be taken for the driver's. */
}

/* `alone`: what it answers depends on other threads, or their answers on it. */
static const struct { const char *name; int (*does)(struct thread *); unsigned weight, alone; } calls[] = {
    {"alloc", alloc, 6, 0}, {"alloc_pitch", alloc_pitch, 2, 0}, {"alloc_managed", alloc_managed, 2, 0}, {"free", free_buffer, 4, 0},
    {"fill", fill_buffer, 5, 0}, {"read", read_buffer, 5, 0}, {"write", write_buffer, 2, 0}, {"address_range", address_range, 1, 0},
    {"pointer", pointer_attribute, 1, 0}, {"info", get_info, 1, 0}, {"host_alloc", host_alloc, 1, 0}, {"host_free", host_free, 1, 0},
    {"reserve", reserve, 2, 0}, {"unreserve", unreserve, 1, 0}, {"create", create, 3, 0}, {"release", release, 1, 0}, {"map", map, 3, 0},
    {"set_access", set_access, 2, 0}, {"unmap", unmap, 1, 0}, {"retain", retain, 1, 0}, {"share_handle", share_handle, 1, 0},
    {"alloc_async", alloc_async, 4, 0}, {"alloc_from_pool", alloc_from_pool, 3, 0}, {"alloc_captured", alloc_captured, 2, 0},
    {"free_async", free_async, 5, 0}, {"free_ordered_now", free_ordered_now, 1, 0}, {"pool_create", pool_create, 2, 0},
    {"pool_destroy", pool_destroy, 1, 0}, {"pool_trim", pool_trim, 1, 0}, {"pool_keep", pool_keep, 1, 0},
    {"pool_attribute", pool_attribute, 1, 0}, {"array_create", array_create, 4, 0}, {"array_destroy", array_destroy, 2, 0},
    {"array_describe", array_describe, 1, 0}, {"mipmap_create", mipmap_create, 2, 0}, {"mipmap_level", mipmap_level, 1, 0},
    {"mipmap_destroy", mipmap_destroy, 1, 0}, {"stream_create", stream_create, 4, 0}, {"stream_destroy", stream_destroy, 1, 0},
    {"stream_sync", stream_sync, 2, 0}, {"stream_query", stream_query, 1, 0}, {"stream_flags", stream_flags, 1, 0},
    {"stream_context", stream_context, 1, 0}, {"event_create", event_create, 2, 0}, {"event_destroy", event_destroy, 1, 0},
    {"event_record", event_record, 3, 0}, {"event_query", event_query, 1, 0}, {"event_sync", event_sync, 1, 0},
    {"event_wait", event_wait, 2, 0}, {"event_elapsed", event_elapsed, 1, 0}, {"begin_capture", begin_capture, 3, 0},
    {"end_capture", end_capture, 5, 0}, {"capture_status", capture_status, 1, 0}, {"exchange_mode", exchange_mode, 1, 0},
    {"set_fixed", set_fixed, 3, 0}, {"graph_create", graph_create, 2, 0}, {"graph_destroy", graph_destroy, 1, 0},
    {"graph_memset", graph_memset, 2, 0}, {"graph_empty", graph_empty, 1, 0}, {"graph_memory", graph_memory, 3, 0},
    {"graph_clone", graph_clone, 1, 0}, {"graph_nodes", graph_nodes, 1, 0}, {"instantiate", instantiate, 4, 0},
    {"exec_destroy", exec_destroy, 1, 0}, {"graph_launch", graph_launch, 4, 0}, {"graph_upload", graph_upload, 1, 0},
    {"graph_trim", graph_trim, 1, 0}, {"module_load", module_load, 3, 0}, {"module_unload", module_unload, 1, 1},
    {"get_function", get_function, 3, 0}, {"launch", launch, 8, 0}, {"occupancy", occupancy, 1, 0},
    {"context_create", context_create, 1, 1}, {"context_use", context_use, 2, 1}, {"context_destroy", context_destroy, 1, 1},
    {"context_sync", context_sync, 1, 1}, {"context_device", context_device, 1, 0}, {"context_none", context_none, 1, 0},
    {"primary_again", primary_again, 1, 1}, {"ipc_handle", ipc_handle, 1, 0}, {"ipc_close", ipc_close, 1, 0}, {"monitor", monitor, 1, 0},
};
enum { CALLS = sizeof calls / sizeof *calls };

static unsigned pick(struct thread *t) {
    unsigned all = 0, at;
    for (unsigned i = 0; i < CALLS; i++) all += threads > 1 && calls[i].alone ? 0 : calls[i].weight;
    at = below(t, all);
    for (unsigned i = 0;; i++) {
        unsigned weight = threads > 1 && calls[i].alone ? 0 : calls[i].weight;
        if (at < weight) return i;
        at -= weight;
    }
}

static void must(int result, const char *what) {
    if (!result) return;
    fprintf(stderr, "%s: %d\n", what, result);
    exit(2);
}

static void *run(void *argument) {
    struct thread *t = argument;
    must(CALL("cuCtxSetCurrent", void *)(primary), "cuCtxSetCurrent");
    must(CALL("cuMemAlloc_v2", dptr *, size_t)(&t->fixed, STATIC), "cuMemAlloc");
    for (t->index = 0; t->index < t->count; t->index++) {
        if (!only[t->index]) continue;
        t->random = mixed(t->seed ^ mixed(t->index));
        t->forced = refused[t->index];
        *t->extra = 0;
        unsigned which = pick(t);
        int result = calls[which].does(t);
        if (result == EMPTY) printf("%d.%d %s -\n", t->number, t->index, calls[which].name);
        else printf("%d.%d %s %d%s%s\n", t->number, t->index, calls[which].name, result, *t->extra ? " " : "", t->extra);
    }
    return NULL;
}

/* Sets the indices of a list such as 3,5-9. */
static void list(const char *text, unsigned char *set) {
    for (char *end; *text; text = end + (*end == ',')) {
        long from = strtol(text, &end, 10), to = from;
        if (*end == '-') to = strtol(end + 1, &end, 10);
        for (; from <= to && from < MOST; from++) set[from] = 1;
        if (*end && *end != ',') exit(2);
    }
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    u64 seed = strtoull(argv[1], NULL, 10);
    int count = atoi(argv[2]), device = 0, (*nvml_init)(void);
    threads = atoi(argv[3]);
    if (count > MOST || threads < 1 || threads > 16) return 2;
    memset(only, 1, sizeof only);
    for (int i = 4; i < argc; i++) {
        if (!strncmp(argv[i], "only=", 5)) memset(only, 0, sizeof only), list(argv[i] + 5, only);
        else if (!strncmp(argv[i], "refused=", 8)) list(argv[i] + 8, refused);
        else return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    driver = dlopen("libcuda.so.1", RTLD_NOW), nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!driver || !nvml) return 2;
    nvml_init = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    must(nvml_init(), "nvmlInit");
    must(CALL("cuInit", unsigned)(0), "cuInit");
    must(CALL("cuDeviceGet", int *, int)(&device, 0), "cuDeviceGet");
    must(CALL("cuDevicePrimaryCtxRetain", void **, int)(&primary, device), "cuDevicePrimaryCtxRetain");
    struct thread *all = calloc(threads, sizeof *all);
    pthread_t *running = calloc(threads, sizeof *running);
    if (!all || !running) return 2;
    for (int i = 0; i < threads; i++) {
        all[i].seed = mixed(seed + i), all[i].number = i, all[i].count = count;
        must(pthread_create(&running[i], NULL, run, &all[i]), "pthread_create");
    }
    for (int i = 0; i < threads; i++) must(pthread_join(running[i], NULL), "pthread_join");
    puts("end");
    return 0;
}
