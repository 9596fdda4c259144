/* Stream-ordered memory and pools. An allocation is freed in the stream of its slot. */
static int keep_ordered(struct thread *t, int result, dptr at, unsigned to, void *stream) {
    FORCED(t, result, CALL("cuMemFreeAsync", (dptr, void *))(at, stream));
    if (!result) t->ordered[to] = at;
    return result;
}
static int alloc_async(struct thread *t) {
    unsigned to = UNUSED(t, ordered);
    void *stream = rarely(t) ? garbage() : stream_of(t, to);
    dptr at = 0;
    if (t->ordered[to] || captures(stream_of(t, to))) return EMPTY;
    int result = CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&at, some_ordered_bytes(t), stream);
    return keep_ordered(t, result, at, to, stream);
}
static int alloc_from_pool(struct thread *t) {
    unsigned to = UNUSED(t, ordered);
    void *stream = rarely(t) ? garbage() : stream_of(t, to), *pool = some(t, t->pool);
    dptr at = 0;
    if (t->ordered[to] || captures(stream_of(t, to))) return EMPTY;
    int result = CALL("cuMemAllocFromPoolAsync", (dptr *, size_t, void *, void *))(&at, some_ordered_bytes(t), pool, stream);
    return keep_ordered(t, result, at, to, stream);
}
static int alloc_captured(struct thread *t) {
    dptr at = 0;
    void *stream = stream_of(t, slot(t));
    if (!captures(stream)) return EMPTY;
    int result = CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&at, 2 * MIB, stream);
    if (!result) result = CALL("cuMemFreeAsync", (dptr, void *))(at, stream);
    return result;
}
static int free_async(struct thread *t) {
    unsigned of = USED(t, ordered);
    if (captures(stream_of(t, of))) return EMPTY;
    int result = CALL("cuMemFreeAsync", (dptr, void *))(t->ordered[of], rarely(t) ? garbage() : stream_of(t, of));
    if (!result) t->ordered[of] = 0;
    return result;
}
static int free_ordered_now(struct thread *t) {
    unsigned of = USED(t, ordered);
    if (!t->ordered[of] || captures(stream_of(t, of))) return EMPTY;
    int result = CALL("cuStreamSynchronize", (void *))(stream_of(t, of));
    if (!result) result = mem_free(t->ordered[of]);
    if (!result) t->ordered[of] = 0;
    return result;
}
static int pool_create(struct thread *t) {
    struct pool_props props = {1, (int)(t->random >> 60 & 1), {1, rarely(t) ? 99 : 0}, NULL, 0, {0}};
    unsigned to = UNUSED(t, pool);
    if (t->pool[to]) return EMPTY;
    return CALL("cuMemPoolCreate", (void **, const struct pool_props *))(&t->pool[to], &props);
}
/* A pool of the host's memory, to which the device gets access, or of managed memory; or the default one, which is kept
 * in no slot. */
static int pool_place(struct thread *t) {
    struct pool_props props = {1 + (int)below(t, 2), rarely(t), {(int)below(t, rarely(t) ? 6 : 4), rarely(t) ? 99 : 0}, NULL, rarely(t) ? 64 * MIB : 0, {0}};
    struct access access = {{1, 0}, 3};
    unsigned to = UNUSED(t, pool), named = rarely(t);
    void *pool = NULL;
    if (t->pool[to]) return EMPTY;
    int result = named ? CALL("cuMemGetDefaultMemPool", (void **, struct location *, int))(&pool, &props.location, props.type)
                       : CALL("cuMemPoolCreate", (void **, const struct pool_props *))(&pool, &props);
    if (!result && !named) t->pool[to] = pool;
    if (!result && props.type == 1 && props.location.type != 1)
        result = CALL("cuMemPoolSetAccess", (void *, const struct access *, size_t))(pool, &access, 1);
    return result;
}
static int pool_destroy(struct thread *t) {
    unsigned of = USED(t, pool);
    int result = CALL("cuMemPoolDestroy", (void *))(t->pool[of]);
    if (!result) t->pool[of] = NULL;
    return result;
}
static int pool_trim(struct thread *t) { return CALL("cuMemPoolTrimTo", (void *, size_t))(some(t, t->pool), below(t, 2) * 64 * MIB); }
static int pool_keep(struct thread *t) {
    u64 threshold = below(t, 2) ? ~0ull : 0;
    return CALL("cuMemPoolSetAttribute", (void *, int, void *))(some(t, t->pool), rarely(t) ? 999 : 4, &threshold);
}
static int pool_attribute(struct thread *t) {
    u64 value = 0;
    return CALL("cuMemPoolGetAttribute", (void *, int, void *))(some(t, t->pool), 1 + below(t, 9), &value);
}

static int fill_ordered(struct thread *t) {
    unsigned of = USED(t, ordered);
    unsigned char bytes[64] = {0};
    void *stream = stream_of(t, of);
    if (!t->ordered[of] || captures(stream)) return EMPTY;
    int result = CALL("cuMemsetD8Async", (dptr, unsigned char, size_t, void *))(t->ordered[of], below(t, 256), 1, stream);
    if (!result) result = CALL("cuMemcpyDtoHAsync_v2", (void *, dptr, size_t, void *))(bytes, t->ordered[of], 1, stream);
    if (!result) result = CALL("cuStreamSynchronize", (void *))(stream);
    if (!result) snprintf(t->extra, sizeof t->extra, "%u", bytes[0]);
    return result;
}
/* Many at once, freed in order: what a pool holds is bounded by what is live. */
static int ordered_burst(struct thread *t) {
    dptr at[8];
    unsigned of = slot(t), count = 1 + below(t, 8), size = 1 + below(t, 8 * MIB), made = 0;
    void *stream = stream_of(t, of);
    int result = 0;
    if (captures(stream)) return EMPTY;
    for (; made < count && !result; made += !result) result = CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&at[made], size, stream);
    int freed = 0;
    for (unsigned i = 0; i < made; i++) freed |= CALL("cuMemFreeAsync", (dptr, void *))(at[i], stream);
    if (t->forced && !result) result = OUT_OF_MEMORY;
    else if (!result) snprintf(t->extra, sizeof t->extra, "%d", freed);
    return result;
}
static int pool_access(struct thread *t) {
    struct location location = {1, rarely(t) ? 99 : 0};
    struct access access = {location, rarely(t) ? 1 : 3};
    void *pool = some(t, t->pool);
    int flags = -1, set = CALL("cuMemPoolSetAccess", (void *, const struct access *, size_t))(pool, &access, rarely(t) ? 0 : 1);
    int result = CALL("cuMemPoolGetAccess", (int *, void *, struct location *))(&flags, pool, &location);
    snprintf(t->extra, sizeof t->extra, "%d %d", set, flags);
    return result;
}
static int pool_export(struct thread *t) {
    int file = -1, result = CALL("cuMemPoolExportToShareableHandle", (void *, void *, int, u64))(&file, some(t, t->pool), rarely(t) ? 7 : 1, rarely(t));
    if (!result) close(file);
    return result;
}
static int device_pool(struct thread *t) {
    void *first = NULL, *now = NULL;
    int result = CALL("cuDeviceGetDefaultMemPool", (void **, int))(&first, rarely(t) ? 99 : 0);
    if (!result) result = CALL("cuDeviceGetMemPool", (void **, int))(&now, 0);
    snprintf(t->extra, sizeof t->extra, "%d", first == now);
    return result;
}
/* The pool of a slot serves cuMemAllocAsync for one allocation. `alone`: all threads use it. */
static int other_pool(struct thread *t) {
    void *first = NULL, *pool = some(t, t->pool), *stream = stream_of(t, slot(t));
    dptr at = 0;
    if (captures(stream)) return EMPTY;
    must(CALL("cuDeviceGetDefaultMemPool", (void **, int))(&first, 0), "cuDeviceGetDefaultMemPool");
    int result = CALL("cuDeviceSetMemPool", (int, void *))(0, pool);
    if (result) return result;
    result = CALL("cuMemAllocAsync", (dptr *, size_t, void *))(&at, 3 * MIB, stream);
    if (!result) CALL("cuMemFreeAsync", (dptr, void *))(at, stream);
    must(CALL("cuDeviceSetMemPool", (int, void *))(0, first), "cuDeviceSetMemPool");
    return t->forced && !result ? OUT_OF_MEMORY : result;
}
