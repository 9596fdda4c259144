/* Fills and checks device memory a piece at a time, through buffers that each thread keeps: fresh pages for all bytes of an
 * allocation cost more than its copies. Included after driver.h. */
enum { PIECE = 4 << 20 };

static __thread unsigned char *piece, *right_piece;

static void own_pieces(void) {
    if (!piece) piece = malloc(PIECE);
    if (!right_piece) right_piece = malloc(PIECE);
    if (!piece || !right_piece) exit(2);
}

/* Every eighth byte differs by its place, so that pieces in a wrong order show. FROM is a multiple of eight. */
static void pattern(unsigned char *bytes, size_t from, size_t count, uint64_t seed) {
    uint64_t word = (seed + 1) * 0x9E3779B97F4A7C15ull + from;
    size_t whole = count / 8 * 8;
    for (size_t i = 0; i < whole; i += 8, word += 8) memcpy(bytes + i, &word, 8);
    memcpy(bytes + whole, &word, count - whole);
}

static int fill_bytes(unsigned long long at, size_t count, uint64_t seed) {
    own_pieces();
    for (size_t done = 0; done < count; done += PIECE) {
        size_t some = count - done < PIECE ? count - done : PIECE;
        pattern(piece, done, some, seed);
        TRY(CALL("cuMemcpyHtoD_v2", (unsigned long long, const void *, size_t))(at + done, piece, some));
    }
    /* The copies may end later, and other streams do not wait for them. */
    return CALL("cuStreamSynchronize", (void *))(NULL);
}

/* Bytes that differ from the pattern, or with `value` from 32-bit values. */
static long check_bytes(unsigned long long at, size_t count, uint64_t seed, const uint32_t *value, int *error) {
    long wrong = 0;
    own_pieces();
    *error = 0;
    for (size_t done = 0; done < count && !*error; done += PIECE) {
        size_t some = count - done < PIECE ? count - done : PIECE;
        if (value) for (size_t i = 0; i + 4 <= some; i += 4) memcpy(right_piece + i, value, 4);
        else pattern(right_piece, done, some, seed);
        /* A copy that brings nothing shows. */
        for (size_t i = 0; i < some; i += 4096) piece[i] = ~right_piece[i];
        *error = CALL("cuMemcpyDtoH_v2", (void *, unsigned long long, size_t))(piece, at + done, some);
        if (!*error && memcmp(piece, right_piece, some)) for (size_t i = 0; i < some; i++) wrong += piece[i] != right_piece[i];
    }
    return wrong;
}
