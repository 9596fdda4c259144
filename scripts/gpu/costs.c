/* Memory that the driver takes by itself, as the fall in free memory that a watching process sees:
 * one more process's context, one more context in a process, a module, a larger heap of a context.
 * JSON on standard output, bytes. Other work on the device at the same time would be counted in. */
#include "driver.h"

#include <sys/wait.h>
#include <unistd.h>

static size_t available(void) {
    size_t free_bytes, all;
    CU("cuMemGetInfo_v2", (size_t *, size_t *), (&free_bytes, &all));
    return free_bytes;
}

/* A process started before any CUDA in this one: makes its context when told, says so, ends when told. */
static pid_t start_other(int to[2], int from[2]) {
    if (pipe(to) || pipe(from)) exit(1);
    pid_t other = fork();
    if (other) return other;
    char byte;
    close(to[1]);
    if (read(to[0], &byte, 1) != 1) _exit(1);
    make_context();
    if (write(from[1], &byte, 1) != 1) _exit(1);
    _exit(read(to[0], &byte, 1) != 0);
}

int main(void) {
    int to[2], from[2];
    char byte = 0;
    pid_t other = start_other(to, from);
    make_context();
    size_t before = available();
    if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1) return 1;
    size_t process = before - available();
    close(to[1]);
    waitpid(other, NULL, 0);

    void *context, *module, *function;
    before = available();
    CU("cuModuleLoadData", (void **, const void *), (&module, nothing_ptx));
    CU("cuModuleGetFunction", (void **, void *, const char *), (&function, module, "nothing"));
    size_t loaded = available();
    CU("cuCtxCreate_v2", (void **, unsigned, int), (&context, 0, 0));
    size_t second = available();
    /* The heap of `malloc` in kernels, 8 MiB at first. It may be taken with the next launch only. */
    CU("cuCtxSetLimit", (int, size_t), (2, (size_t)256 << 20));
    size_t heap = available();
    printf("{\"a process's context\": %zu, \"a module\": %zu, \"a second context\": %zu, \"a heap of 256 MiB\": %zu}\n", process,
           before > loaded ? before - loaded : 0, loaded > second ? loaded - second : 0, second > heap ? second - heap : 0);
    return 0;
}
