/* How long the driver's own time slicing takes the device away: a kernel that watches the device's clock and notes its leaps, while
 * another process runs the same one. Run twice at once; prints the leaps of one run, in microseconds, as JSON. */
#include "driver.h"

#include <stdint.h>

enum { LEAPS = 512 };

/* leaps(uint64 *out, uint64 ns): out[0] counts the leaps of more than 20 us in ns nanoseconds, the rest are their lengths. */
static const char leaps_ptx[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    ".visible .entry leaps(.param .u64 out, .param .u64 ns) {\n"
    ".reg .pred %over, %leapt, %full;\n.reg .u64 %o, %want, %first, %last, %now, %step, %count, %offset, %all;\n"
    "ld.param.u64 %o, [out]; ld.param.u64 %want, [ns]; cvta.to.global.u64 %o, %o;\n"
    "mov.u64 %first, %globaltimer; mov.u64 %last, %first; mov.u64 %count, 0;\n"
    "LOOK: mov.u64 %now, %globaltimer; sub.u64 %step, %now, %last; mov.u64 %last, %now;\n"
    "sub.u64 %all, %now, %first; setp.ge.u64 %over, %all, %want; @%over bra DONE;\n"
    "setp.gt.u64 %leapt, %step, 20000; @!%leapt bra LOOK;\n"
    "setp.ge.u64 %full, %count, 511; @%full bra LOOK;\n"
    "add.u64 %count, %count, 1; mul.lo.u64 %offset, %count, 8; add.u64 %offset, %o, %offset;\n"
    "st.global.u64 [%offset], %step; bra LOOK;\n"
    "DONE: st.global.u64 [%o], %count; ret; }\n";

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int main(void) {
    void *module, *kernel;
    dptr out;
    uint64_t ns = 1500000000, found[LEAPS] = {0};
    void *parameters[] = {&out, &ns};
    make_context();
    CU("cuModuleLoadData", (void **, const void *), (&module, leaps_ptx));
    CU("cuModuleGetFunction", (void **, void *, const char *), (&kernel, module, "leaps"));
    CU("cuMemAlloc_v2", (dptr *, size_t), (&out, sizeof found));
    CU("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
       (kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    CU("cuCtxSynchronize", (void), ());
    CU("cuMemcpyDtoH_v2", (void *, dptr, size_t), (found, out, sizeof found));
    uint64_t count = found[0];
    if (count > LEAPS - 1) count = LEAPS - 1;
    qsort(found + 1, count, sizeof *found, ascending);
    if (count == 0) printf("{\"leaps\": 0}\n");
    else printf("{\"leaps\": %llu, \"p10_us\": %.0f, \"p50_us\": %.0f, \"p90_us\": %.0f}\n", (unsigned long long)count,
                found[1 + count / 10] / 1e3, found[1 + count / 2] / 1e3, found[1 + count * 9 / 10] / 1e3);
    return 0;
}
