/* What the driver says of each allocation, and of addresses beside it. */
static void at(int i, size_t offset) {
    dptr where = slots[i] + offset, base = where, start = where;
    size_t size = 0, length = 0;
    int list[3] = {12, 11, 1};
    void *of = NULL, *places[3] = {&length, &start, &of};
    int (*ask)(void *, int, dptr) = (int (*)(void *, int, dptr))symbol("cuPointerGetAttribute");
    int one = CALL("cuMemGetAddressRange_v2", (dptr *, size_t *, dptr))(&base, &size, where);
    int two = ask(&start, 11, where);
    int three = CALL("cuPointerGetAttributes", (unsigned, int *, void **, dptr))(3, list, places, where);
    printf("at %llu %zu %d %d %d %llu %zu %d\n", where - base, size, one, two, three, start ? where - start : 0, length,
           of == context);
}

static unsigned long long number(int i) {
    unsigned long long one = 0, two = 0;
    size_t size = 0;
    int list[2] = {12, 7};
    void *places[2] = {&size, &two};
    dptr last = slots[i] + sizes[i] - 1;
    CALL("cuPointerGetAttribute", (void *, int, dptr))(&one, 7, last);
    CALL("cuPointerGetAttributes", (unsigned, int *, void **, dptr))(2, list, places, last);
    return one == two ? one : 0;
}

static int pitch(int i, size_t width, size_t height, unsigned element, size_t *pitch_of) {
    int result = CALL("cuMemAllocPitch_v2", (dptr *, size_t *, size_t, size_t, unsigned))(&slots[i], pitch_of, width, height, element);
    if (!result) {
        sizes[i] = *pitch_of * height;
        firsts[i] = slots[i];
    }
    return result;
}
