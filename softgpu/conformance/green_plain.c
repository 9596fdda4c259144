// Green contexts without a default stream (cuda.h of 13.3, CU_GREEN_CTX_NONE). No page says what the default stream means in one.
#include "facts.h"

void green_plain_facts(void) {
    static const char *const facts[] = {"plain.create", "plain.green_of_the_default_stream", "plain.default_stream_is_its_own",
                                        "plain.work_in_the_default_stream", "plain.synchronize", "plain.destroy", NULL};
    handle green = NULL, context = NULL, of = NULL, primary = begin();
    address at = 0;
    if (driver_version() < NEEDS_NO_STREAM) {
        for (const char *const *fact = facts; *fact; fact++) say(*fact, "absent");
        return;
    }
    must("cuMemAlloc", CU(cuMemAlloc_v2, &at, (size_t)4096));
    say_result(facts[0], CU(cuGreenCtxCreate, &green, green_described(), 0, 0));
    must("cuCtxFromGreenCtx", CU(cuCtxFromGreenCtx, &context, green));
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, context));
    say_result(facts[1], CU(cuStreamGetGreenCtx, NULL, &of));
    say_bool(facts[2], of == green);
    say_result(facts[3], CU(cuMemsetD32Async, at, 7, (size_t)4, NULL));
    say_result(facts[4], CU(cuCtxSynchronize));
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent, primary));
    say_result(facts[5], CU(cuGreenCtxDestroy, green));
}
