// Primary contexts, user contexts, and each thread's stack of them.
#include "facts.h"

void primary_facts(void) {
    handle context = NULL, again = NULL, current = NULL;
    unsigned flags = 9;
    int active = 9, number = 0;
    address pointer = 0;
    must("cuInit", CU(cuInit, 0));
    say_result("state", CU(cuDevicePrimaryCtxGetState, 0, &flags, &active));
    say_number("active_at_first", active);
    say_number("flags_at_first", flags);
    say_result("release_unretained", CU(cuDevicePrimaryCtxRelease_v2, 0));
    say_result("retain_to_null", CU(cuDevicePrimaryCtxRetain, NULL, 0));
    say_result("retain_of_no_device", CU(cuDevicePrimaryCtxRetain, &context, 99));
    say_result("set_flags", CU(cuDevicePrimaryCtxSetFlags_v2, 0, 4));
    say_result("set_flags_nonsense", CU(cuDevicePrimaryCtxSetFlags_v2, 0, 0x1000));
    say_result("set_flags_two_ways_of_waiting", CU(cuDevicePrimaryCtxSetFlags_v2, 0, 3));
    must("cuDevicePrimaryCtxRetain", CU(cuDevicePrimaryCtxRetain, &context, 0));
    CU(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    say_number("active_when_retained", active);
    say_number("flags_when_retained", flags);
    say_result("retaining_makes_nothing_current", CU(cuCtxGetDevice, &number));
    CU(cuDevicePrimaryCtxRetain, &again, 0);
    say_bool("retained_twice_is_the_same", again == context);
    say_result("destroy", CU(cuCtxDestroy_v2, context));
    CU(cuCtxSetCurrent, context);
    say_result("release_one_of_two", CU(cuDevicePrimaryCtxRelease_v2, 0));
    say_result("still_usable", CU(cuCtxSynchronize));
    say_result("release_last", CU(cuDevicePrimaryCtxRelease_v2, 0));
    CU(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    say_number("active_when_released", active);
    say_result("current_when_released", CU(cuCtxGetCurrent, &current));
    say_bool("current_stays_the_same_when_released", current == context);
    say_result("use_when_released", CU(cuMemAlloc_v2, &pointer, (size_t)512));
    CU(cuDevicePrimaryCtxRetain, &again, 0);
    say_bool("retained_anew_is_the_same", again == context);
    say_result("use_when_retained_anew", CU(cuMemAlloc_v2, &pointer, (size_t)512));
    say_result("reset", CU(cuDevicePrimaryCtxReset_v2, 0));
    CU(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    say_number("active_when_reset", active);
}

static void other_thread(void *context) {
    handle current = &current;
    int number = 0;
    say_result("thread.current", CU(cuCtxGetCurrent, &current));
    say_bool("thread.has_none", current == NULL);
    say_result("thread.device", CU(cuCtxGetDevice, &number));
    say_result("thread.push", CU(cuCtxPushCurrent_v2, context));
    say_result("thread.use", CU(cuCtxSynchronize));
}

static void destroys(void *context) { say_result("thread.destroys", CU(cuCtxDestroy_v2, context)); }

static void limits(void) {
    size_t value = 0;
    say_result("limit.stack", CU(cuCtxGetLimit, &value, 0));
    say_number("limit.stack_is", (long long)value);
    say_result("limit.set_stack", CU(cuCtxSetLimit, 0, (size_t)2048));
    CU(cuCtxGetLimit, &value, 0);
    say_number("limit.stack_is_then", (long long)value);
    say_result("limit.heap", CU(cuCtxGetLimit, &value, 2));
    say_number("limit.heap_is", (long long)value);
    say_result("limit.unknown", CU(cuCtxGetLimit, &value, 1000));
    say_result("limit.to_null", CU(cuCtxGetLimit, NULL, 0));
}

// Calls of a thread without a context, in a stream that has one, and of memory and events that have one.
static void in_a_stream(void) {
    handle context = NULL, stream = NULL, event = NULL;
    address plain = 0, pooled = 0;
    unsigned byte = 0;
    must("cuCtxCreate", CU(cuCtxCreate_v2, &context, 0, 0));
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1));
    must("cuEventCreate", CU(cuEventCreate, &event, 2));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &plain, (size_t)4096));
    must("cuCtxPopCurrent", CU(cuCtxPopCurrent_v2, &context));
    say_result("none.alloc_async", CU(cuMemAllocAsync, &pooled, (size_t)4096, NULL));
    say_result("none.in_a_stream.alloc_async", CU(cuMemAllocAsync, &pooled, (size_t)4096, stream));
    say_result("none.in_a_stream.fill", CU(cuMemsetD8Async, plain, 1, (size_t)16, stream));
    say_result("none.in_a_stream.copy", CU(cuMemcpyHtoDAsync_v2, plain, &byte, (size_t)4, stream));
    say_result("none.in_a_stream.free_async", CU(cuMemFreeAsync, pooled, stream));
    say_result("none.in_a_stream.record", CU(cuEventRecord, event, stream));
    say_result("none.in_a_stream.query", CU(cuStreamQuery, stream));
    say_result("none.in_a_stream.synchronize", CU(cuStreamSynchronize, stream));
    say_result("none.event_query", CU(cuEventQuery, event));
    say_result("none.free", CU(cuMemFree_v2, plain));
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, context));
    CU(cuCtxSynchronize);
    CU(cuCtxDestroy_v2, context);
}

void context_facts(void) {
    handle a = NULL, b = NULL, current = &current;
    int number = 0, least = 9, greatest = 9;
    unsigned version = 0, flags = 9;
    size_t bytes = 0;
    address pointer = 0;
    must("cuInit", CU(cuInit, 0));
    say_result("none.get", CU(cuCtxGetCurrent, &current));
    say_bool("none.is_null", current == NULL);
    say_result("none.get_to_null", CU(cuCtxGetCurrent, NULL));
    say_result("none.device", CU(cuCtxGetDevice, &number));
    say_result("none.synchronize", CU(cuCtxSynchronize));
    say_result("none.pop", CU(cuCtxPopCurrent_v2, &current));
    say_result("none.set_none", CU(cuCtxSetCurrent, NULL));
    say_result("none.info", CU(cuMemGetInfo_v2, &bytes, &bytes));
    say_result("none.alloc", CU(cuMemAlloc_v2, &pointer, (size_t)512));
    say_result("none.priorities", CU(cuCtxGetStreamPriorityRange, &least, &greatest));
    say_result("create_to_null", CU(cuCtxCreate_v2, NULL, 0, 0));
    say_result("create_on_no_device", CU(cuCtxCreate_v2, &a, 0, 99));
    say_result("create_with_nonsense", CU(cuCtxCreate_v2, &a, 0x10000, 0));
    must("cuCtxCreate", CU(cuCtxCreate_v2, &a, 4, 0));
    CU(cuCtxGetCurrent, &current);
    say_bool("created_is_current", current == a);
    say_result("flags", CU(cuCtxGetFlags, &flags));
    say_bool("flags_hold_what_was_asked", (flags & 7) == 4);
    say_result("version", CU(cuCtxGetApiVersion, a, &version));
    say_result("priorities", CU(cuCtxGetStreamPriorityRange, &least, &greatest));
    say_number("priorities.least", least);
    say_bool("priorities.greatest_is_lower", greatest < least);
    limits();
    must("cuCtxCreate", CU(cuCtxCreate_v2, &b, 0, 0));
    say_bool("second_is_another", a != b);
    say_result("pop", CU(cuCtxPopCurrent_v2, &current));
    say_bool("pop_takes_the_last", current == b);
    CU(cuCtxGetCurrent, &current);
    say_bool("pop_uncovers_the_first", current == a);
    say_result("set_replaces", CU(cuCtxSetCurrent, b));
    CU(cuCtxPopCurrent_v2, NULL);
    CU(cuCtxGetCurrent, &current);
    say_bool("set_replaced_the_top", current == NULL);
    say_result("push", CU(cuCtxPushCurrent_v2, a));
    say_result("push_twice", CU(cuCtxPushCurrent_v2, a));
    in_thread(other_thread, b);
    in_thread(destroys, a);
    CU(cuCtxGetCurrent, &current);
    say_bool("destroyed_elsewhere_stays_current", current == a);
    say_result("destroyed_elsewhere.synchronize", CU(cuCtxSynchronize));
    say_result("destroyed_elsewhere.alloc", CU(cuMemAlloc_v2, &pointer, (size_t)512));
    say_result("destroyed_elsewhere.pop", CU(cuCtxPopCurrent_v2, &current));
    CU(cuCtxPopCurrent_v2, &current);
    CU(cuCtxPushCurrent_v2, b);
    say_result("destroy_current", CU(cuCtxDestroy_v2, b));
    CU(cuCtxGetCurrent, &current);
    say_bool("destroying_takes_it_off", current == NULL);
    in_a_stream();
}
