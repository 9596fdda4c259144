// Capturing a stream into a graph, and launching it.
#include "facts.h"

/* What a stream-ordered allocation that a capture forbids leaves behind in its pool. */
static void refused_beside_one(void) {
    enum { RESERVED = 5, RELAXED = 2 };
    unsigned long long before = 1, after = 0;
    handle stream = NULL, pool = NULL, graph = NULL;
    address at = 0;
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 0));
    must("cuDeviceGetDefaultMemPool", CU(cuDeviceGetDefaultMemPool, &pool, 0));
    CU(cuMemPoolTrimTo, pool, (size_t)0);
    CU(cuMemPoolGetAttribute, pool, RESERVED, &before);
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, RELAXED));
    say_result("beside.alloc_in_the_legacy_stream", CU(cuMemAllocAsync, &at, (size_t)4096, NULL));
    say_result("beside.end", CU(cuStreamEndCapture, stream, &graph));
    CU(cuMemPoolGetAttribute, pool, RESERVED, &after);
    say_bool("beside.the_pool_has_not_grown", before == after);
    // A free that is refused has freed nothing.
    address plain = 0;
    must("cuMemAllocAsync", CU(cuMemAllocAsync, &at, (size_t)4096, NULL));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &plain, (size_t)4096));
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, RELAXED));
    say_result("beside.free_in_the_legacy_stream", CU(cuMemFreeAsync, at, NULL));
    CU(cuStreamEndCapture, stream, &graph);
    // The first may have invalidated its capture.
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, RELAXED));
    say_result("beside.free_of_plain_memory_there", CU(cuMemFreeAsync, plain, NULL));
    CU(cuStreamEndCapture, stream, &graph);
    say_result("beside.free_again", CU(cuMemFreeAsync, at, NULL));
    say_result("beside.free_of_plain_memory_again", CU(cuMemFreeAsync, plain, NULL));
    CU(cuStreamDestroy_v2, stream);
}

/* Flags that are for captures alone, where none is. */
static void outside(handle stream, handle event) {
    enum { EXTERNAL = 1 };
    say_result("outside.record_external", CU(cuEventRecordWithFlags, event, stream, EXTERNAL));
    say_result("outside.wait_external", CU(cuStreamWaitEvent, stream, event, EXTERNAL));
}

void capture_facts(void) {
    enum { GLOBAL, THREAD_LOCAL, RELAXED };
    handle stream = NULL, other = NULL, graph = NULL, exec = NULL, event = NULL;
    address a = 0, b = 0;
    int status = 9;
    unsigned char byte = 0;
    size_t nodes = 0;
    begin();
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    must("cuStreamCreate", CU(cuStreamCreate, &other, 1));
    must("cuEventCreate", CU(cuEventCreate, &event, 2));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &a, (size_t)4096));
    CU(cuMemsetD8_v2, a, 1, (size_t)4096);
    say_result("of_the_default_stream", CU(cuStreamBeginCapture_v2, NULL, RELAXED));
    say_result("end_without_begin", CU(cuStreamEndCapture, stream, &graph));
    say_result("not_capturing", CU(cuStreamIsCapturing, stream, &status));
    say_number("not_capturing_is", status);
    say_result("begin_nonsense", CU(cuStreamBeginCapture_v2, stream, 7));
    say_result("begin", CU(cuStreamBeginCapture_v2, stream, THREAD_LOCAL));
    say_result("begin_again", CU(cuStreamBeginCapture_v2, stream, THREAD_LOCAL));
    CU(cuStreamIsCapturing, stream, &status);
    say_number("capturing_is", status);
    say_result("fill", CU(cuMemsetD8Async, a, 5, (size_t)4096, stream));
    say_result("record", CU(cuEventRecord, event, stream));
    say_result("fork", CU(cuStreamWaitEvent, other, event, 0));
    CU(cuStreamIsCapturing, other, &status);
    say_number("forked_is", status);
    say_result("fill_forked", CU(cuMemsetD8Async, a + 1024, 6, (size_t)1024, other));
    say_result("record_forked", CU(cuEventRecord, event, other));
    say_result("join", CU(cuStreamWaitEvent, stream, event, 0));
    say_result("end", CU(cuStreamEndCapture, stream, &graph));
    say_result("nodes", CU(cuGraphGetNodes, graph, NULL, &nodes));
    say_number("nodes_are", (long long)nodes);
    CU(cuMemcpyDtoH_v2, &byte, a, (size_t)1);
    say_number("capturing_does_nothing", byte);
    say_result("instantiate", CU(cuGraphInstantiateWithFlags, &exec, graph, 0ULL));
    say_result("launch", CU(cuGraphLaunch, exec, stream));
    say_result("synchronize", CU(cuStreamSynchronize, stream));
    CU(cuMemcpyDtoH_v2, &byte, a, (size_t)1);
    say_number("launching_does_it", byte);
    CU(cuMemcpyDtoH_v2, &byte, a + 1500, (size_t)1);
    say_number("forked_comes_after", byte);
    say_result("destroy_exec", CU(cuGraphExecDestroy, exec));
    say_result("destroy_graph", CU(cuGraphDestroy, graph));
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, GLOBAL));
    say_result("forbidden.alloc", CU(cuMemAlloc_v2, &b, (size_t)512));
    CU(cuStreamIsCapturing, stream, &status);
    say_number("forbidden.invalidates", status);
    say_result("forbidden.end", CU(cuStreamEndCapture, stream, &graph));
    say_bool("forbidden.no_graph", graph == NULL);
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, RELAXED));
    say_result("relaxed.alloc", CU(cuMemAlloc_v2, &b, (size_t)512));
    say_result("relaxed.synchronize_it", CU(cuStreamSynchronize, stream));
    say_result("relaxed.end", CU(cuStreamEndCapture, stream, &graph));
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, RELAXED));
    CU(cuEventRecord, event, stream);
    CU(cuStreamWaitEvent, other, event, 0);
    CU(cuMemsetD8Async, a, 5, (size_t)16, other);
    say_result("unjoined.end", CU(cuStreamEndCapture, stream, &graph));
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, RELAXED));
    say_result("memory.alloc", CU(cuMemAllocAsync, &b, (size_t)4096, stream));
    say_result("memory.fill", CU(cuMemsetD8Async, b, 3, (size_t)4096, stream));
    say_result("memory.free", CU(cuMemFreeAsync, b, stream));
    say_result("memory.end", CU(cuStreamEndCapture, stream, &graph));
    say_result("memory.instantiate", CU(cuGraphInstantiateWithFlags, &exec, graph, 0ULL));
    say_result("memory.launch", CU(cuGraphLaunch, exec, stream));
    say_result("memory.synchronize", CU(cuStreamSynchronize, stream));
    refused_beside_one();
    outside(stream, event);
}
