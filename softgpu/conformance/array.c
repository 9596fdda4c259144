// CUDA arrays, mipmapped arrays, texture objects.
#include "facts.h"

struct flat { size_t width, height; int format; unsigned channels; };
struct deep { size_t width, height, depth; int format; unsigned channels, flags; };
struct copy2d {
    size_t sx, sy; int st; const void *sh; address sd; handle sa; size_t sp;
    size_t dx, dy; int dt; void *dh; address dd; handle da; size_t dp; size_t width, height;
};
struct resource { int type; union { handle array; int rest[32]; } res; unsigned flags; };

enum { U8 = 1, FLOAT = 32 };

static void shapes(void) {
    handle array = NULL;
    struct flat flat = {0, 4, U8, 1};
    struct deep deep = {8, 8, 6, FLOAT, 1, 4};
    say_result("no_width", CU(cuArrayCreate_v2, &array, &flat));
    flat = (struct flat){8, 4, U8, 3};
    say_result("three_channels", CU(cuArrayCreate_v2, &array, &flat));
    flat = (struct flat){8, 4, 99, 1};
    say_result("no_format", CU(cuArrayCreate_v2, &array, &flat));
    flat = (struct flat){8, 0, U8, 1};
    say_result("one_dimension", CU(cuArrayCreate_v2, &array, &flat));
    say_result("cube", CU(cuArray3DCreate_v2, &array, &deep));
    deep.depth = 5;
    say_result("cube_of_five_faces", CU(cuArray3DCreate_v2, &array, &deep));
    deep = (struct deep){8, 8, 3, FLOAT, 1, 1};
    say_result("layers", CU(cuArray3DCreate_v2, &array, &deep));
    deep = (struct deep){8, 0, 3, FLOAT, 1, 0};
    say_result("depth_without_height", CU(cuArray3DCreate_v2, &array, &deep));
    say_result("to_null", CU(cuArray3DCreate_v2, NULL, &deep));
}

static void bytes(void) {
    handle array = NULL, texture = NULL;
    struct flat flat = {16, 4, U8, 4}, back = {0};
    unsigned char in[64 * 4], out[64 * 4] = {0};
    for (size_t n = 0; n < sizeof in; n++) in[n] = (unsigned char)n;
    must("cuArrayCreate", CU(cuArrayCreate_v2, &array, &flat));
    say_result("describe", CU(cuArrayGetDescriptor_v2, &back, array));
    say_bool("describes_itself", back.width == 16 && back.height == 4 && back.format == U8 && back.channels == 4);
    struct copy2d up = {.st = 1, .sh = in, .sp = 64, .dt = 3, .da = array, .width = 64, .height = 4};
    struct copy2d down = {.st = 3, .sa = array, .dt = 1, .dh = out, .dp = 64, .width = 64, .height = 4};
    say_result("copy_in", CU(cuMemcpy2D_v2, &up));
    say_result("copy_out", CU(cuMemcpy2D_v2, &down));
    say_bool("bytes_survive", !memcmp(in, out, sizeof in));
    down.height = 5;
    say_result("copy_out_too_many_rows", CU(cuMemcpy2D_v2, &down));
    down.height = 4, down.sx = 1;
    say_result("copy_out_past_the_row", CU(cuMemcpy2D_v2, &down));
    say_result("offset_past_the_row", CU(cuMemcpyAtoH_v2, out, array, (size_t)60, (size_t)8));
    struct resource resource = {.type = 0, .res.array = array};
    char sampling[256] = {0};
    say_result("texture", CU(cuTexObjectCreate, &texture, &resource, sampling, NULL));
    say_result("texture_destroy", CU(cuTexObjectDestroy, texture));
    say_result("destroy", CU(cuArrayDestroy, array));
}

void array_facts(void) {
    handle mipmap = NULL, level = NULL;
    struct deep deep = {64, 64, 0, FLOAT, 1, 0};
    struct flat back = {0};
    begin();
    shapes();
    bytes();
    say_result("mipmap_no_levels", CU(cuMipmappedArrayCreate, &mipmap, &deep, 0u));
    say_result("mipmap_no_levels_has_one", CU(cuMipmappedArrayGetLevel, &level, mipmap, 0u));
    say_result("mipmap_no_levels_has_two", CU(cuMipmappedArrayGetLevel, &level, mipmap, 1u));
    must("cuMipmappedArrayCreate", CU(cuMipmappedArrayCreate, &mipmap, &deep, 50u));
    say_result("mipmap_last_level", CU(cuMipmappedArrayGetLevel, &level, mipmap, 6u));
    CU(cuArrayGetDescriptor_v2, &back, level);
    say_bool("mipmap_last_level_is_one_element", back.width == 1 && back.height == 1);
    say_result("mipmap_level_too_many", CU(cuMipmappedArrayGetLevel, &level, mipmap, 7u));
    say_result("mipmap_destroy", CU(cuMipmappedArrayDestroy, mipmap));
}
