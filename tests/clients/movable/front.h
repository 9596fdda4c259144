/* The program's own mapping directly in front of a slot, and calls about a range of both. */

static dptr front;
static unsigned long long front_handle;

/* Maps 2 MiB whose addresses end where slot I begins, which is allocated after them. */
static int make_front(int i, size_t bytes) {
    struct { int type, id; unsigned flags; } access = {1, 0, 3};
    TRY(CALL("cuMemAddressReserve", (dptr *, size_t, size_t, dptr, unsigned long long))(&front, 2 << 20, 0, 0, 0));
    TRY(CALL("cuMemAlloc_v2", (dptr *, size_t))(&slots[i], bytes));
    sizes[i] = bytes;
    firsts[i] = slots[i];
    TRY(CALL("cuMemCreate", (unsigned long long *, size_t, void *, unsigned long long))(&front_handle, 2 << 20, &memory, 0));
    TRY(CALL("cuMemMap", (dptr, size_t, size_t, unsigned long long, unsigned long long))(front, 2 << 20, 0, front_handle, 0));
    return CALL("cuMemSetAccess", (dptr, size_t, void *, size_t))(front, 2 << 20, &access, 1);
}

/* Calls about a range from there to the end of slot I, or to its middle. */
static void reaches(int i, int to_middle) {
    struct { int type, id; unsigned flags; } none = {1, 0, 0};
    unsigned long long other = 0, exported = 0;
    int attribute[4] = {0};
    size_t whole = (sizes[i] + (2 << 20) - 1) >> 21 << 21, size = (2 << 20) + (to_middle ? whole / 2 >> 21 << 21 : whole);
    CALL("cuMemCreate", (unsigned long long *, size_t, void *, unsigned long long))(&other, size, &memory, 0);
    printf("reaches %d %d %d %d %d %d %d\n", CALL("cuMemSetAccess", (dptr, size_t, void *, size_t))(front, size, &none, 1),
           CALL("cuMemUnmap", (dptr, size_t))(front, size),
           CALL("cuMemMap", (dptr, size_t, size_t, unsigned long long, unsigned long long))(front, size, 0, other, 0),
           CALL("cuMemAddressFree", (dptr, size_t))(front, size),
           CALL("cuMemAdvise", (dptr, size_t, int, int))(front, size, 1, 0),
           CALL("cuMemRangeGetAttribute", (void *, size_t, int, dptr, size_t))(attribute, 4, 1, front, size),
           CALL("cuMemGetHandleForAddressRange", (void *, dptr, size_t, int, unsigned long long))(&exported, front, size, 1, 0));
    CALL("cuMemRelease", (unsigned long long))(other);
}

/* The program's own part alone. */
static int end_front(void) {
    struct { int type, id; unsigned flags; } access = {1, 0, 3};
    TRY(CALL("cuMemSetAccess", (dptr, size_t, void *, size_t))(front, 2 << 20, &access, 1));
    TRY(CALL("cuMemUnmap", (dptr, size_t))(front, 2 << 20));
    TRY(CALL("cuMemRelease", (unsigned long long))(front_handle));
    return CALL("cuMemAddressFree", (dptr, size_t))(front, 2 << 20);
}

/* Batches over managed memory and, unless I is negative, slot I. */
static void discard(int i) {
    static dptr managed;
    struct { int type, id; } place = {1, 0};
    if (!managed) CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(&managed, 2 << 20, 1);
    dptr at[2] = {managed, i < 0 ? 0 : slots[i]};
    size_t size[2] = {2 << 20, i < 0 ? 0 : sizes[i]}, first = 0, count = i < 0 ? 1 : 2;
#define PLACES (dptr *, size_t *, size_t, void *, size_t *, size_t, unsigned long long, void *)
    printf(" %d %d %d", CALL("cuMemPrefetchBatchAsync", PLACES)(at, size, count, &place, &first, 1, 0, stream),
           CALL("cuMemDiscardBatchAsync", (dptr *, size_t *, size_t, unsigned long long, void *))(at, size, count, 0, stream),
           CALL("cuMemDiscardAndPrefetchBatchAsync", PLACES)(at, size, count, &place, &first, 1, 0, stream));
}

static void discards(int i) {
    printf("discards");
    discard(i);
    discard(-1);
    printf("\n");
}

/* The kind of place of a range, or the error below 0. */
static int kind_at(dptr at, size_t size) {
    struct { int type, id; } where = {77, 77};
    int result = CALL("cuMemGetLocationInfo", (dptr, size_t, size_t, size_t, void *))(at, size, size, 0, &where);
    return result ? -result : where.type;
}

/* Of a slot, and of managed memory that was never touched, that is on the device, and that is at home. */
static void lies(int i) {
    static dptr managed;
    size_t size = 4 << 20;
    int kinds[3];
    if (!managed) CALL("cuMemAllocManaged", (dptr *, size_t, unsigned))(&managed, size, 1);
    kinds[0] = kind_at(managed, size);
    for (int device = 0; device >= -1; device--) {
        CALL("cuMemPrefetchAsync", (dptr, size_t, int, void *))(managed, size, device, stream);
        CALL("cuStreamSynchronize", (void *))(stream);
        kinds[1 - device] = kind_at(managed, size);
    }
    printf("lies %d %d %d %d\n", kind_at(slots[i], sizes[i]), kinds[0], kinds[1], kinds[2]);
    CALL("cuMemFree_v2", (dptr))(managed);
    managed = 0;
}
