/* All that a pointer's attributes say, in a form that does not depend on addresses. */

static unsigned long long fact(int attribute, unsigned long long value, int i) {
    switch (attribute) {
    case 1: return (void *)(uintptr_t)value == context;
    case 3: case 11: case 19: return value - slots[i];
    case 7: case 20: return value != 0;
    case 17: return value == 0;
    default: return value;
    }
}

/* Each attribute of the address so many bytes behind slot I: result:value, asked alone and in a list. */
static void facts(int i, size_t offset) {
    static const int wide[22] = {[1] = 1, [3] = 1, [4] = 1, [7] = 1, [11] = 1, [12] = 1, [14] = 1, [17] = 1, [18] = 1, [19] = 1, [20] = 1};
    dptr at = slots[i] + offset, start = 0;
    size_t size = 0;
    printf("facts");
    for (int attribute = 1; attribute <= 21; attribute++) {
        unsigned long long value = 0, listed = 0;
        /* Tokens for peers are another matter. */
        if (attribute == 5) continue;
        void *places[1] = {&listed};
        int result = CALL("cuPointerGetAttribute", (void *, int, dptr))(&value, attribute, at);
        int second = CALL("cuPointerGetAttributes", (unsigned, int *, void **, dptr))(1, &attribute, places, at);
        if (!wide[attribute]) value = (unsigned)value, listed = (unsigned)listed;
        printf(" %d=%d:%lld,%d:%lld", attribute, result, result ? 0 : fact(attribute, value, i), second, second ? 0 : fact(attribute, listed, i));
    }
    int result = CALL("cuMemGetAddressRange_v2", (dptr *, size_t *, dptr))(&start, &size, at);
    printf(" range=%d:%lld,%zu\n", result, result ? 0 : at - start, size);
}
