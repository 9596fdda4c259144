/* Streams, events and captures. */
static int stream_create(struct thread *t) {
    unsigned to = UNUSED(t, stream), flags = threads > 1 ? 1 : rarely(t) ? 77 : below(t, 2);
    if (t->stream[to] || t->ordered[to] || t->known[to]) return EMPTY;
    if (below(t, 2)) return CALL("cuStreamCreateWithPriority", (void **, unsigned, int))(&t->stream[to], flags, -(int)below(t, 3));
    return CALL("cuStreamCreate", (void **, unsigned))(&t->stream[to], flags);
}
static int stream_destroy(struct thread *t) {
    unsigned of = USED(t, stream);
    if (!t->stream[of] || t->ordered[of] || t->known[of]) return EMPTY;
    int result = CALL("cuStreamDestroy_v2", (void *))(t->stream[of]);
    t->stream[of] = NULL;
    return result;
}
static int stream_sync(struct thread *t) { return CALL("cuStreamSynchronize", (void *))(some_stream(t)); }
static int stream_query(struct thread *t) {
    int result = CALL("cuStreamQuery", (void *))(some_stream(t));
    return result == NOT_READY ? 0 : result;
}
static int stream_flags(struct thread *t) {
    unsigned flags = 0;
    int result = CALL("cuStreamGetFlags", (void *, unsigned *))(some_stream(t), &flags);
    if (!result) snprintf(t->extra, sizeof t->extra, "%u", flags);
    return result;
}
static int stream_context(struct thread *t) {
    void *context = NULL;
    int result = CALL("cuStreamGetCtx", (void *, void **))(some_stream(t), &context);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d", context == primary);
    return result;
}
static int event_create(struct thread *t) {
    unsigned to = UNUSED(t, event);
    if (t->event[to]) return EMPTY;
    return CALL("cuEventCreate", (void **, unsigned))(&t->event[to], rarely(t) ? 77 : below(t, 4));
}
static int event_destroy(struct thread *t) {
    unsigned of = USED(t, event);
    if (!t->event[of]) return EMPTY;
    int result = CALL("cuEventDestroy_v2", (void *))(t->event[of]);
    t->event[of] = NULL;
    return result;
}
static int event_record(struct thread *t) { return CALL("cuEventRecord", (void *, void *))(some(t, t->event), some_stream(t)); }
static int event_query(struct thread *t) {
    int result = CALL("cuEventQuery", (void *))(some(t, t->event));
    return result == NOT_READY ? 0 : result;
}
static int event_sync(struct thread *t) { return CALL("cuEventSynchronize", (void *))(some(t, t->event)); }
static int event_wait(struct thread *t) {
    return CALL("cuStreamWaitEvent", (void *, void *, unsigned))(some_stream(t), some(t, t->event), rarely(t) ? 77 : 0);
}
static int event_elapsed(struct thread *t) {
    float time;
    int result = CALL("cuEventElapsedTime", (float *, void *, void *))(&time, some(t, t->event), some(t, t->event));
    return result == NOT_READY ? 0 : result;
}

/* Captures. */
static int begin_capture(struct thread *t) {
    int mode = threads > 1 ? 1 : rarely(t) ? 9 : (int)below(t, 3);
    return CALL("cuStreamBeginCapture_v2", (void *, int))(threads > 1 ? stream_of(t, slot(t)) : some_stream(t), mode);
}
static int end_capture(struct thread *t) {
    unsigned of = slot(t), to = UNUSED(t, graph);
    void *graph = NULL;
    for (unsigned i = 0; i < SLOTS && !captures(stream_of(t, of)); i++) of = (of + 1) % SLOTS;
    int result = CALL("cuStreamEndCapture", (void *, void **))(stream_of(t, of), &graph);
    if (result) return result;
    if (t->graph[to]) CALL("cuGraphDestroy", (void *))(t->graph[to]);
    t->graph[to] = graph;
    return 0;
}
static int capture_status(struct thread *t) {
    int status = 0, result = CALL("cuStreamIsCapturing", (void *, int *))(some_stream(t), &status);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d", status);
    return result;
}
static int exchange_mode(struct thread *t) {
    int mode = (int)below(t, 3), before = mode, result = CALL("cuThreadExchangeStreamCaptureMode", (int *))(&mode);
    snprintf(t->extra, sizeof t->extra, "%d %d", before, mode);
    if (!result) result = CALL("cuThreadExchangeStreamCaptureMode", (int *))(&mode);
    return result;
}
static int set_fixed(struct thread *t) {
    return CALL("cuMemsetD8Async", (dptr, unsigned char, size_t, void *))(t->fixed, below(t, 256), STATIC, some_stream(t));
}

static void counts(void *of) { __atomic_add_fetch((unsigned *)of, 1, __ATOMIC_RELAXED); }
/* A counter of one call's own, never freed: where a capture forbids the wait, the function is called
 * later, and must not count for another call. */
static unsigned *new_count(void) {
    unsigned *count = calloc(1, sizeof *count);
    must(!count, "calloc");
    return count;
}
static int host_function(struct thread *t) {
    unsigned of = slot(t);
    void *stream = stream_of(t, of);
    if (captures(stream)) return EMPTY;
    unsigned *count = new_count();
    int result = CALL("cuLaunchHostFunc", (void *, void (*)(void *), void *))(stream, rarely(t) ? NULL : counts, count);
    int synced = CALL("cuStreamSynchronize", (void *))(stream);
    snprintf(t->extra, sizeof t->extra, "%d %u", synced, synced ? 0 : __atomic_load_n(count, __ATOMIC_RELAXED));
    return result;
}
static void counted(void *stream, int status, void *of) { (void)stream, (void)status, counts(of); }
static int callback(struct thread *t) {
    unsigned of = slot(t);
    void *stream = stream_of(t, of);
    unsigned *count = new_count();
    int result = CALL("cuStreamAddCallback", (void *, void (*)(void *, int, void *), void *, unsigned))(stream, counted, count, rarely(t));
    int synced = settled(stream);
    snprintf(t->extra, sizeof t->extra, "%d %u", synced, synced ? 0 : __atomic_load_n(count, __ATOMIC_RELAXED));
    return result;
}
/* A value is written before it is waited for in the same stream, and values only rise, so that the
 * wait ends. No other call writes there. */
static int write_and_wait(struct thread *t) {
    unsigned of = slot(t), value = ++t->values, wide = below(t, 2), flags = rarely(t) ? 77 : 0;
    void *stream = stream_of(t, of);
    dptr at = rarely(t) ? t->fixed + STATIC + 1 : t->fixed + STATIC + 8 * of;
    if (captures(stream)) return EMPTY;
    int result = wide ? CALL("cuStreamWriteValue64_v2", (void *, dptr, u64, unsigned))(stream, at, value, 0)
                      : CALL("cuStreamWriteValue32_v2", (void *, dptr, unsigned, unsigned))(stream, at, value, 0);
    if (!result) result = wide ? CALL("cuStreamWaitValue64_v2", (void *, dptr, u64, unsigned))(stream, at, value, flags)
                               : CALL("cuStreamWaitValue32_v2", (void *, dptr, unsigned, unsigned))(stream, at, value, flags);
    int synced = CALL("cuStreamSynchronize", (void *))(stream);
    snprintf(t->extra, sizeof t->extra, "%d", synced);
    return result;
}
static int stream_told(struct thread *t) {
    void *stream = some_stream(t);
    int priority = 9, device = CALL("cuStreamGetPriority", (void *, int *))(stream, &priority);
    u64 id = 0;
    int result = CALL("cuStreamGetId", (void *, u64 *))(stream, &id);
    snprintf(t->extra, sizeof t->extra, "%d %d", device, priority);
    return result;
}
static int stream_attribute(struct thread *t) {
    unsigned char value[64] = {0};
    void *stream = some_stream(t);
    int which = rarely(t) ? 99 : 1 + (int)below(t, 8), get = CALL("cuStreamGetAttribute", (void *, int, void *))(stream, which, value);
    int result = CALL("cuStreamSetAttribute", (void *, int, const void *))(stream, which, value);
    snprintf(t->extra, sizeof t->extra, "%d", get);
    return result;
}
static int stream_copy(struct thread *t) { return CALL("cuStreamCopyAttributes", (void *, void *))(some_stream(t), some_stream(t)); }
static int stream_attach(struct thread *t) {
    unsigned of = USED(t, buffer);
    if (captures(stream_of(t, of))) return EMPTY;
    return CALL("cuStreamAttachMemAsync", (void *, dptr, size_t, unsigned))(stream_of(t, of), t->buffer[of], 0, rarely(t) ? 9 : 1u << below(t, 3));
}
static int event_record_flags(struct thread *t) {
    return CALL("cuEventRecordWithFlags", (void *, void *, unsigned))(some(t, t->event), some_stream(t), rarely(t) ? 77 : below(t, 2));
}
/* A stream is destroyed behind its work, which an event in it still tells. */
static int stream_abandoned(struct thread *t) {
    void *stream = NULL, *event = NULL;
    int result = CALL("cuStreamCreate", (void **, unsigned))(&stream, 1);
    if (!result) result = CALL("cuEventCreate", (void **, unsigned))(&event, 2);
    if (result) return result;
    int set = CALL("cuMemsetD8Async", (dptr, unsigned char, size_t, void *))(t->fixed + 1024, 7, 64, stream);
    int recorded = CALL("cuEventRecord", (void *, void *))(event, stream), destroyed = CALL("cuStreamDestroy_v2", (void *))(stream);
    int done = CALL("cuEventSynchronize", (void *))(event);
    result = CALL("cuEventDestroy_v2", (void *))(event);
    snprintf(t->extra, sizeof t->extra, "%d %d %d %d", set, recorded, destroyed, done);
    return result;
}

/* A second stream joins a capture by an event and comes back by another. `how` leaves steps out. */
static int capture_forked(struct thread *t) {
    void *first = NULL, *second = NULL, *forks = NULL, *joins = NULL, *graph = NULL;
    unsigned how = below(t, 4);
    size_t nodes = 0;
    int made = CALL("cuStreamCreate", (void **, unsigned))(&first, 1);
    if (made) return made; /* The context is lost. */
    must(CALL("cuStreamCreate", (void **, unsigned))(&second, 1), "cuStreamCreate");
    must(CALL("cuEventCreate", (void **, unsigned))(&forks, 2) || CALL("cuEventCreate", (void **, unsigned))(&joins, 2), "cuEventCreate");
    int result = CALL("cuStreamBeginCapture_v2", (void *, int))(first, threads > 1 ? 1 : (int)below(t, 3)), steps[6] = {0};
    steps[0] = CALL("cuEventRecord", (void *, void *))(forks, first);
    if (how != 1) steps[1] = CALL("cuStreamWaitEvent", (void *, void *, unsigned))(second, forks, 0);
    steps[2] = CALL("cuMemsetD8Async", (dptr, unsigned char, size_t, void *))(t->fixed + 2048, 5, 64, how == 1 ? first : second);
    steps[3] = how == 1 ? 0 : CALL("cuEventRecord", (void *, void *))(joins, second);
    if (how > 1) steps[4] = CALL("cuStreamWaitEvent", (void *, void *, unsigned))(first, joins, 0);
    steps[5] = CALL("cuStreamEndCapture", (void *, void **))(first, &graph);
    if (graph) CALL("cuGraphGetNodes", (void *, void **, size_t *))(graph, NULL, &nodes), CALL("cuGraphDestroy", (void *))(graph);
    CALL("cuStreamDestroy_v2", (void *))(first), CALL("cuStreamDestroy_v2", (void *))(second);
    CALL("cuEventDestroy_v2", (void *))(forks), CALL("cuEventDestroy_v2", (void *))(joins);
    snprintf(t->extra, sizeof t->extra, "%d %d %d %d %d %d %zu", steps[0], steps[1], steps[2], steps[3], steps[4], steps[5], nodes);
    return result;
}
static int capture_info(struct thread *t) {
    int status = -1;
    u64 id = 0;
    void *graph = NULL;
    const void **after = NULL;
    size_t count = 0;
    int result = CALL("cuStreamGetCaptureInfo_v2", (void *, int *, u64 *, void **, const void ***, size_t *))(some_stream(t), &status, &id, &graph, &after, &count);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d %d %zu", status, graph != NULL, status == 1 ? count : 0);
    return result;
}
static int capture_into(struct thread *t) {
    void *stream = stream_of(t, slot(t)), *graph = some(t, t->graph), *out = NULL;
    int result = CALL("cuStreamBeginCaptureToGraph", (void *, void *, const void *, const void *, size_t, int))(
        stream, graph, NULL, NULL, 0, threads > 1 ? 1 : rarely(t) ? 9 : (int)below(t, 3));
    if (result) return result;
    int set = CALL("cuMemsetD8Async", (dptr, unsigned char, size_t, void *))(t->fixed, 3, 64, stream);
    int end = CALL("cuStreamEndCapture", (void *, void **))(stream, &out);
    snprintf(t->extra, sizeof t->extra, "%d %d %d", set, end, out == graph);
    return result;
}
static int capture_dependencies(struct thread *t) {
    return CALL("cuStreamUpdateCaptureDependencies", (void *, void *, size_t, unsigned))(some_stream(t), NULL, 0, rarely(t) ? 9 : below(t, 2));
}
