/* Virtual memory. Ranges are 32 MiB. */
static int reserve(struct thread *t) {
    unsigned of = UNUSED(t, range);
    if (t->range[of]) return EMPTY;
    return CALL("cuMemAddressReserve", (dptr *, size_t, size_t, dptr, u64))(&t->range[of], 32 * MIB, 0, 0, rarely(t));
}
static int unreserve(struct thread *t) {
    unsigned of = USED(t, range);
    int result = CALL("cuMemAddressFree", (dptr, size_t))(t->range[of], 32 * MIB);
    if (!result) t->range[of] = 0;
    return result;
}
static int create(struct thread *t) {
    struct prop prop = {rarely(t) ? 7 : 1, (int)(t->random >> 60 & 1), {1, rarely(t) ? 99 : 0}, NULL, {0}};
    size_t bytes = rarely(t) ? 32 * MIB + 512 : 32 * MIB;
    unsigned long long handle = 0;
    unsigned to = UNUSED(t, physical);
    if (t->physical[to]) return EMPTY;
    int result = CALL("cuMemCreate", (unsigned long long *, size_t, const struct prop *, u64))(&handle, bytes, &prop, rarely(t) ? 1 : 0);
    FORCED(t, result, CALL("cuMemRelease", (unsigned long long))(handle));
    if (!result) t->physical[to] = handle;
    return result;
}
static int release(struct thread *t) {
    unsigned of = USED(t, physical);
    int result = CALL("cuMemRelease", (unsigned long long))(t->physical[of]);
    if (!result) t->physical[of] = 0;
    return result;
}
static int map(struct thread *t) {
    unsigned at = USED(t, range), of = USED(t, physical);
    int result = CALL("cuMemMap", (dptr, size_t, size_t, unsigned long long, u64))(t->range[at], 32 * MIB, 0, t->physical[of], rarely(t));
    if (!result) t->mapped[at] = 1;
    return result;
}
static int set_access(struct thread *t) {
    struct access access = {{1, 0}, rarely(t) ? 2 : 3};
    unsigned at = USED(t, range);
    int result = CALL("cuMemSetAccess", (dptr, size_t, const struct access *, size_t))(t->range[at], 32 * MIB, &access, 1);
    if (result || access.flags != 3 || captures(stream_of(t, at))) return result;
    unsigned char copy[64];
    result = CALL("cuMemsetD8Async", (dptr, unsigned char, size_t, void *))(t->range[at], 7, sizeof copy, stream_of(t, at));
    if (!result) result = CALL("cuMemcpyDtoHAsync_v2", (void *, dptr, size_t, void *))(copy, t->range[at], sizeof copy, stream_of(t, at));
    if (!result) result = CALL("cuStreamSynchronize", (void *))(stream_of(t, at));
    if (!result) snprintf(t->extra, sizeof t->extra, "%016llx", (dptr)hash(copy, sizeof copy));
    return result;
}
static int unmap(struct thread *t) {
    unsigned at = USED(t, range);
    int result = CALL("cuMemUnmap", (dptr, size_t))(t->range[at], 32 * MIB);
    if (!result) t->mapped[at] = 0;
    return result;
}
static int retain(struct thread *t) {
    unsigned at = USED(t, range);
    unsigned long long handle = 0;
    int result = CALL("cuMemRetainAllocationHandle", (unsigned long long *, void *))(&handle, (void *)(uintptr_t)t->range[at]);
    if (!result) result = CALL("cuMemRelease", (unsigned long long))(handle);
    return result;
}
static int share_handle(struct thread *t) {
    int file = -1, result = CALL("cuMemExportToShareableHandle", (void *, unsigned long long, int, u64))(&file, t->physical[USED(t, physical)], 1, 0);
    if (result) return result;
    unsigned long long imported = 0;
    result = CALL("cuMemImportFromShareableHandle", (unsigned long long *, void *, int))(&imported, (void *)(uintptr_t)file, 1);
    if (!result) result = CALL("cuMemRelease", (unsigned long long))(imported);
    close(file);
    return result;
}

static int granularity(struct thread *t) {
    struct prop prop = {rarely(t) ? 7 : 1, 0, {1, rarely(t) ? 99 : 0}, NULL, {0}};
    size_t bytes = 0;
    int result = CALL("cuMemGetAllocationGranularity", (size_t *, const struct prop *, int))(&bytes, &prop, rarely(t) ? 9 : (int)below(t, 2));
    if (!result) snprintf(t->extra, sizeof t->extra, "%zu", bytes);
    return result;
}
static int handle_properties(struct thread *t) {
    struct prop prop = {0};
    int result = CALL("cuMemGetAllocationPropertiesFromHandle", (struct prop *, unsigned long long))(&prop, t->physical[USED(t, physical)]);
    if (!result) snprintf(t->extra, sizeof t->extra, "%d %d %d", prop.type, prop.location.type, prop.location.id);
    return result;
}
static int get_access(struct thread *t) {
    struct location location = {1, rarely(t) ? 99 : 0};
    u64 flags = 0;
    int result = CALL("cuMemGetAccess", (u64 *, const struct location *, dptr))(&flags, &location, t->range[USED(t, range)]);
    if (!result) snprintf(t->extra, sizeof t->extra, "%u", (unsigned)flags);
    return result;
}
/* One handle in two places, released while it is mapped: its bytes live as long as either mapping. */
static int map_twice(struct thread *t) {
    void *stream = stream_of(t, slot(t));
    struct prop prop = {1, 0, {1, 0}, NULL, {0}};
    struct access access = {{1, 0}, 3};
    unsigned long long handle = 0;
    dptr range = 0;
    unsigned char bytes[64] = {0};
    if (captures(stream)) return EMPTY;
    int result = CALL("cuMemCreate", (unsigned long long *, size_t, const struct prop *, u64))(&handle, 4 * MIB, &prop, 0);
    FORCED(t, result, CALL("cuMemRelease", (unsigned long long))(handle));
    if (result) return result;
    must(CALL("cuMemAddressReserve", (dptr *, size_t, size_t, dptr, u64))(&range, 8 * MIB, 0, 0, 0), "cuMemAddressReserve");
    int (*at)(dptr, size_t, size_t, unsigned long long, u64) = CALL("cuMemMap", (dptr, size_t, size_t, unsigned long long, u64));
    int first = at(range, 4 * MIB, 0, handle, 0), second = at(range + 4 * MIB, 4 * MIB, 0, handle, 0);
    int released = CALL("cuMemRelease", (unsigned long long))(handle);
    int seen = CALL("cuMemSetAccess", (dptr, size_t, const struct access *, size_t))(range, 8 * MIB, &access, 1);
    int set = CALL("cuMemcpyHtoDAsync_v2", (dptr, const void *, size_t, void *))(range + 64, "the bytes of one are the bytes of the other", 44, stream);
    int got = CALL("cuMemcpyDtoHAsync_v2", (void *, dptr, size_t, void *))(bytes, range + 4 * MIB + 64, 44, stream);
    got |= CALL("cuStreamSynchronize", (void *))(stream);
    int unmapped = CALL("cuMemUnmap", (dptr, size_t))(range, below(t, 2) ? 8 * MIB : 4 * MIB);
    CALL("cuMemUnmap", (dptr, size_t))(range + 4 * MIB, 4 * MIB);
    int freed = CALL("cuMemAddressFree", (dptr, size_t))(range, 8 * MIB);
    snprintf(t->extra, sizeof t->extra, "%d %d %d %d %d %d %d %d %s", first, second, released, seen, set, got, unmapped, freed, bytes);
    return result;
}
