/* The cost of a mark behind work: to put one, to ask whether it is passed, and how soon that is
 * seen. An event, or a value that the stream writes to host memory. JSON on standard output,
 * nanoseconds, the median of batches; null for a kind that this device lacks. */
#include "driver.h"

#include <stdint.h>
#include <time.h>

enum { BATCHES = 15, MARKS = 300, NOT_READY = 600, WRITES_OF_64_BITS = 122 };
static const double PATIENCE = 2e9; /* ns for one mark to be passed */

typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static launch_fn launch;
static int (*record)(void *, void *);
static int (*query)(void *);
static int (*write_value)(void *, dptr, uint64_t, unsigned);
static void *kernel, *stream, *event;
static volatile uint64_t *word;
static dptr at;
static uint64_t number;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static void must(const char *what, int result) {
    if (!result) return;
    fprintf(stderr, "%s: CUDA error %d\n", what, result);
    exit(1);
}

static void put(int writes) {
    if (writes) must("cuStreamWriteValue64", write_value(stream, at, ++number, 0));
    else must("cuEventRecord", record(event, stream));
}

/* Whether the device has passed the last mark. */
static int passed(int writes) {
    if (writes) return *word == number;
    int answer = query(event);
    if (answer != NOT_READY) must("cuEventQuery", answer);
    return answer == 0;
}

/* One way's figures, after a comma-separated name. */
static void measure(const char *name, int writes) {
    double figures[3][BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        double sums[3] = {0};
        for (int i = 0; i < MARKS; i++) {
            must("cuLaunchKernel", launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
            double from = now();
            put(writes);
            double done = now();
            while (!passed(writes))
                if (now() - done > PATIENCE) must("a mark that is never passed", -1);
            double seen = now();
            passed(writes);
            sums[0] += done - from;
            sums[1] += now() - seen;
            sums[2] += seen - done;
        }
        for (int i = 0; i < 3; i++) figures[i][batch] = sums[i] / MARKS;
    }
    for (int i = 0; i < 3; i++) qsort(figures[i], BATCHES, sizeof(double), ascending);
    printf("\"%s\": {\"put\": %.0f, \"asked\": %.0f, \"seen\": %.0f}", name, figures[0][BATCHES / 2], figures[1][BATCHES / 2], figures[2][BATCHES / 2]);
}

int main(void) {
    void *module;
    int writes = 0;
    make_context();
    CU("cuModuleLoadData", (void **, const void *), (&module, nothing_ptx));
    CU("cuModuleGetFunction", (void **, void *, const char *), (&kernel, module, "nothing"));
    CU("cuStreamCreate", (void **, unsigned), (&stream, 1)); /* CU_STREAM_NON_BLOCKING */
    CU("cuEventCreate", (void **, unsigned), (&event, 2)); /* CU_EVENT_DISABLE_TIMING */
    CU("cuMemHostAlloc", (void **, size_t, unsigned), ((void **)&word, 8, 2)); /* CU_MEMHOSTALLOC_DEVICEMAP */
    CU("cuMemHostGetDevicePointer_v2", (dptr *, void *, unsigned), (&at, (void *)word, 0));
    CU("cuDeviceGetAttribute", (int *, int, int), (&writes, WRITES_OF_64_BITS, 0));
    *word = 0;
    launch = (launch_fn)driver_symbol("cuLaunchKernel");
    record = (int (*)(void *, void *))driver_symbol("cuEventRecord");
    query = (int (*)(void *))driver_symbol("cuEventQuery");
    printf("{");
    measure("event", 0);
    printf(", ");
    if (writes) {
        write_value = (int (*)(void *, dptr, uint64_t, unsigned))driver_symbol("cuStreamWriteValue64_v2");
        measure("write", 1);
    } else {
        printf("\"write\": null");
    }
    printf("}\n");
    return 0;
}
