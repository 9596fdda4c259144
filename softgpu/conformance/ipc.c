// Memory shared with another process.
#include "facts.h"

#include <sys/wait.h>
#include <unistd.h>

struct ipc_handle {
    char bytes[64];
};

/* An event that the other process recorded after its work, and that this one records. */
static void event_receiver(int from, int to) {
    struct ipc_handle sent, mine;
    handle event = NULL, again = NULL, stream = NULL;
    float elapsed = 0;
    if (read(from, &sent, sizeof sent) != sizeof sent) return;
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    say_result("event_open", CU(cuIpcOpenEventHandle, &event, sent));
    say_result("event_open_again", CU(cuIpcOpenEventHandle, &again, sent));
    say_result("event_synchronize", CU(cuEventSynchronize, event));
    say_result("event_query", CU(cuEventQuery, event));
    say_result("event_wait", CU(cuStreamWaitEvent, stream, event, 0u));
    say_result("event_wait_then_synchronize", CU(cuStreamSynchronize, stream));
    say_result("event_elapsed", CU(cuEventElapsedTime, &elapsed, event, event));
    say_result("event_record", CU(cuEventRecord, event, stream));
    CU(cuStreamSynchronize, stream);
    say_result("event_handle_of_opened", CU(cuIpcGetEventHandle, &mine, event));
    say_result("event_destroy", CU(cuEventDestroy_v2, event));
    memset(&sent, 0x5a, sizeof sent);
    say_result("event_open_nonsense", CU(cuIpcOpenEventHandle, &event, sent));
    if (write(to, "y", 1) != 1) return;
}

static void receiver(int from, int to) {
    struct ipc_handle handle;
    address a = 0, b = 0;
    unsigned char byte = 0;
    begin();
    if (read(from, &handle, sizeof handle) != sizeof handle) _exit(0);
    say_result("open_flags_0", CU(cuIpcOpenMemHandle_v2, &b, handle, 0u));
    say_result("open", CU(cuIpcOpenMemHandle_v2, &a, handle, 1u));
    say_result("open_again", CU(cuIpcOpenMemHandle_v2, &b, handle, 1u));
    say_bool("open_again_is_the_same", a == b);
    void *further = NULL;
    address c = 0;
    must("cuCtxCreate", CU(cuCtxCreate_v2, &further, 0, 0));
    say_result("open_in_another_context", CU(cuIpcOpenMemHandle_v2, &c, handle, 1u));
    CU(cuCtxDestroy_v2, further);
    CU(cuMemcpyDtoH_v2, &byte, a, (size_t)1);
    say_number("sees_the_bytes", byte);
    say_result("free_imported", CU(cuMemFree_v2, a));
    CU(cuMemsetD8_v2, a, 8, (size_t)1024);
    CU(cuCtxSynchronize);
    say_result("close", CU(cuIpcCloseMemHandle, a));
    say_result("close_again", CU(cuIpcCloseMemHandle, b));
    say_result("close_when_closed", CU(cuIpcCloseMemHandle, a));
    memset(&handle, 0x5a, sizeof handle);
    say_result("open_nonsense", CU(cuIpcOpenMemHandle_v2, &b, handle, 1u));
    if (write(to, "x", 1) != 1) _exit(0);
    event_receiver(from, to);
    _exit(0);
}

static void event_facts(int to, int from, address a) {
    enum { DISABLE_TIMING = 2, INTERPROCESS = 4 };
    struct ipc_handle sent;
    handle event = NULL, plain = NULL, stream = NULL, opened = NULL;
    char done;
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    must("cuEventCreate", CU(cuEventCreate, &plain, DISABLE_TIMING));
    say_result("event_handle_of_plain_event", CU(cuIpcGetEventHandle, &sent, plain));
    say_result("event_create", CU(cuEventCreate, &event, DISABLE_TIMING | INTERPROCESS));
    say_result("event_handle", CU(cuIpcGetEventHandle, &sent, event));
    say_result("event_handle_to_null", CU(cuIpcGetEventHandle, NULL, event));
    say_result("event_open_own", CU(cuIpcOpenEventHandle, &opened, sent));
    CU(cuMemsetD8Async, a, 9, (size_t)1024, stream);
    say_result("event_record_of_maker", CU(cuEventRecord, event, stream));
    if (write(to, &sent, sizeof sent) != sizeof sent || read(from, &done, 1) != 1) return;
    say_result("event_synchronize_with_the_other", CU(cuEventSynchronize, event));
    say_result("event_query_of_the_other", CU(cuEventQuery, event));
    say_result("event_destroy_of_maker", CU(cuEventDestroy_v2, event));
}

void ipc_facts(void) {
    int there[2], back[2];
    struct ipc_handle handle;
    address a = 0, managed = 0;
    unsigned char byte = 0;
    char done;
    if (pipe(there) || pipe(back)) return;
    // Before cuInit: a child forked later could not use the driver.
    pid_t child = fork_facts();
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
    event_facts(there[1], back[0], a);
    waitpid(child, NULL, 0);
    say_result("free", CU(cuMemFree_v2, a));
}

// Reads what its maker has freed meanwhile, and closes it.
static void reads_freed(int from, int to) {
    struct ipc_handle handle;
    address a = 0;
    unsigned char byte = 0;
    begin();
    if (read(from, &handle, sizeof handle) != sizeof handle) _exit(0);
    say_result("freed.open", CU(cuIpcOpenMemHandle_v2, &a, handle, 1u));
    if (write(to, "o", 1) != 1 || read(from, &byte, 1) != 1) _exit(0);
    byte = 0;
    say_result("freed.read", CU(cuMemcpyDtoH_v2, &byte, a, (size_t)1));
    say_number("freed.the_byte", byte);
    say_result("freed.close", CU(cuIpcCloseMemHandle, a));
    _exit(write(to, "c", 1) != 1);
}

// NVIDIA's page calls it undefined to free memory that another process has open: while these answers are unverified, they are
// softgpu's, where the memory stays until it is closed.
void ipc_freed_facts(void) {
    int there[2], back[2];
    struct ipc_handle handle;
    address a = 0;
    char done;
    if (pipe(there) || pipe(back)) return;
    pid_t child = fork_facts();
    if (child == 0) {
        close(there[1]);
        close(back[0]);
        reads_freed(there[0], back[1]);
    }
    close(there[0]);
    close(back[1]);
    begin();
    must("cuMemAlloc", CU(cuMemAlloc_v2, &a, (size_t)4 << 20));
    CU(cuMemsetD8_v2, a, 7, (size_t)4 << 20);
    CU(cuCtxSynchronize);
    must("cuIpcGetMemHandle", CU(cuIpcGetMemHandle, &handle, a));
    if (write(there[1], &handle, sizeof handle) != sizeof handle || read(back[0], &done, 1) != 1) return;
    say_result("freed.free", CU(cuMemFree_v2, a));
    if (write(there[1], "f", 1) == 1 && read(back[0], &done, 1) == 1) say_result("freed.the_maker_afterwards", CU(cuCtxSynchronize));
    waitpid(child, NULL, 0);
}
