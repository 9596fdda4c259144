/* Memsets and copies within the device by the driver's names. A synchronous function does not look at
 * the stream, which is passed last. */

/* CUDA_MEMCPY3D_v2, or CUDA_MEMCPY3D_PEER, which has contexts in two reserved places. */
struct end { size_t x, y, z, level; unsigned type; void *host; dptr device; void *array, *context; size_t pitch, height; };
struct box { struct end from, to; size_t width, height, depth; };
/* CUDA_ARRAY_DESCRIPTOR. */
struct array { size_t width, height; int format; unsigned channels; };

static void *arrays[2];

/* One-dimensional arrays of 2 MiB. */
static int make_arrays(void) {
    struct array of = {.width = 131072, .format = 3, .channels = 4};
    for (int i = 0; i < 2 && !arrays[i]; i++)
        TRY(CALL("cuArrayCreate_v2", (void **, const struct array *))(&arrays[i], &of));
    return 0;
}

static int named(const char *name, void *stream, size_t bytes) {
    struct rectangle rows = {.src_type = DEVICE, .src_device = one, .src_pitch = ROW, .dst_type = DEVICE, .dst_device = two,
                             .dst_pitch = ROW, .width = ROW, .height = bytes / ROW};
    struct end from = {.type = DEVICE, .device = one, .pitch = ROW, .height = bytes / ROW / 2}, to = from;
    struct box box = {.width = ROW, .height = from.height, .depth = 2};
    unsigned attributes[6] = {1};
#define HAS(text) (strstr(name, text) != NULL)
    size_t unit = HAS("D16") ? 2 : HAS("D32") ? 4 : 1;
    to.device = two;
    if (HAS("Peer")) from.context = to.context = owner;
    box.from = from;
    box.to = to;
    if (HAS("toA") || HAS("cuMemcpyAto")) TRY(make_arrays());
    if (HAS("cuMemsetD2D"))
        return CALL(name, (dptr, size_t, unsigned, size_t, size_t, void *))(one, ROW, 7, ROW / unit, bytes / ROW, stream);
    if (HAS("cuMemset")) return CALL(name, (dptr, unsigned, size_t, void *))(one, 7, bytes / unit, stream);
    if (HAS("2D")) return CALL(name, (const struct rectangle *, void *))(&rows, stream);
    if (HAS("3D")) return CALL(name, (const struct box *, void *))(&box, stream);
    if (HAS("Peer")) return CALL(name, (dptr, void *, dptr, void *, size_t, void *))(two, owner, one, owner, bytes, stream);
    if (HAS("DtoA")) return CALL(name, (void *, size_t, dptr, size_t))(arrays[0], 0, one, bytes);
    if (HAS("AtoD")) return CALL(name, (dptr, void *, size_t, size_t))(two, arrays[0], 0, bytes);
    if (HAS("AtoA")) return CALL(name, (void *, size_t, void *, size_t, size_t))(arrays[1], 0, arrays[0], 0, bytes);
    if (HAS("With")) return CALL(name, (dptr, dptr, size_t, void *, void *))(two, one, bytes, attributes, stream);
    return CALL(name, (dptr, dptr, size_t, void *))(two, one, bytes, stream);
}
