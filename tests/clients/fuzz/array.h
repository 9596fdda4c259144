/* Arrays. */
static int array_create(struct thread *t) {
    static const int formats[] = {1, 2, 3, 16, 32, 32, 77, 0};
    static const unsigned channels[] = {1, 2, 4, 1, 1, 3, 0, 1};
    struct array2d flat = {1 + below(t, 4000), below(t, 4000), formats[below(t, 8)], channels[below(t, 8)]};
    struct array3d deep = {1 + below(t, 400), below(t, 200), below(t, 100), flat.format, flat.channels, rarely(t) ? 1u << below(t, 31) : 0};
    unsigned to = UNUSED(t, array);
    void *array = NULL;
    if (rarely(t)) flat.width <<= 30, deep.depth <<= 30;
    if (t->array[to]) return EMPTY;
    int result = below(t, 2) ? CALL("cuArrayCreate_v2", (void **, const struct array2d *))(&array, &flat)
                             : CALL("cuArray3DCreate_v2", (void **, const struct array3d *))(&array, &deep);
    FORCED(t, result, CALL("cuArrayDestroy", (void *))(array));
    if (!result) t->array[to] = array;
    return result;
}
static int array_destroy(struct thread *t) {
    unsigned of = USED(t, array);
    void *array = rarely(t) ? garbage() : t->array[of];
    int result = CALL("cuArrayDestroy", (void *))(array);
    if (!result) t->array[of] = NULL;
    return result;
}
static int array_describe(struct thread *t) {
    struct array3d says = {0};
    int result = CALL("cuArray3DGetDescriptor_v2", (struct array3d *, void *))(&says, some(t, t->array));
    if (!result) snprintf(t->extra, sizeof t->extra, "%zu %zu %zu %d %u %u", says.width, says.height, says.depth, says.format, says.channels, says.flags);
    return result;
}
static int mipmap_create(struct thread *t) {
    struct array3d descriptor = {1 + below(t, 3000), 1 + below(t, 3000), 0, rarely(t) ? 77 : 32, rarely(t) ? 3 : 1, 0};
    unsigned to = UNUSED(t, mipmap), levels = below(t, 12);
    void *mipmap = NULL;
    if (t->mipmap[to]) return EMPTY;
    int result = CALL("cuMipmappedArrayCreate", (void **, const struct array3d *, unsigned))(&mipmap, &descriptor, levels);
    FORCED(t, result, CALL("cuMipmappedArrayDestroy", (void *))(mipmap));
    if (!result) t->mipmap[to] = mipmap;
    return result;
}
static int mipmap_level(struct thread *t) {
    void *level;
    return CALL("cuMipmappedArrayGetLevel", (void **, void *, unsigned))(&level, some(t, t->mipmap), below(t, 12));
}
static int mipmap_destroy(struct thread *t) {
    unsigned of = USED(t, mipmap);
    int result = CALL("cuMipmappedArrayDestroy", (void *))(t->mipmap[of]);
    if (!result) t->mipmap[of] = NULL;
    return result;
}

static int array_plain(struct thread *t) {
    static const int formats[] = {1, 2, 3, 32};
    struct array2d flat = {1 + below(t, 2000), 1 + below(t, 2000), formats[below(t, 4)], 1u << below(t, 3)};
    unsigned to = UNUSED(t, array);
    void *array = NULL;
    if (t->array[to]) return EMPTY;
    int result = CALL("cuArrayCreate_v2", (void **, const struct array2d *))(&array, &flat);
    FORCED(t, result, CALL("cuArrayDestroy", (void *))(array));
    if (!result) t->array[to] = array;
    return result;
}
/* Bytes go into a flat array and come back. */
static int array_contents(struct thread *t) {
    struct array3d says = {0};
    unsigned of = USED(t, array), value = below(t, 256);
    void *stream = stream_of(t, of);
    unsigned char bytes[1024];
    if (!t->array[of] || CALL("cuArray3DGetDescriptor_v2", (struct array3d *, void *))(&says, t->array[of])) return EMPTY;
    size_t element = (says.format == 1 || says.format == 8 ? 1 : says.format == 32 || says.format == 3 || says.format == 10 ? 4 : 2) * says.channels;
    size_t width = says.width * element < 64 ? says.width * element : 64, height = says.height < 16 ? says.height : 16;
    if (says.depth || says.flags || captures(stream)) return EMPTY;
    height += !height;
    memset(bytes, (int)value, sizeof bytes);
    struct copy2d up = {.st = 1, .sh = bytes, .sp = 64, .dt = 3, .da = t->array[of], .width = width, .height = height};
    struct copy2d down = {.st = 3, .sa = t->array[of], .dt = 1, .dh = bytes, .dp = 64, .width = width, .height = height};
    if (rarely(t)) up.dx = says.width * element;
    int result = CALL("cuMemcpy2DAsync_v2", (const struct copy2d *, void *))(&up, stream);
    if (!result) result = CALL("cuStreamSynchronize", (void *))(stream);
    memset(bytes, 0, sizeof bytes);
    if (!result) result = CALL("cuMemcpy2DAsync_v2", (const struct copy2d *, void *))(&down, stream);
    if (!result) result = CALL("cuStreamSynchronize", (void *))(stream);
    if (!result) snprintf(t->extra, sizeof t->extra, "%016llx", (dptr)hash(bytes, sizeof bytes));
    return result;
}
static int array_row(struct thread *t) {
    unsigned char bytes[64] = {7};
    unsigned of = USED(t, array);
    size_t count = 1 + below(t, 64);
    int up = CALL("cuMemcpyHtoA_v2", (void *, size_t, const void *, size_t))(t->array[of], rarely(t) ? 3 : 0, bytes, count);
    int result = CALL("cuMemcpyAtoH_v2", (void *, void *, size_t, size_t))(bytes, t->array[of], 0, count);
    snprintf(t->extra, sizeof t->extra, "%d", up);
    return result;
}
static int array_needs(struct thread *t) {
    struct { size_t size, alignment; unsigned rest[4]; } needs = {0};
    int result = CALL("cuArrayGetMemoryRequirements", (void *, void *, int))(&needs, some(t, t->array), rarely(t) ? 99 : 0);
    if (!result) snprintf(t->extra, sizeof t->extra, "%zu %zu", needs.size, needs.alignment);
    return result;
}
