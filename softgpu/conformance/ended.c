// A context that was destroyed: whether the next one has its handle, and what calls that name it or its objects answer.
#include "facts.h"

static handle stream, event;

// A user context with a stream and an event, which is current in no thread.
static handle made(void) {
    handle context = NULL;
    must("cuCtxCreate", CU(cuCtxCreate_v2, &context, 0u, 0));
    must("cuStreamCreate", CU(cuStreamCreate, &stream, 1u));
    must("cuEventCreate", CU(cuEventCreate, &event, 2u));
    must("cuEventRecord", CU(cuEventRecord, event, stream));
    must("cuCtxPopCurrent", CU(cuCtxPopCurrent_v2, &context));
    return context;
}

void ended_facts(void) {
    handle context, again, own = begin();
    context = made();
    must("cuCtxDestroy", CU(cuCtxDestroy_v2, context));
    again = made();
    say_bool("the_next_context_has_its_handle", again == context);
    must("cuCtxDestroy", CU(cuCtxDestroy_v2, again));
    say_result("destroy_twice", CU(cuCtxDestroy_v2, again));
    say_result("push", CU(cuCtxPushCurrent_v2, again));
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, own));
    say_result("stream_query", CU(cuStreamQuery, stream));
    say_result("event_query", CU(cuEventQuery, event));
    say_result("event_destroy", CU(cuEventDestroy_v2, event));
    say_result("stream_destroy", CU(cuStreamDestroy_v2, stream));
    say_result("another_ones_synchronize", CU(cuCtxSynchronize));
}
