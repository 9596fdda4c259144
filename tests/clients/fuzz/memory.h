/* Linear and pinned memory, copies and memsets. Contents are read back and hashed. */
static int mem_free(dptr at) { return CALL("cuMemFree_v2", (dptr))(at); }

static int keep_buffer(struct thread *t, int result, dptr at, size_t bytes) {
    unsigned to = UNUSED(t, buffer);
    FORCED(t, result, mem_free(at));
    if (result) return result;
    if (t->buffer[to]) mem_free(t->buffer[to]);
    t->buffer[to] = at, t->bytes[to] = bytes, t->known[to] = 0;
    return 0;
}

static int alloc(struct thread *t) {
    dptr at = 0;
    size_t bytes = some_bytes(t);
    int result = CALL("cuMemAlloc_v2", (dptr *, size_t))(rarely(t) && below(t, 2) ? NULL : &at, bytes);
    return keep_buffer(t, result, at, bytes);
}
static int alloc_pitch(struct thread *t) {
    static const unsigned elements[] = {4, 8, 16, 4, 3, 0};
    dptr at = 0;
    size_t pitch = 0, width = 1 + below(t, 5000), height = 1 + below(t, 4000);
    int result = CALL("cuMemAllocPitch_v2", (dptr *, size_t *, size_t, size_t, unsigned))(&at, &pitch, width, height, elements[below(t, 6)]);
    if (!result) snprintf(t->extra, sizeof t->extra, "%zu", pitch);
    if (t->forced) *t->extra = 0;
    return keep_buffer(t, result, at, pitch * height);
}
static int alloc_managed(struct thread *t) {
    static const unsigned flags[] = {1, 2, 1, 1, 77, 0};
    dptr at = 0;
    size_t bytes = some_bytes(t);
    int result = CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(&at, bytes, flags[below(t, 6)]);
    return keep_buffer(t, result, at, bytes);
}
static int free_buffer(struct thread *t) {
    unsigned of = USED(t, buffer);
    dptr at = rarely(t) ? t->buffer[of] + 1 : t->buffer[of];
    int result = mem_free(at);
    if (!result && at == t->buffer[of]) t->buffer[of] = 0, t->known[of] = 0;
    return result;
}
static int fill_buffer(struct thread *t) {
    unsigned of = USED(t, buffer), value = below(t, 256);
    if (!t->buffer[of] || captures(stream_of(t, of))) return EMPTY;
    int result = CALL("cuMemsetD8Async", (dptr, unsigned char, size_t, void *))(t->buffer[of], value, t->bytes[of], stream_of(t, of));
    if (!result) t->known[of] = 1;
    return result;
}
static int read_buffer(struct thread *t) {
    unsigned of = slot(t);
    for (unsigned i = 0; i < SLOTS && !t->known[of]; i++) of = (of + 1) % SLOTS;
    if (!t->buffer[of] || !t->known[of] || captures(stream_of(t, of))) return EMPTY;
    size_t bytes = t->bytes[of] < MIB ? t->bytes[of] : MIB;
    unsigned char *copy = malloc(bytes + 1);
    if (!copy) exit(2);
    int result = CALL("cuMemcpyDtoHAsync_v2", (void *, dptr, size_t, void *))(copy, t->buffer[of] + t->bytes[of] - bytes, bytes, stream_of(t, of));
    if (!result) result = CALL("cuStreamSynchronize", (void *))(stream_of(t, of));
    if (!result) snprintf(t->extra, sizeof t->extra, "%zu %016llx", bytes, (dptr)hash(copy, bytes));
    free(copy);
    return result;
}
static int write_buffer(struct thread *t) {
    unsigned char bytes[64];
    unsigned of = USED(t, buffer);
    memset(bytes, below(t, 256), sizeof bytes);
    if (!t->buffer[of] || t->bytes[of] < sizeof bytes || captures(stream_of(t, of))) return EMPTY;
    return CALL("cuMemcpyHtoDAsync_v2", (dptr, const void *, size_t, void *))(t->buffer[of], bytes, sizeof bytes, stream_of(t, of));
}
static int address_range(struct thread *t) {
    dptr base = 0;
    size_t bytes = 0;
    unsigned of = USED(t, buffer);
    int result = CALL("cuMemGetAddressRange_v2", (dptr *, size_t *, dptr))(&base, &bytes, t->buffer[of]);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d %zu", base == t->buffer[of], bytes);
    return result;
}
static int pointer_attribute(struct thread *t) {
    u64 value = 0;
    unsigned of = USED(t, buffer), which = below(t, 2) ? 2 : 8; /* memory type, managed */
    int result = CALL("cuPointerGetAttribute", (void *, int, dptr))(&value, which, t->buffer[of]);
    if (!result) snprintf(t->extra, sizeof t->extra, "%u", (unsigned)value);
    return result;
}
static int get_info(struct thread *t) {
    size_t left, all;
    int result = CALL("cuMemGetInfo_v2", (size_t *, size_t *))(&left, &all);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d", left <= all);
    return result;
}
static int host_alloc(struct thread *t) {
    unsigned of = UNUSED(t, host);
    if (t->host[of]) return EMPTY;
    return CALL("cuMemHostAlloc", (void **, size_t, unsigned))(&t->host[of], 1 + below(t, 100000), rarely(t) ? 77 : below(t, 4));
}
static int host_free(struct thread *t) {
    unsigned of = USED(t, host);
    int result = CALL("cuMemFreeHost", (void *))(t->host[of]);
    if (!result) t->host[of] = NULL;
    return result;
}

/* Copies wait for both slots' streams, because the order of streams is not what is compared. */
static int copy_buffer(struct thread *t) {
    unsigned from = USED(t, buffer), to = USED(t, buffer), way = below(t, threads > 1 ? 2 : 4);
    if (!t->buffer[from] || !t->buffer[to] || from == to) return EMPTY;
    if (settled(stream_of(t, from)) || settled(stream_of(t, to))) return EMPTY;
    size_t bytes = t->bytes[from] < t->bytes[to] ? t->bytes[from] : t->bytes[to];
    dptr source = way < 3 && way != 1 && rarely(t) ? 64 : t->buffer[from];
    int result = way == 2 ? CALL("cuMemcpyDtoD_v2", (dptr, dptr, size_t))(t->buffer[to], source, bytes)
               : way == 3 ? CALL("cuMemcpy", (dptr, dptr, size_t))(t->buffer[to], source, bytes)
               : way == 1 ? CALL("cuMemcpyAsync", (dptr, dptr, size_t, void *))(t->buffer[to], source, bytes, stream_of(t, to))
                          : CALL("cuMemcpyDtoDAsync_v2", (dptr, dptr, size_t, void *))(t->buffer[to], source, bytes, stream_of(t, to));
    if (!result) result = CALL("cuStreamSynchronize", (void *))(way > 1 ? NULL : stream_of(t, to));
    t->known[to] = t->known[to] && t->known[from] && !result;
    return result;
}
static int copy_2d(struct thread *t) {
    unsigned char bytes[64 * 16];
    unsigned of = USED(t, buffer), wrong = rarely(t) ? below(t, 5) : 5;
    if (!t->buffer[of] || t->bytes[of] < 128 * 16 || settled(stream_of(t, of))) return EMPTY;
    for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7);
    struct copy2d up = {.st = 1, .sh = bytes, .sp = 64, .dt = 2, .dd = t->buffer[of], .dp = 128, .width = 64, .height = 16};
    struct copy2d down = {.st = 2, .sd = t->buffer[of], .sp = 128, .dt = 1, .dh = bytes, .dp = 64, .width = 64, .height = 16};
    if (wrong == 0) up.dp = 63;
    if (wrong == 1) up.st = 9;
    if (wrong == 2) up.sh = NULL;
    if (wrong == 3) up.height = 0;
    int result = CALL("cuMemcpy2DAsync_v2", (const struct copy2d *, void *))(wrong == 4 ? NULL : &up, stream_of(t, of));
    memset(bytes, 0, sizeof bytes);
    if (!result && wrong != 3) result = CALL("cuMemcpy2DAsync_v2", (const struct copy2d *, void *))(&down, stream_of(t, of));
    if (!result) result = CALL("cuStreamSynchronize", (void *))(stream_of(t, of));
    if (!result) snprintf(t->extra, sizeof t->extra, "%016llx", (dptr)hash(bytes, sizeof bytes));
    t->known[of] = 0;
    return result;
}
static int set_words(struct thread *t) {
    unsigned of = USED(t, buffer), way = below(t, 4), odd = rarely(t);
    void *stream = stream_of(t, of);
    dptr at = t->buffer[of] + odd;
    if (!t->buffer[of] || t->bytes[of] < 4096 || captures(stream)) return EMPTY;
    t->known[of] = 0;
    return way == 0 ? CALL("cuMemsetD16Async", (dptr, unsigned short, size_t, void *))(at, 3, 100, stream)
         : way == 1 ? CALL("cuMemsetD32Async", (dptr, unsigned, size_t, void *))(at, 3, 100, stream)
         : way == 2 ? CALL("cuMemsetD2D8Async", (dptr, size_t, unsigned char, size_t, size_t, void *))(at, odd ? 1 : 64, 3, 32, 4, stream)
                    : CALL("cuMemsetD2D32Async", (dptr, size_t, unsigned, size_t, size_t, void *))(at, 256, 3, rarely(t) ? 0 : 32, 4, stream);
}
static int host_register(struct thread *t) {
    size_t bytes = 1 + below(t, 100000);
    if (t->registered) return EMPTY;
    void *at = mmap(NULL, 128 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) exit(2);
    int result = CALL("cuMemHostRegister_v2", (void *, size_t, unsigned))(rarely(t) ? NULL : at, bytes, rarely(t) ? 1 << 20 : 0);
    if (result) munmap(at, 128 << 10);
    else t->registered = at;
    return result;
}
static int host_unregister(struct thread *t) {
    int result = CALL("cuMemHostUnregister", (void *))(rarely(t) ? garbage() : t->registered);
    if (!result) munmap(t->registered, 128 << 10), t->registered = NULL;
    return result;
}
static int host_told(struct thread *t) {
    unsigned of = USED(t, host), flags = 0;
    dptr at = 0;
    int result = CALL("cuMemHostGetFlags", (unsigned *, void *))(&flags, t->host[of]);
    int mapped = CALL("cuMemHostGetDevicePointer_v2", (dptr *, void *, unsigned))(&at, t->host[of], rarely(t));
    snprintf(t->extra, sizeof t->extra, "%u %d %d", flags, mapped, mapped ? 0 : at == (dptr)(uintptr_t)t->host[of]);
    return result;
}
static int pointer_attributes(struct thread *t) {
    int attributes[] = {2, 8, 9, rarely(t) ? 99 : 13}, ordinal = -1, mapped = -1;
    unsigned type = 0, managed = 0, of = USED(t, buffer);
    void *data[] = {&type, &managed, &ordinal, &mapped};
    int result = CALL("cuPointerGetAttributes", (unsigned, int *, void **, dptr))(rarely(t) ? 0 : 4, attributes, data, t->buffer[of]);
    if (!result) snprintf(t->extra, sizeof t->extra, "%u %u %d", type, managed & 1, ordinal);
    return result;
}
static int set_pointer_attribute(struct thread *t) {
    unsigned on = 1;
    return CALL("cuPointerSetAttribute", (const void *, int, dptr))(&on, rarely(t) ? 99 : 6, t->buffer[USED(t, buffer)]);
}
static int advise(struct thread *t) {
    unsigned of = USED(t, buffer), what = rarely(t) ? 99 : 1 + below(t, 6);
    return CALL("cuMemAdvise", (dptr, size_t, int, int))(t->buffer[of], t->bytes[of], (int)what, rarely(t) ? 99 : 0);
}
static int prefetch(struct thread *t) {
    unsigned of = USED(t, buffer);
    if (captures(stream_of(t, of))) return EMPTY;
    return CALL("cuMemPrefetchAsync", (dptr, size_t, int, void *))(t->buffer[of], t->bytes[of], rarely(t) ? 99 : (int)below(t, 2) - 1, stream_of(t, of));
}
static int range_attribute(struct thread *t) {
    unsigned of = USED(t, buffer);
    int value = 0, result = CALL("cuMemRangeGetAttribute", (void *, size_t, int, dptr, size_t))(&value, rarely(t) ? 3 : 4, 1, t->buffer[of], t->bytes[of]);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d", value);
    return result;
}
