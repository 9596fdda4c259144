/* Makes and ends contexts of the first device, by commands from its standard input.
 *
 *   init          -> init RESULT      cuInit, and a first context
 *   create        -> create RESULT    one more, which is current then
 *   wrong         -> wrong RESULT     the same with flags that do not exist
 *   waits         -> waits RESULT     with two ways to wait
 *   device        -> device RESULT    on a device that does not exist
 *   nowhere       -> nowhere RESULT   with no place for it; "unplaced": the primary one
 *   affinity      -> affinity RESULT  with an affinity that the device does not have; "graphics": a queue
 *   threads COUNT -> threads RESULT   one more in each of so many threads; the first failure counts
 *   bare          -> bare RESULT      cuInit alone
 *   start COUNT   -> start RESULT     begins so many threads that retain the primary context each
 *   begin COUNT   -> begin RESULT     the same with one more context each
 *   join          -> join RESULT      waits for all of them; the first failure counts
 *   destroy COUNT -> destroy RESULT   the COUNT most recent
 *   retain        -> retain RESULT    the primary context
 *   release       -> release RESULT
 *   loop COUNT    -> loop RESULT      ends the most recent one and makes another, so often
 *   alloc BYTES   -> alloc RESULT
 *   anew          -> anew 0           from then on it is this program from its beginning
 *
 * RESULT is the CUresult as a number. The end of the input ends it with status 0. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int (*init_)(unsigned);
static int (*create)(void **, unsigned, int);
static int (*create_v3)(void **, void *, int, unsigned, int);
static int (*create_v4)(void **, void *, unsigned, int);
static int (*destroy)(void *);
static int (*retain)(void **, int);
static int (*release)(int);
static int (*mem_alloc)(unsigned long long *, size_t);
static void *contexts[256];
static size_t count;

static void *symbol(void *driver, const char *name) {
    void *found = dlsym(driver, name);
    if (!found) exit(2);
    return found;
}

static int one_more(unsigned flags) {
    void *context;
    int result = count < 256 ? create(&context, flags, 0) : 1;
    if (!result) contexts[count++] = context;
    return result;
}

static int with_affinity(void) {
    struct { int kind; unsigned count; } affinity = {0, 1};
    void *context;
    return create_v3(&context, &affinity, 1, 0, 0);
}

static int for_graphics(void) {
    struct { int kind; void *data; } queue = {2, &queue};
    struct { void *affinity; int count; void *queue; } params = {NULL, 0, &queue};
    void *context;
    return create_v4(&context, &params, 0, 0);
}

static int fewer(size_t number) {
    int result = 0;
    while (number-- && count && !result) result = destroy(contexts[--count]);
    return result;
}

static int start(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) exit(2);
    init_ = symbol(driver, "cuInit");
    create = symbol(driver, "cuCtxCreate_v2");
    create_v3 = symbol(driver, "cuCtxCreate_v3");
    create_v4 = symbol(driver, "cuCtxCreate_v4");
    destroy = symbol(driver, "cuCtxDestroy_v2");
    retain = symbol(driver, "cuDevicePrimaryCtxRetain");
    release = symbol(driver, "cuDevicePrimaryCtxRelease_v2");
    mem_alloc = symbol(driver, "cuMemAlloc_v2");
    return init_(0);
}

static pthread_t threads[64];
static size_t begun, creating;

static void *in_thread(void *context) { return (void *)(intptr_t)create(context, 0, 0); }

static void *retaining(void *unused) {
    void *primary;
    (void)unused;
    return (void *)(intptr_t)retain(&primary, 0);
}

static int begins(size_t number, void *(*does)(void *)) {
    if (number > 64 - begun || count + begun + number > 256) return 1;
    for (; number; number--, begun++)
        if (pthread_create(&threads[begun], NULL, does, &contexts[count + begun])) return 1;
    if (does == in_thread) creating = begun;
    return 0;
}

static int joins(void) {
    int first = 0;
    for (size_t at = 0; at < begun; at++) {
        void *result;
        pthread_join(threads[at], &result);
        if (!first) first = (int)(intptr_t)result;
    }
    count += creating;
    begun = creating = 0;
    return first;
}

static int in_threads(size_t number) {
    int result = begins(number, in_thread), first = joins();
    return first ? first : result;
}

int main(void) {
    char word[32], line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long number = 0, at;
        void *primary;
        int result = -1;
        if (sscanf(line, "%31s %llu", word, &number) < 1) continue;
        if (!strcmp(word, "init")) {
            result = start();
            if (!result) result = one_more(0);
        } else if (!strcmp(word, "bare")) result = start();
        else if (!strcmp(word, "start")) result = begins(number, retaining);
        else if (!strcmp(word, "begin")) result = begins(number, in_thread);
        else if (!strcmp(word, "join")) result = joins();
        else if (!strcmp(word, "create")) result = one_more(0);
        else if (!strcmp(word, "wrong")) result = one_more(0xff00);
        else if (!strcmp(word, "waits")) result = one_more(3);
        else if (!strcmp(word, "device")) result = create(&primary, 0, 99);
        else if (!strcmp(word, "nowhere")) result = create(NULL, 0, 0);
        else if (!strcmp(word, "unplaced")) result = retain(NULL, 0);
        else if (!strcmp(word, "affinity")) result = with_affinity();
        else if (!strcmp(word, "graphics")) result = for_graphics();
        else if (!strcmp(word, "threads")) result = in_threads(number);
        else if (!strcmp(word, "destroy")) result = fewer(number);
        else if (!strcmp(word, "retain")) result = retain(&primary, 0);
        else if (!strcmp(word, "release")) result = release(0);
        else if (!strcmp(word, "alloc")) result = mem_alloc(&at, number);
        else if (!strcmp(word, "loop")) {
            result = 0;
            while (number-- && !result) {
                result = fewer(1);
                if (!result) result = one_more(0);
            }
        } else if (!strcmp(word, "anew")) {
            printf("anew 0\n");
            execl("/proc/self/exe", "contexts", NULL);
            exit(2);
        }
        printf("%s %d\n", word, result);
    }
    return 0;
}
