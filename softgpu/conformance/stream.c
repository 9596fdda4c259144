// Streams and events.
#include "facts.h"

void stream_facts(void) {
    handle stream = NULL, other = NULL, event = NULL, plain = NULL, context = begin(), told = NULL;
    unsigned flags = 9;
    int priority = 9, least = 0, greatest = 0;
    float elapsed = -1;
    say_result("create", CU(cuStreamCreate, &stream, 1));
    say_result("create_to_null", CU(cuStreamCreate, NULL, 0));
    say_result("create_nonsense", CU(cuStreamCreate, &other, 0x80));
    say_result("flags", CU(cuStreamGetFlags, stream, &flags));
    say_number("flags_are", flags);
    say_result("context", CU(cuStreamGetCtx, stream, &told));
    say_bool("context_is_the_current", told == context);
    CU(cuCtxGetStreamPriorityRange, &least, &greatest);
    say_result("create_with_priority", CU(cuStreamCreateWithPriority, &other, 1, greatest - 100));
    say_result("priority", CU(cuStreamGetPriority, other, &priority));
    say_bool("priority_is_clamped", priority == greatest);
    say_result("query_idle", CU(cuStreamQuery, stream));
    say_result("synchronize_default", CU(cuStreamSynchronize, NULL));
    say_result("synchronize_legacy", CU(cuStreamSynchronize, (handle)1));
    say_result("synchronize_per_thread", CU(cuStreamSynchronize, (handle)2));
    say_result("destroy_default", CU(cuStreamDestroy_v2, NULL));
    say_result("event", CU(cuEventCreate, &event, 0));
    say_result("event_without_timing", CU(cuEventCreate, &plain, 2));
    say_result("event_nonsense", CU(cuEventCreate, &told, 0x100));
    say_result("event_interprocess_with_timing", CU(cuEventCreate, &told, 4));
    say_result("event_to_null", CU(cuEventCreate, NULL, 0));
    say_result("query_unrecorded", CU(cuEventQuery, event));
    say_result("synchronize_unrecorded", CU(cuEventSynchronize, event));
    say_result("wait_for_unrecorded", CU(cuStreamWaitEvent, stream, event, 0));
    say_result("wait_nonsense", CU(cuStreamWaitEvent, stream, event, 0x40));
    say_result("elapsed_unrecorded", CU(cuEventElapsedTime, &elapsed, event, event));
    say_result("record", CU(cuEventRecord, event, stream));
    say_result("synchronize_recorded", CU(cuEventSynchronize, event));
    say_result("query_recorded", CU(cuEventQuery, event));
    say_result("elapsed", CU(cuEventElapsedTime, &elapsed, event, event));
    say_bool("elapsed_to_itself_is_0", elapsed == 0);
    CU(cuEventRecord, plain, stream);
    CU(cuEventSynchronize, plain);
    say_result("elapsed_without_timing", CU(cuEventElapsedTime, &elapsed, plain, event));
    say_result("wait_across_streams", CU(cuStreamWaitEvent, other, event, 0));
    say_result("destroy_event", CU(cuEventDestroy_v2, event));
    say_result("destroy", CU(cuStreamDestroy_v2, stream));
    say_result("context_synchronize", CU(cuCtxSynchronize));
}

void values_facts(void) {
    address a = 0;
    handle stream = NULL;
    uint32_t seen = 0;
    begin();
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &a, (size_t)4096));
    say_result("write_32", CU(cuStreamWriteValue32_v2, stream, a, 77u, 0u));
    say_result("wait_32", CU(cuStreamWaitValue32_v2, stream, a, 77u, 1u));
    say_result("wait_32_misaligned", CU(cuStreamWaitValue32_v2, stream, a + 2, 77u, 1u));
    say_result("write_64", CU(cuStreamWriteValue64_v2, stream, a + 8, 1ULL << 40, 0u));
    say_result("wait_64", CU(cuStreamWaitValue64_v2, stream, a + 8, 1ULL << 39, 0u));
    say_result("synchronize", CU(cuStreamSynchronize, stream));
    CU(cuMemcpyDtoH_v2, &seen, a, (size_t)4);
    say_number("written", seen);
}
