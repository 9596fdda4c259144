// Copies, memsets, and address ranges.
#include "facts.h"

struct peer {
    size_t from_x, from_y, from_z, from_level;
    int from_type;
    const void *from_host;
    address from;
    handle from_array, from_context;
    size_t from_pitch, from_height, to_x, to_y, to_z, to_level;
    int to_type;
    void *to_host;
    address to;
    handle to_array, to_context;
    size_t to_pitch, to_height, width, height, depth;
};

void copy_facts(void) {
    address a = 0, b = 0;
    unsigned char from[1024], to[1024];
    unsigned kind = 99;
    int ordinal = 99;
    for (int i = 0; i < 1024; i++) from[i] = (unsigned char)(i * 7);
    begin();
    must("cuMemAlloc", CU(cuMemAlloc_v2, &a, (size_t)1024));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &b, (size_t)1024));
    say_result("to_device", CU(cuMemcpyHtoD_v2, a, from, (size_t)1024));
    say_result("on_device", CU(cuMemcpyDtoD_v2, b, a, (size_t)1024));
    memset(to, 0, sizeof to);
    say_result("to_host", CU(cuMemcpyDtoH_v2, to, b, (size_t)1024));
    say_bool("bytes_survive", !memcmp(from, to, 1024));
    say_result("unified", CU(cuMemcpy, a + 512, b, (size_t)512));
    say_result("nothing", CU(cuMemcpyHtoD_v2, a, from, (size_t)0));
    say_result("to_null_host", CU(cuMemcpyDtoH_v2, NULL, a, (size_t)16));
    say_result("to_no_device_address", CU(cuMemcpyHtoD_v2, (address)64, from, (size_t)16));
    say_result("beyond_the_end", CU(cuMemcpyHtoD_v2, a, from, (size_t)64 << 20));
    say_result("fill_8", CU(cuMemsetD8_v2, a, 0xab, (size_t)1024));
    CU(cuMemcpyDtoH_v2, to, a, (size_t)1024);
    say_bool("fill_8_fills", to[0] == 0xab && to[1023] == 0xab);
    say_result("fill_32", CU(cuMemsetD32_v2, a, 0x01020304u, (size_t)256));
    CU(cuMemcpyDtoH_v2, to, a, (size_t)1024);
    say_bool("fill_32_is_little_endian", to[0] == 4 && to[3] == 1);
    say_result("fill_32_misaligned", CU(cuMemsetD32_v2, a + 1, 0u, (size_t)16));
    say_result("fill_16_misaligned", CU(cuMemsetD16_v2, a + 1, 0, (size_t)16));
    say_result("fill_no_address", CU(cuMemsetD8_v2, (address)64, 0, (size_t)16));
    say_result("memory_type", CU(cuPointerGetAttribute, &kind, 2, a + 10));
    say_number("memory_type_is", kind);
    say_result("ordinal", CU(cuPointerGetAttribute, &ordinal, 9, a));
    say_number("ordinal_is", ordinal);
    say_result("memory_type_of_plain_host", CU(cuPointerGetAttribute, &kind, 2, (address)(uintptr_t)from));
    say_result("memory_type_of_nothing", CU(cuPointerGetAttribute, &kind, 2, (address)0));
    // cuda-python 12.6 runs its tests on hardware with a runtime that passes NULL here.
    struct peer peer = {.from_type = 2, .from = a, .to_type = 2, .to = b, .width = 512, .height = 1, .depth = 1};
    say_result("peer_3d_without_contexts", CU(cuMemcpy3DPeer, &peer));
    peer.from_context = (handle)(uintptr_t)0x1357900;
    say_result("peer_3d_of_no_context", CU(cuMemcpy3DPeer, &peer));
    CU(cuMemFree_v2, b);
    say_result("memory_type_of_freed", CU(cuPointerGetAttribute, &kind, 2, b));
    say_result("to_freed", CU(cuMemcpyHtoD_v2, b, from, (size_t)16));
    say_result("context_lives_on", CU(cuCtxSynchronize));
}
