/* What two events around a kernel add to its time: for kernels of several lengths, their time in a
 * full stream each, what a pair of events says there and in an empty stream, and what a second
 * event straight behind the first says. JSON on standard output, nanoseconds, lower quartiles. */
#include "driver.h"

#include <stdint.h>

enum { MANY = 400, PAIRS = 48, BETWEEN = 4 };
static const unsigned PLUG = 8000000; /* ns for which the stream is blocked while it is filled */

static const char spin_ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry spin(.param .u32 p) {\n"
    ".reg .u64 %a, %b, %n; .reg .u32 %p; .reg .pred %q;\n"
    "ld.param.u32 %p, [p]; cvt.u64.u32 %n, %p;\n"
    "mov.u64 %a, %globaltimer;\n"
    "L: mov.u64 %b, %globaltimer; sub.u64 %b, %b, %a; setp.lt.u64 %q, %b, %n; @%q bra L;\n"
    "ret; }\n";

static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static int (*record)(void *, void *);
static int (*elapsed)(float *, void *, void *);
static int (*synchronize)(void *);
static void *kernel, *stream, *events[PAIRS][3];

static void must(const char *what, int result) {
    if (!result) return;
    fprintf(stderr, "%s: CUDA error %d\n", what, result);
    exit(1);
}

static void run(unsigned ns) {
    void *arguments[] = {&ns};
    must("cuLaunchKernel", launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

static double between(void *from, void *to) {
    float milliseconds;
    must("cuEventElapsedTime", elapsed(&milliseconds, from, to));
    return milliseconds * 1e6;
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

/* The lower quartile of the times from one event of each pair to another. */
static double quartile(int from, int to) {
    double times[PAIRS];
    for (int i = 0; i < PAIRS; i++) times[i] = between(events[i][from], events[i][to]);
    qsort(times, PAIRS, sizeof(double), ascending);
    return times[PAIRS / 4];
}

static void pair(int i, unsigned ns) {
    must("cuEventRecord", record(events[i][0], stream));
    run(ns);
    must("cuEventRecord", record(events[i][1], stream));
    must("cuEventRecord", record(events[i][2], stream));
}

int main(void) {
    static const unsigned lengths[] = {0, 2000, 5000, 20000, 50000, 200000};
    void *module;
    make_context();
    CU("cuModuleLoadData", (void **, const void *), (&module, spin_ptx));
    CU("cuModuleGetFunction", (void **, void *, const char *), (&kernel, module, "spin"));
    CU("cuStreamCreate", (void **, unsigned), (&stream, 1)); /* CU_STREAM_NON_BLOCKING */
    for (int i = 0; i < PAIRS; i++)
        for (int j = 0; j < 3; j++) CU("cuEventCreate", (void **, unsigned), (&events[i][j], 0));
    launch = driver_symbol("cuLaunchKernel");
    record = driver_symbol("cuEventRecord");
    elapsed = driver_symbol("cuEventElapsedTime");
    synchronize = driver_symbol("cuStreamSynchronize");
    run(0);
    must("cuStreamSynchronize", synchronize(stream));
    printf("[");
    for (unsigned k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        unsigned ns = lengths[k];
        run(PLUG);
        must("cuEventRecord", record(events[0][0], stream));
        for (int i = 0; i < MANY; i++) run(ns);
        must("cuEventRecord", record(events[0][1], stream));
        must("cuStreamSynchronize", synchronize(stream));
        double each = between(events[0][0], events[0][1]) / MANY;
        run(PLUG);
        for (int i = 0; i < PAIRS; i++) {
            for (int j = 0; j < BETWEEN; j++) run(ns);
            pair(i, ns);
        }
        must("cuStreamSynchronize", synchronize(stream));
        double full = quartile(0, 1), behind = quartile(1, 2);
        for (int i = 0; i < PAIRS; i++) {
            pair(i, ns);
            must("cuStreamSynchronize", synchronize(stream));
        }
        printf("%s{\"kernel\": %u, \"each\": %.0f, \"pair\": %.0f, \"behind\": %.0f, \"pair_alone\": %.0f, \"behind_alone\": %.0f}",
               k ? ", " : "", ns, each, full, behind, quartile(0, 1), quartile(1, 2));
    }
    printf("]\n");
    return 0;
}
