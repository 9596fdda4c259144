// Green contexts and their resources. Each fact's source is the description of the function named in the comment above it, in
// the section "Green Contexts" of the driver API's reference, unless another section is named.
#include "facts.h"

#define SM 1
#define DEFAULT_STREAM 1
#define NON_BLOCKING 1
#define PER_THREAD ((handle)2)

// CUdevResource, 144 bytes.
typedef union {
    struct {
        unsigned type;
        unsigned char own[92];
        unsigned count, least, align;
    };
    unsigned char all[144];
} resource;

static void resources(void) {
    resource whole = {0}, parts[3] = {{0}}, rest = {0}, again = {0};
    unsigned groups = 0;
    handle desc = NULL;
    // cuDeviceGetDevResource
    say_result("device_resource", CU(cuDeviceGetDevResource, 0, &whole, SM));
    say_bool("device_has_multiprocessors", whole.type == SM && whole.count > 0);
    say_result("device_resource_to_null", CU(cuDeviceGetDevResource, 0, NULL, SM));
    say_result("device_resource_of_no_device", CU(cuDeviceGetDevResource, 99, &again, SM));
    say_result("device_resource_of_no_type", CU(cuDeviceGetDevResource, 0, &again, 7));
    // cuDevSmResourceSplitByCount: without a result array it only counts; minCount is between 0 and the input's count.
    say_result("split.count_only", CU(cuDevSmResourceSplitByCount, NULL, &groups, &whole, NULL, 0, 1));
    say_bool("split.there_are_some", groups > 0 && groups <= whole.count);
    groups = 2;
    say_result("split.in_two", CU(cuDevSmResourceSplitByCount, parts, &groups, &whole, &rest, 0, 10));
    say_number("split.groups", groups);
    say_bool("split.parts_are_equal_and_enough", parts[0].count == parts[1].count && parts[0].count >= 10);
    say_bool("split.parts_are_aligned", parts[0].count % 2 == 0);
    say_bool("split.rest_is_what_is_left", rest.type == SM && rest.count == whole.count - 2 * parts[0].count);
    say_result("split.groups_to_null", CU(cuDevSmResourceSplitByCount, parts, NULL, &whole, NULL, 0, 1));
    groups = 1;
    say_result("split.of_null", CU(cuDevSmResourceSplitByCount, parts, &groups, NULL, NULL, 0, 1));
    say_result("split.more_than_there_are", CU(cuDevSmResourceSplitByCount, &again, &groups, &whole, NULL, 0, 100000));
    say_result("split.unknown_flags", CU(cuDevSmResourceSplitByCount, &again, &groups, &whole, NULL, 0x100, 1));
    // "the output results cannot be split again without first creating a descriptor and a green context"
    say_result("split.of_a_part", CU(cuDevSmResourceSplitByCount, &again, &groups, &parts[0], NULL, 0, 1));
    memset(&again, 0, sizeof again);
    say_result("split.of_no_resource", CU(cuDevSmResourceSplitByCount, &again, &groups, &again, NULL, 0, 1));
    // cuDevResourceGenerateDesc
    say_result("desc", CU(cuDevResourceGenerateDesc, &desc, parts, 1));
    say_result("desc.of_two_parts", CU(cuDevResourceGenerateDesc, &desc, parts, 2));
    say_result("desc.to_null", CU(cuDevResourceGenerateDesc, NULL, parts, 1));
    say_result("desc.of_none", CU(cuDevResourceGenerateDesc, &desc, parts, 0));
    say_result("desc.of_no_resource", CU(cuDevResourceGenerateDesc, &desc, &again, 1));
    groups = 1;
    CU(cuDevSmResourceSplitByCount, &parts[2], &groups, &whole, NULL, 0, 10);
    // "they must be outputs from the same split API instance"
    parts[1] = parts[2];
    say_result("desc.of_two_splits", CU(cuDevResourceGenerateDesc, &desc, parts, 2));
}

handle green_described(void) {
    resource whole, part;
    unsigned groups = 1;
    handle desc = NULL;
    must("cuDeviceGetDevResource", CU(cuDeviceGetDevResource, 0, &whole, SM));
    must("cuDevSmResourceSplitByCount", CU(cuDevSmResourceSplitByCount, &part, &groups, &whole, NULL, 0, 8));
    must("cuDevResourceGenerateDesc", CU(cuDevResourceGenerateDesc, &desc, &part, 1));
    return desc;
}

static int is_active(void) {
    unsigned flags;
    int active = 0;
    CU(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    return active;
}

static void life(void) {
    handle desc = green_described(), green = NULL, context = NULL, again = NULL, primary = NULL, current = NULL;
    unsigned long long id = 0;
    // cuGreenCtxCreate
    if (driver_version() < NEEDS_NO_STREAM)
        say_result("create_without_the_flag_before_13_3", CU(cuGreenCtxCreate, &green, desc, 0, 0));
    else
        say("create_without_the_flag_before_13_3", "absent");
    say_result("create_with_nonsense", CU(cuGreenCtxCreate, &green, desc, 0, 0x11));
    say_result("create_to_null", CU(cuGreenCtxCreate, NULL, desc, 0, DEFAULT_STREAM));
    say_result("create_on_no_device", CU(cuGreenCtxCreate, &green, desc, 99, DEFAULT_STREAM));
    say_bool("primary_before", is_active());
    must("cuGreenCtxCreate", CU(cuGreenCtxCreate, &green, desc, 0, DEFAULT_STREAM));
    // "will retain the primary context", "does not set the green context current"
    say_bool("create_retains_the_primary", is_active());
    CU(cuCtxGetCurrent, &current);
    say_bool("create_makes_nothing_current", current == NULL);
    // cuCtxFromGreenCtx: without it "the APIs return CUDA_ERROR_INVALID_CONTEXT"
    say_result("green_handle_as_a_context", CU(cuCtxSetCurrent, green));
    say_result("convert", CU(cuCtxFromGreenCtx, &context, green));
    say_result("convert_to_null", CU(cuCtxFromGreenCtx, NULL, green));
    say_result("convert_nothing", CU(cuCtxFromGreenCtx, &again, NULL));
    CU(cuCtxFromGreenCtx, &again, green);
    say_bool("converted_twice_is_the_same", again == context);
    must("cuDevicePrimaryCtxRetain", CU(cuDevicePrimaryCtxRetain, &primary, 0));
    say_bool("converted_is_not_the_primary_handle", context != primary);
    say_result("set_current", CU(cuCtxSetCurrent, context));
    CU(cuCtxGetCurrent, &current);
    say_bool("current_is_the_converted", current == context);
    // cuGreenCtxGetId: the null handle means the current green context
    say_result("id_of_current", CU(cuGreenCtxGetId, NULL, &id));
    CU(cuCtxSetCurrent, NULL);
    say_result("id_without_current", CU(cuGreenCtxGetId, NULL, &id));
    // cuGreenCtxDestroy: releases the primary context
    CU(cuDevicePrimaryCtxRelease_v2, 0);
    say_bool("primary_while_it_lives", is_active());
    say_result("destroy", CU(cuGreenCtxDestroy, green));
    say_bool("destroy_releases_the_primary", !is_active());
    say_result("destroy_nothing", CU(cuGreenCtxDestroy, NULL));
}

static void share(handle green, handle context, handle primary) {
    resource of = {0}, whole = {0};
    address pointer = 0;
    int value = 0;
    CU(cuDeviceGetDevResource, 0, &whole, SM);
    // cuCtxGetDevResource, cuGreenCtxGetDevResource
    say_result("resource_of_green", CU(cuGreenCtxGetDevResource, green, &of, SM));
    say_bool("resource_of_green_is_its_part", of.count >= 8 && of.count < whole.count);
    unsigned part = of.count;
    CU(cuCtxGetDevResource, context, &of, SM);
    say_bool("resource_of_the_converted_is_its_part", of.count == part);
    CU(cuCtxGetDevResource, primary, &of, SM);
    say_bool("resource_of_the_primary_is_the_device", of.count == whole.count);
    say_result("resource_of_green_of_no_type", CU(cuGreenCtxGetDevResource, green, &of, 7));
    // cuCtxFromGreenCtx: "a normal primary context but with the resources of the specified green context": memory is the primary's
    CU(cuCtxSetCurrent, context);
    say_result("alloc_in_green", CU(cuMemAlloc_v2, &pointer, (size_t)4096));
    CU(cuCtxSetCurrent, primary);
    say_result("used_in_the_primary", CU(cuMemsetD32_v2, pointer, 7, (size_t)1024));
    CU(cuCtxSynchronize);
    CU(cuCtxSetCurrent, context);
    say_result("read_in_green", CU(cuMemcpyDtoH_v2, &value, pointer, (size_t)4));
    say_number("reads", value);
    CU(cuCtxSetCurrent, primary);
    say_result("freed_in_the_primary", CU(cuMemFree_v2, pointer));
}

static void streams(handle green, handle context, handle primary) {
    handle stream = NULL, own = NULL, answer = NULL, of = NULL, event = NULL;
    resource part = {0};
    unsigned flags = 0;
    // cuGreenCtxStreamCreate: CU_STREAM_NON_BLOCKING must be specified; the current context does not matter
    say_result("stream.blocking", CU(cuGreenCtxStreamCreate, &stream, green, 0, 0));
    say_result("stream.to_null", CU(cuGreenCtxStreamCreate, NULL, green, NON_BLOCKING, 0));
    say_result("stream.of_nothing", CU(cuGreenCtxStreamCreate, &stream, NULL, NON_BLOCKING, 0));
    CU(cuCtxSetCurrent, NULL);
    say_result("stream.create", CU(cuGreenCtxStreamCreate, &stream, green, NON_BLOCKING, 0));
    CU(cuCtxSetCurrent, primary);
    CU(cuStreamGetFlags, stream, &flags);
    say_number("stream.flags", flags);
    // cuStreamGetGreenCtx
    say_result("stream.green", CU(cuStreamGetGreenCtx, stream, &answer));
    say_bool("stream.green_is_it", answer == green);
    say_result("stream.green_of_legacy", CU(cuStreamGetGreenCtx, NULL, &answer));
    say_bool("stream.green_of_legacy_is_none", answer == NULL);
    // cuStreamGetCtx, cuStreamGetCtx_v2 (section "Stream Management")
    CU(cuStreamGetCtx, stream, &answer);
    say_bool("stream.context_is_the_converted", answer == context);
    CU(cuStreamGetCtx_v2, stream, &answer, &of);
    say_bool("stream.contexts_are_primary_and_green", answer == primary && of == green);
    CU(cuCtxSetCurrent, context);
    CU(cuStreamGetCtx_v2, NULL, &answer, &of);
    say_bool("stream.contexts_of_legacy_in_green", answer == primary && of == green);
    say_result("stream.per_thread_in_green", CU(cuStreamGetCtx_v2, PER_THREAD, &answer, &of));
    CU(cuStreamGetGreenCtx, NULL, &answer);
    say_bool("stream.green_of_legacy_in_green", answer == green);
    must("cuStreamCreate", CU(cuStreamCreate, &own, 0));
    CU(cuStreamGetGreenCtx, own, &answer);
    say_bool("stream.made_in_green_is_its", answer == green);
    CU(cuCtxSetCurrent, primary);
    // cuStreamGetDevResource
    static const char *const of_streams[] = {"stream.resource", NULL};
    if (!lacks("cuStreamGetDevResource", of_streams)) say_result("stream.resource", CU(cuStreamGetDevResource, stream, &part, SM));
    // cuGreenCtxRecordEvent, cuGreenCtxWaitEvent; the event is the primary context's
    must("cuEventCreate", CU(cuEventCreate, &event, 2));
    say_result("event.in_its_stream", CU(cuEventRecord, event, stream));
    say_result("event.in_green", CU(cuGreenCtxRecordEvent, green, event));
    say_result("event.synchronize", CU(cuEventSynchronize, event));
    say_result("event.waited_for_by_green", CU(cuGreenCtxWaitEvent, green, event));
    say_result("event.none_in_green", CU(cuGreenCtxRecordEvent, green, NULL));
    // The same with the converted handle (section "Context Management": cuCtxRecordEvent)
    say_result("event.in_the_converted", CU(cuCtxRecordEvent, context, event));
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, 2));
    say_result("event.in_green_that_captures", CU(cuGreenCtxRecordEvent, green, event));
    say_result("event.capture_is_invalid", CU(cuStreamEndCapture, stream, &of));
}

// A family may end the process that asks it, so that each has its own.
void green_facts(void) {
    must("cuInit", CU(cuInit, 0));
    resources();
}

void green_life_facts(void) {
    must("cuInit", CU(cuInit, 0));
    life();
}

void green_use_facts(void) {
    handle green = NULL, context = NULL, primary = begin();
    must("cuGreenCtxCreate", CU(cuGreenCtxCreate, &green, green_described(), 0, DEFAULT_STREAM));
    must("cuCtxFromGreenCtx", CU(cuCtxFromGreenCtx, &context, green));
    share(green, context, primary);
    streams(green, context, primary);
}

// What a destroyed green context leaves.
void green_end_facts(void) {
    handle green = NULL, context = NULL, stream = NULL, own = NULL, second = NULL, primary = begin();
    must("cuGreenCtxCreate", CU(cuGreenCtxCreate, &green, green_described(), 0, DEFAULT_STREAM));
    must("cuCtxFromGreenCtx", CU(cuCtxFromGreenCtx, &context, green));
    must("cuGreenCtxStreamCreate", CU(cuGreenCtxStreamCreate, &stream, green, NON_BLOCKING, 0));
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, context));
    must("cuStreamCreate", CU(cuStreamCreate, &own, 0));
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, primary));
    must("cuStreamBeginCapture", CU(cuStreamBeginCapture_v2, stream, 2));
    must("cuStreamCreate", CU(cuStreamCreate, &second, NON_BLOCKING));
    // cuGreenCtxDestroy: streams stay, detached; captures on them are invalid
    say_result("detached.destroy_green", CU(cuGreenCtxDestroy, green));
    say_bool("detached.query_fails", CU(cuStreamQuery, stream) != 0);
    say_bool("detached.own_query_fails", CU(cuStreamQuery, own) != 0);
    say_result("detached.others_do_not", CU(cuStreamQuery, second));
    // Since 13.1: "any subsequent API calls involving these streams will return CUDA_ERROR_STREAM_DETACHED", cuStreamDestroy excepted
    result streams = CU(cuStreamDestroy_v2, stream), owns = CU(cuStreamDestroy_v2, own);
    if (driver_version() < 13010) {
        say("detached.stream_destroy", "absent");
        say("detached.own_destroy", "absent");
        say_result("detached.stream_destroy_before_13_1", streams);
        say_result("detached.own_destroy_before_13_1", owns);
    } else {
        say_result("detached.stream_destroy", streams);
        say_result("detached.own_destroy", owns);
        say("detached.stream_destroy_before_13_1", "absent");
        say("detached.own_destroy_before_13_1", "absent");
    }
    say_result("destroy_again", CU(cuGreenCtxDestroy, green));
}

void green_as_context_facts(void) {
    handle green = NULL, context = NULL;
    begin();
    must("cuGreenCtxCreate", CU(cuGreenCtxCreate, &green, green_described(), 0, DEFAULT_STREAM));
    must("cuCtxFromGreenCtx", CU(cuCtxFromGreenCtx, &context, green));
    say_result("destroy_as_a_context", CU(cuCtxDestroy_v2, context));
}

// Not asked: the use of a context whose green context is destroyed. It is undefined: driver 580.159.04 makes it current, and ends the
// process by a double free when another one becomes current.
void green_undescribed_facts(void) {
    handle green = NULL;
    resource whole = {0}, of = {0};
    begin();
    say_result("create_of_no_desc", CU(cuGreenCtxCreate, &green, NULL, 0, DEFAULT_STREAM));
    must("cuDeviceGetDevResource", CU(cuDeviceGetDevResource, 0, &whole, SM));
    say_result("resource_of_no_desc", CU(cuGreenCtxGetDevResource, green, &of, SM));
    say_bool("of_no_desc_has_the_whole_device", of.count == whole.count);
    say_result("destroy_of_no_desc", CU(cuGreenCtxDestroy, green));
}
