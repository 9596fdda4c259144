/* How long the driver's own time slicing takes the device away, and how long it leaves it: a kernel that watches the device's clock and notes its leaps,
 * while another process runs the same one. Says "ready", waits for a line, runs; prints as JSON how fine the clock is, how many leaps there were, and the
 * 10th, 50th and 90th percentile of their lengths and of the times between them, in microseconds. */
#include "driver.h"

#include <stdint.h>

enum { LEAPS = 1024 };
static const uint64_t WATCH = 1500000000; /* ns */

/* leaps(uint64 *out, uint64 ns): in ns nanoseconds, out[0] counts the leaps of more than 20 us, out[1] is the least step of the clock, and then two
 * words each: when it began, from the first look on, and how long it was. */
static const char leaps_ptx[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    ".visible .entry leaps(.param .u64 out, .param .u64 ns) {\n"
    ".reg .pred %over, %same, %leapt, %full;\n"
    ".reg .u64 %o, %want, %first, %last, %now, %step, %count, %at, %all, %since, %least;\n"
    "ld.param.u64 %o, [out]; ld.param.u64 %want, [ns]; cvta.to.global.u64 %o, %o;\n"
    "mov.u64 %first, %globaltimer; mov.u64 %last, %first; mov.u64 %count, 0; mov.u64 %least, -1;\n"
    "LOOK: mov.u64 %now, %globaltimer; sub.u64 %all, %now, %first; setp.ge.u64 %over, %all, %want; @%over bra DONE;\n"
    "sub.u64 %step, %now, %last; setp.eq.u64 %same, %step, 0; @%same bra LOOK;\n"
    "min.u64 %least, %least, %step; sub.u64 %since, %last, %first; mov.u64 %last, %now;\n"
    "setp.gt.u64 %leapt, %step, 20000; @!%leapt bra LOOK;\n"
    "setp.ge.u64 %full, %count, 1023; @%full bra LOOK;\n"
    "add.u64 %count, %count, 1; shl.b64 %at, %count, 4; add.u64 %at, %o, %at;\n"
    "st.global.u64 [%at], %since; st.global.u64 [%at+8], %step; bra LOOK;\n"
    "DONE: st.global.u64 [%o], %count; st.global.u64 [%o+8], %least; ret; }\n";

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void percentiles(const char *name, uint64_t *values, uint64_t count) {
    qsort(values, count, sizeof *values, ascending);
    printf(", \"%s\": [", name);
    for (int part = 1; part <= 9; part += 4) printf("%s%.0f", part > 1 ? ", " : "", count ? values[count * part / 10] / 1e3 : 0.0);
    printf("]");
}

int main(void) {
    static uint64_t found[LEAPS][2], away[LEAPS], kept[LEAPS];
    void *module, *kernel;
    dptr out;
    uint64_t ns = WATCH;
    char line[16];
    void *parameters[] = {&out, &ns};
    make_context();
    CU("cuModuleLoadData", (void **, const void *), (&module, leaps_ptx));
    CU("cuModuleGetFunction", (void **, void *, const char *), (&kernel, module, "leaps"));
    CU("cuMemAlloc_v2", (dptr *, size_t), (&out, sizeof found));
    CU("cuMemsetD8_v2", (dptr, unsigned char, size_t), (out, 0, sizeof found));
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 0;
    CU("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
       (kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    CU("cuCtxSynchronize", (void), ());
    CU("cuMemcpyDtoH_v2", (void *, dptr, size_t), (found, out, sizeof found));
    uint64_t count = found[0][0] < LEAPS ? found[0][0] : LEAPS - 1, between = 0;
    for (uint64_t i = 1; i <= count; i++) {
        away[i - 1] = found[i][1];
        if (i > 1) kept[between++] = found[i][0] - found[i - 1][0] - found[i - 1][1];
    }
    printf("{\"tick_ns\": %llu, \"leaps\": %llu", (unsigned long long)found[0][1], (unsigned long long)count);
    percentiles("away_us", away, count);
    percentiles("kept_us", kept, between);
    printf("}\n");
    return 0;
}
