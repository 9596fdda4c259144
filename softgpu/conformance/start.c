// Before and after cuInit, and in forked children.
#include "facts.h"

#include <sys/wait.h>
#include <unistd.h>

void start_facts(void) {
    int number = 0, version = 0;
    handle context = &context;
    address pointer = 0;
    size_t bytes = 0;
    const char *name = "";
    say_result("before_init.cuDeviceGetCount", CU(cuDeviceGetCount, &number));
    say_result("before_init.cuDeviceGet", CU(cuDeviceGet, &number, 0));
    say_result("before_init.cuCtxGetCurrent", CU(cuCtxGetCurrent, &context));
    say_result("before_init.cuMemAlloc", CU(cuMemAlloc_v2, &pointer, (size_t)512));
    say_result("before_init.cuMemGetInfo", CU(cuMemGetInfo_v2, &bytes, &bytes));
    say_result("before_init.cuDevicePrimaryCtxRetain", CU(cuDevicePrimaryCtxRetain, &context, 0));
    say_result("before_init.cuDriverGetVersion", CU(cuDriverGetVersion, &version));
    say_bool("version_is_1000_major_10_minor", version >= 11000 && version % 10 == 0);
    say_result("version_to_null", CU(cuDriverGetVersion, NULL));
    say_result("before_init.cuGetErrorName", CU(cuGetErrorName, 2, &name));
    say("name_of_2", name);
    say_result("name_of_unknown", CU(cuGetErrorName, 123456, &name));
    say_bool("name_of_unknown_is_null", name == NULL);
    say_result("string_of_unknown", CU(cuGetErrorString, 123456, &name));
    say_result("string_of_0", CU(cuGetErrorString, 0, &name));
    CU(cuGetErrorString, 101, &name);
    say_bool("string_of_101_is_invalid_device_ordinal", strcmp(name, "invalid device ordinal") == 0);
    say_result("init_with_flags", CU(cuInit, 1));
    say_result("init", CU(cuInit, 0));
    say_result("init_again", CU(cuInit, 0));
    say_result("init_again_with_flags", CU(cuInit, 1));
    pid_t child = fork_facts();
    if (child == 0) {
        say_result("forked_child.cuInit", CU(cuInit, 0));
        say_result("forked_child.cuDeviceGetCount", CU(cuDeviceGetCount, &number));
        say_result("forked_child.cuCtxGetCurrent", CU(cuCtxGetCurrent, &context));
        say_result("forked_child.cuDriverGetVersion", CU(cuDriverGetVersion, &version));
        _exit(0);
    }
    waitpid(child, NULL, 0);
    say_result("parent_after_fork.cuDeviceGetCount", CU(cuDeviceGetCount, &number));
}
