/* Contexts: those made are pushed and popped again; the primary one stays. */
static int context_create(struct thread *t) {
    unsigned to = UNUSED(t, context);
    void *popped;
    if (t->context[to]) return EMPTY;
    int result = CALL("cuCtxCreate_v2", (void **, unsigned, int))(&t->context[to], rarely(t) ? 0x4000 : 0, rarely(t) ? 99 : 0);
    if (!result) result = CALL("cuCtxPopCurrent_v2", (void **))(&popped);
    if (!result && t->forced) CALL("cuCtxDestroy_v2", (void *))(t->context[to]), t->context[to] = NULL, result = OUT_OF_MEMORY;
    return result;
}
static int context_use(struct thread *t) {
    dptr at = 0;
    unsigned of = USED(t, context);
    void *popped = NULL;
    if (!t->context[of]) return EMPTY;
    int result = CALL("cuCtxPushCurrent_v2", (void *))(t->context[of]);
    if (result) return result;
    result = CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, some_bytes(t));
    if (!result) mem_free(at);
    int pop = CALL("cuCtxPopCurrent_v2", (void **))(&popped);
    snprintf(t->extra, sizeof t->extra, "%d %d", pop, popped == t->context[of]);
    return t->forced && !result ? OUT_OF_MEMORY : result;
}
static int context_destroy(struct thread *t) {
    unsigned of = USED(t, context);
    if (!t->context[of]) return EMPTY;
    int result = CALL("cuCtxDestroy_v2", (void *))(t->context[of]);
    t->context[of] = NULL;
    return result;
}
static int context_sync(struct thread *t) { return (void)t, CALL("cuCtxSynchronize", (void))(); }
static int context_device(struct thread *t) {
    int device = -1, result = CALL("cuCtxGetDevice", (int *))(&device);
    snprintf(t->extra, sizeof t->extra, "%d", device);
    return result;
}
static int context_none(struct thread *t) {
    void *popped = NULL;
    dptr at = 0;
    int result = CALL("cuCtxPopCurrent_v2", (void **))(&popped);
    int without = CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, some_bytes(t));
    snprintf(t->extra, sizeof t->extra, "%d %d", without, popped == primary);
    int back = CALL("cuCtxPushCurrent_v2", (void *))(popped);
    return result ? result : back;
}
static int primary_again(struct thread *t) {
    void *context = NULL;
    int result = CALL("cuDevicePrimaryCtxRetain", (void **, int))(&context, 0);
    snprintf(t->extra, sizeof t->extra, "%d", context == primary);
    return result ? result : CALL("cuDevicePrimaryCtxRelease_v2", (int))(0);
}

/* Memory that only the end of its context frees. */
static int context_fill(struct thread *t) {
    dptr at = 0;
    unsigned of = USED(t, context);
    void *popped = NULL;
    if (!t->context[of]) return EMPTY;
    int result = CALL("cuCtxPushCurrent_v2", (void *))(t->context[of]);
    if (result) return result;
    result = CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, 1 + below(t, 12 * MIB));
    if (!result && t->forced) mem_free(at), result = OUT_OF_MEMORY;
    else if (!result) result = CALL("cuMemsetD8Async", (dptr, unsigned char, size_t, void *))(at, 1, 1, NULL);
    must(CALL("cuCtxPopCurrent_v2", (void **))(&popped), "cuCtxPopCurrent");
    return result;
}
static int context_limit(struct thread *t) {
    size_t value = 0;
    int which = rarely(t) ? 99 : (int)below(t, 3), get = CALL("cuCtxGetLimit", (size_t *, int))(&value, which);
    snprintf(t->extra, sizeof t->extra, "%d %zu", get, value);
    return CALL("cuCtxSetLimit", (int, size_t))(which, value);
}
static int context_told(struct thread *t) {
    unsigned version = 0, flags = 0;
    int least = 9, greatest = 9, cache = 9, of = USED(t, context), result = CALL("cuCtxGetApiVersion", (void *, unsigned *))(rarely(t) ? garbage() : t->context[of], &version);
    int flagged = CALL("cuCtxGetFlags", (unsigned *))(&flags), ranged = CALL("cuCtxGetStreamPriorityRange", (int *, int *))(&least, &greatest);
    int cached = CALL("cuCtxGetCacheConfig", (int *))(&cache);
    snprintf(t->extra, sizeof t->extra, "%u %d %u %d %d %d %d %d", version, flagged, flags, ranged, least, greatest, cached, cache);
    return result;
}
static int context_set(struct thread *t) {
    void *now = NULL;
    unsigned of = USED(t, context);
    int result = CALL("cuCtxSetCurrent", (void *))(rarely(t) ? garbage() : t->context[of]);
    int got = CALL("cuCtxGetCurrent", (void **))(&now);
    snprintf(t->extra, sizeof t->extra, "%d %d %d", got, now == primary, now == t->context[of]);
    must(CALL("cuCtxSetCurrent", (void *))(primary), "cuCtxSetCurrent");
    return result;
}
static int primary_state(struct thread *t) {
    unsigned flags = 0;
    int active = 9, result = CALL("cuDevicePrimaryCtxGetState", (int, unsigned *, int *))(rarely(t) ? 99 : 0, &flags, &active);
    int set = CALL("cuDevicePrimaryCtxSetFlags_v2", (int, unsigned))(0, rarely(t) ? 99 : flags);
    snprintf(t->extra, sizeof t->extra, "%u %d %d", flags, active, set);
    return result;
}
static int device_told(struct thread *t) {
    int value = 0, which = (int)below(t, 140), device = rarely(t) ? 99 : 0, result = CALL("cuDeviceGetAttribute", (int *, int, int))(&value, which, device);
    char name[64] = "", uuid[16];
    size_t total = 0;
    int named = CALL("cuDeviceGetName", (char *, int, int))(name, 64, device), known = CALL("cuDeviceGetUuid_v2", (void *, int))(uuid, device);
    int sized = CALL("cuDeviceTotalMem_v2", (size_t *, int))(&total, device), peer = 9, peers = CALL("cuDeviceCanAccessPeer", (int *, int, int))(&peer, 0, device);
    snprintf(t->extra, sizeof t->extra, "%d %d %s %d %d %d %d", result ? 0 : value, named, name, known, sized, peers, peer);
    return result;
}
static int error_told(struct thread *t) {
    const char *name = NULL, *text = NULL;
    unsigned code = below(t, 1000);
    int result = CALL("cuGetErrorName", (int, const char **))((int)code, &name), told = CALL("cuGetErrorString", (int, const char **))((int)code, &text);
    snprintf(t->extra, sizeof t->extra, "%s %d %s", name ? name : "-", told, text ? text : "-");
    return result;
}
/* A part of the device: memory, work and its end. */
static int green(struct thread *t) {
    unsigned char whole[144] = {0}, part[144] = {0};
    unsigned groups = 1, order = below(t, 2);
    void *desc = NULL, *ctx = NULL, *context = NULL, *stream = NULL, *popped = NULL;
    dptr at = 0;
    int result = CALL("cuDeviceGetDevResource", (int, void *, int))(0, whole, 1);
    if (!result) result = CALL("cuDevSmResourceSplitByCount", (void *, unsigned *, const void *, void *, unsigned, unsigned))(part, &groups, whole, NULL, 0, 1 + below(t, 200));
    if (!result) result = CALL("cuDevResourceGenerateDesc", (void **, void *, unsigned))(&desc, part, 1);
    if (!result) result = CALL("cuGreenCtxCreate", (void **, void *, int, unsigned))(&ctx, desc, 0, rarely(t) ? 0 : 1);
    if (result) return result;
    int named = CALL("cuCtxFromGreenCtx", (void **, void *))(&context, ctx), made = CALL("cuGreenCtxStreamCreate", (void **, void *, unsigned, int))(&stream, ctx, 1, 0);
    int pushed = CALL("cuCtxPushCurrent_v2", (void *))(context), took = CALL("cuMemAlloc_v2", (dptr *, size_t))(&at, 1 * MIB);
    int set = took ? 0 : CALL("cuMemsetD8Async", (dptr, unsigned char, size_t, void *))(at, 4, 64, stream);
    int synced = CALL("cuStreamSynchronize", (void *))(stream), freed = took ? 0 : mem_free(at);
    int pop = CALL("cuCtxPopCurrent_v2", (void **))(&popped);
    if (order) CALL("cuStreamDestroy_v2", (void *))(stream);
    int ended = CALL("cuGreenCtxDestroy", (void *))(ctx);
    if (!order) CALL("cuStreamDestroy_v2", (void *))(stream);
    if (took == OUT_OF_MEMORY || t->forced) return OUT_OF_MEMORY;
    snprintf(t->extra, sizeof t->extra, "%d %d %d %d %d %d %d %d %d", named, made, pushed, took, set, synced, freed, pop, ended);
    return result;
}
