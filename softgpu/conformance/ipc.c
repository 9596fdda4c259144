// Memory shared with another process.
#include "facts.h"

#include <sys/wait.h>
#include <unistd.h>

struct ipc_handle {
    char bytes[64];
};

static void receiver(int from, int to) {
    struct ipc_handle handle;
    address a = 0, b = 0;
    unsigned char byte = 0;
    begin();
    if (read(from, &handle, sizeof handle) != sizeof handle) _exit(0);
    say_result("open_flags_0", CU(cuIpcOpenMemHandle_v2, &b, handle, 0u));
    say_result("open", CU(cuIpcOpenMemHandle_v2, &a, handle, 1u));
    CU(cuMemcpyDtoH_v2, &byte, a, (size_t)1);
    say_number("sees_the_bytes", byte);
    say_result("free_imported", CU(cuMemFree_v2, a));
    CU(cuMemsetD8_v2, a, 8, (size_t)1024);
    CU(cuCtxSynchronize);
    say_result("close", CU(cuIpcCloseMemHandle, a));
    say_result("close_again", CU(cuIpcCloseMemHandle, a));
    memset(&handle, 0x5a, sizeof handle);
    say_result("open_nonsense", CU(cuIpcOpenMemHandle_v2, &b, handle, 1u));
    if (write(to, "x", 1) != 1) _exit(0);
    _exit(0);
}

void ipc_facts(void) {
    int there[2], back[2];
    struct ipc_handle handle;
    address a = 0, managed = 0;
    unsigned char byte = 0;
    char done;
    if (pipe(there) || pipe(back)) return;
    // Before cuInit: a child forked later could not use the driver.
    pid_t child = fork();
    if (child == 0) {
        // Without a writer the receiver reads the end of the stream instead of waiting.
        close(there[1]);
        close(back[0]);
        receiver(there[0], back[1]);
    }
    close(there[0]);
    close(back[1]);
    begin();
    must("cuMemAlloc", CU(cuMemAlloc_v2, &a, (size_t)4 << 20));
    CU(cuMemsetD8_v2, a, 7, (size_t)1024);
    CU(cuCtxSynchronize);
    say_result("handle", CU(cuIpcGetMemHandle, &handle, a));
    struct ipc_handle kept = handle;
    say_result("handle_again", CU(cuIpcGetMemHandle, &handle, a));
    say_bool("handle_again_is_the_same", !memcmp(&kept, &handle, sizeof handle));
    say_result("handle_of_nothing", CU(cuIpcGetMemHandle, &handle, (address)64));
    say_result("handle_to_null", CU(cuIpcGetMemHandle, NULL, a));
    CU(cuMemAllocManaged, &managed, (size_t)4096, 1u);
    say_result("handle_of_managed", CU(cuIpcGetMemHandle, &handle, managed));
    if (write(there[1], &kept, sizeof kept) == sizeof kept && read(back[0], &done, 1) == 1) {
        CU(cuMemcpyDtoH_v2, &byte, a + 100, (size_t)1);
        say_number("sees_what_the_other_wrote", byte);
    }
    waitpid(child, NULL, 0);
    say_result("free", CU(cuMemFree_v2, a));
}
