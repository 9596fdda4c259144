/* CUDA arrays and mipmapped arrays. */
#include "cu.h"

enum { U8 = 1, FLOAT = 32, NV12 = 176 };

static void round_trips(void) {
    start();
    struct array_desc desc = { 300, 50, U8, 4 }, back;
    handle array, other;
    size_t row = 300 * 4;
    unsigned char *in = made(row * 50, 4), *out = calloc(row, 50);
    DO(cuArrayCreate_v2(&array, &desc));
    DO(cuArrayCreate_v2(&other, &desc));
    DO(cuArrayGetDescriptor_v2(&back, array));
    TRUE(back.width == 300 && back.height == 50 && back.format == U8 && back.channels == 4);
    struct copy2d up = { .st = 1, .sh = in, .sp = row, .dt = 3, .da = array, .width = row, .height = 50 };
    DO(cuMemcpy2D_v2(&up));
    struct copy2d across = { .st = 3, .sa = array, .dt = 3, .da = other, .width = row, .height = 50 };
    DO(cuMemcpy2D_v2(&across));
    struct copy2d down = { .st = 3, .sa = other, .dt = 1, .dh = out, .dp = row, .width = row, .height = 50 };
    DO(cuMemcpy2D_v2(&down));
    TRUE(pattern(out, row * 50, 4));
    down.height = 51;
    IS(INVALID_VALUE, cuMemcpy2D_v2(&down));
    DO(cuMemcpyHtoA_v2(array, 8, "12345678", 8));
    DO(cuMemcpyAtoA_v2(other, 16, array, 8, 8));
    DO(cuMemcpyAtoH_v2(out, other, 16, 8));
    TRUE(!memcmp(out, "12345678", 8));
    IS(INVALID_VALUE, cuMemcpyHtoA_v2(array, row - 4, "12345678", 8));
    DO(cuArrayDestroy(array));
    IS(INVALID_HANDLE, cuArrayDestroy(array));
    IS(INVALID_HANDLE, cuMemcpyAtoH_v2(out, array, 0, 8));
    DO(cuArrayDestroy(other));
}

static void descriptors(void) {
    start();
    handle array;
    struct array_desc flat = { 0, 1, U8, 1 };
    IS(INVALID_VALUE, cuArrayCreate_v2(&array, &flat));
    flat = (struct array_desc){ 10, 10, U8, 3 };
    IS(INVALID_VALUE, cuArrayCreate_v2(&array, &flat));
    flat = (struct array_desc){ 10, 10, 77, 1 };
    IS(INVALID_VALUE, cuArrayCreate_v2(&array, &flat));
    struct array3d_desc deep = { 64, 64, 6, FLOAT, 1, 4 };
    DO(cuArray3DCreate_v2(&array, &deep)); /* a cube map */
    DO(cuArrayDestroy(array));
    deep.depth = 5;
    IS(INVALID_VALUE, cuArray3DCreate_v2(&array, &deep));
    deep = (struct array3d_desc){ 64, 64, 64, FLOAT, 1, 0x40 };
    IS(NOT_SUPPORTED, cuArray3DCreate_v2(&array, &deep)); /* sparse */
    deep = (struct array3d_desc){ 64, 64, 0, NV12, 3, 0 };
    DO(cuArray3DCreate_v2(&array, &deep));
    DO(cuArrayDestroy(array));
}

static void exhaustion(void) {
    start();
    size_t before = settled();
    static handle all[65536];
    const struct array3d_desc kinds[] = { { 100, 0, 0, FLOAT, 4, 0 }, { 500, 300, 0, U8, 1, 0 }, { 128, 128, 128, FLOAT, 1, 0 } };
    for (int round = 0; round < 2; round++)
        for (size_t kind = 0; kind < 3; kind++) {
            int count = 0;
            result last = OK;
            while (count < 60000 && (last = cuArray3DCreate_v2(&all[count], &kinds[kind])) == OK)
                count++;
            TRUE(count == 60000 || last == OUT_OF_MEMORY);
            while (count)
                DO(cuArrayDestroy(all[--count]));
            TRUE(settled() + 2 * MIB >= before);
        }
}

static void mipmaps(void) {
    start();
    size_t before = settled();
    struct array3d_desc desc = { 1024, 1024, 0, FLOAT, 1, 0 };
    struct array_desc back;
    handle mipmap, level;
    char out[16];
    DO(cuMipmappedArrayCreate(&mipmap, &desc, 0)); /* the number is clamped */
    DO(cuMipmappedArrayGetLevel(&level, mipmap, 0));
    IS(INVALID_VALUE, cuMipmappedArrayGetLevel(&level, mipmap, 1));
    DO(cuMipmappedArrayDestroy(mipmap));
    DO(cuMipmappedArrayCreate(&mipmap, &desc, 100));
    TRUE(settled() <= before - 4 * MIB - MIB);
    DO(cuMipmappedArrayGetLevel(&level, mipmap, 10));
    DO(cuArrayGetDescriptor_v2(&back, level));
    TRUE(back.width == 1 && back.height == 1);
    IS(INVALID_VALUE, cuMipmappedArrayGetLevel(&level, mipmap, 11));
    DO(cuMipmappedArrayGetLevel(&level, mipmap, 3));
    DO(cuArrayGetDescriptor_v2(&back, level));
    TRUE(back.width == 128 && back.height == 128);
    DO(cuMemcpyHtoA_v2(level, 16, "sixteen letters", 16));
    DO(cuMemcpyAtoH_v2(out, level, 16, 16));
    TRUE(!memcmp(out, "sixteen letters", 16));
    IS(INVALID_VALUE, cuArrayDestroy(level));
    DO(cuMipmappedArrayDestroy(mipmap));
    IS(INVALID_HANDLE, cuMipmappedArrayDestroy(mipmap));
    IS(INVALID_HANDLE, cuArrayGetDescriptor_v2(&back, level));
    TRUE(settled() == before);
}

TESTS(T(round_trips), T(descriptors), T(exhaustion), T(mipmaps))
