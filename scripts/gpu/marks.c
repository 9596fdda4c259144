/* What a mark behind work costs the thread that submits it, and how soon it is seen: an event, or a value the device writes to host
 * memory. JSON on standard output, nanoseconds. */
#include "driver.h"

#include <stdint.h>
#include <time.h>

enum { BATCHES = 15, MARKS = 300 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

int main(void) {
    void *module, *kernel, *stream, *event;
    volatile uint64_t *word;
    dptr at;
    make_context();
    CU("cuModuleLoadData", (void **, const void *), (&module, nothing_ptx));
    CU("cuModuleGetFunction", (void **, void *, const char *), (&kernel, module, "nothing"));
    CU("cuStreamCreate", (void **, unsigned), (&stream, 1));
    CU("cuEventCreate", (void **, unsigned), (&event, 2)); /* CU_EVENT_DISABLE_TIMING */
    CU("cuMemHostAlloc", (void **, size_t, unsigned), ((void **)&word, 8, 2)); /* CU_MEMHOSTALLOC_DEVICEMAP */
    CU("cuMemHostGetDevicePointer_v2", (dptr *, void *, unsigned), (&at, (void *)word, 0));
    *word = 0;
    double put[2][BATCHES], seen[2][BATCHES];
    uint64_t number = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int way = 0; way < 2; way++) {
            double spent = 0, waited = 0;
            for (int i = 0; i < MARKS; i++) {
                CU("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
                   (kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
                double from = now();
                if (way) CU("cuStreamWriteValue64_v2", (void *, dptr, uint64_t, unsigned), (stream, at, ++number, 0));
                else CU("cuEventRecord", (void *, void *), (event, stream));
                double done = now();
                spent += done - from;
                if (way) while (*word != number) {}
                else while (((int (*)(void *))driver_symbol("cuEventQuery"))(event) == 600) {}
                waited += now() - done;
            }
            put[way][batch] = spent / MARKS;
            seen[way][batch] = waited / MARKS;
        }
    }
    for (int way = 0; way < 2; way++) {
        qsort(put[way], BATCHES, sizeof(double), ascending);
        qsort(seen[way], BATCHES, sizeof(double), ascending);
    }
    printf("{\"event: put\": %.0f, \"event: seen after\": %.0f, \"write: put\": %.0f, \"write: seen after\": %.0f}\n",
           put[0][BATCHES / 2], seen[0][BATCHES / 2], put[1][BATCHES / 2], seen[1][BATCHES / 2]);
    return 0;
}
