// What events behind a program's work stand for: of blocking streams behind the legacy one, of a whole context, of contexts that have
// failed or were reset.
#include "facts.h"

static address word_at;
static volatile uint32_t *word;
static unsigned number;

/* Makes a stream wait for a value that is written by go_on(). */
static void hold(handle stream) {
    must("cuStreamWaitValue32", CU(cuStreamWaitValue32_v2, stream, word_at, ++number, 0u));
}

static void go_on(void) { *word = number; }

/* The answer for an event while the stream that is held still waits, and after that. */
static void behind(const char *fact, handle event) {
    char then[64];
    say_result(fact, CU(cuEventQuery, event));
    go_on();
    CU(cuCtxSynchronize);
    snprintf(then, sizeof then, "%s_then", fact);
    say_result(then, CU(cuEventQuery, event));
}

/* Destroys the events' context by a reset while one is recorded, and asks for it. */
static void after_a_reset(handle context, handle event) {
    handle again = NULL, other = NULL;
    CU(cuEventRecord, event, NULL);
    say_result("reset", CU(cuDevicePrimaryCtxReset_v2, 0));
    say_result("after_a_reset.push", CU(cuCtxPushCurrent_v2, context));
    must("cuDevicePrimaryCtxRetain", CU(cuDevicePrimaryCtxRetain, &again, 0));
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, again));
    say_bool("after_a_reset.the_handle_is_the_same", again == context);
    say_result("after_a_reset.create", CU(cuEventCreate, &other, 2u));
    say_result("after_a_reset.record", CU(cuEventRecord, other, NULL));
    say_result("after_a_reset.synchronize", CU(cuEventSynchronize, other));
}

void marks_facts(void) {
    handle blocking = NULL, second = NULL, apart = NULL, event = NULL, another = NULL, context = begin();
    must("cuMemHostAlloc", CU(cuMemHostAlloc, (void **)&word, (size_t)4096, 2u));
    must("cuMemHostGetDevicePointer", CU(cuMemHostGetDevicePointer_v2, &word_at, (void *)word, 0u));
    *word = 0;
    must("cuStreamCreate", CU(cuStreamCreate, &blocking, 0u));
    must("cuStreamCreate", CU(cuStreamCreate, &second, 0u));
    must("cuStreamCreate", CU(cuStreamCreate, &apart, 1u));
    must("cuEventCreate", CU(cuEventCreate, &event, 2u));
    must("cuEventCreate", CU(cuEventCreate, &another, 2u));

    hold(NULL);
    say_result("record_in_a_blocking_stream", CU(cuEventRecord, event, blocking));
    behind("blocking_stream_behind_legacy_work", event);
    hold(NULL);
    say_result("record_in_a_stream_apart", CU(cuEventRecord, event, apart));
    CU(cuStreamSynchronize, apart);
    behind("stream_apart_beside_legacy_work", event);
    hold(blocking);
    say_result("record_in_another_blocking_stream", CU(cuEventRecord, event, second));
    CU(cuStreamSynchronize, second);
    behind("another_blocking_stream", event);
    hold((handle)2);
    say_result("record_in_the_context", CU(cuCtxRecordEvent, context, event));
    behind("context_behind_a_per_thread_stream", event);
    hold(apart);
    CU(cuEventRecord, event, apart);
    say_result("record_elsewhere_while_not_passed", CU(cuEventRecord, event, second));
    CU(cuStreamSynchronize, second);
    behind("the_last_recording_counts", event);
    hold(apart);
    CU(cuEventRecord, event, apart);
    say_result("destroy_while_not_passed", CU(cuEventDestroy_v2, event));
    CU(cuEventRecord, another, apart);
    behind("an_event_behind_a_destroyed_one", another);
    after_a_reset(context, another);
}
