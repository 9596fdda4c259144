// The end of the process: the driver's own exit handler runs after those that were registered when it had been initialised, whether or
// not a context was made later.
#include "facts.h"

static handle event;

static void ask(const char *when) {
    char fact[64];
    handle current = NULL;
    snprintf(fact, sizeof fact, "%s.current", when);
    say_result(fact, CU(cuCtxGetCurrent, &current));
    snprintf(fact, sizeof fact, "%s.has_a_context", when);
    say_bool(fact, current != NULL);
    snprintf(fact, sizeof fact, "%s.query", when);
    say_result(fact, CU(cuEventQuery, event));
}

static void last(void) { ask("registered_before_the_context"); }
static void first(void) { ask("registered_after_the_context"); }

void ending_facts(void) {
    must("cuInit", CU(cuInit, 0));
    atexit(last);
    begin();
    must("cuEventCreate", CU(cuEventCreate, &event, 2u));
    must("cuEventRecord", CU(cuEventRecord, event, NULL));
    must("cuEventSynchronize", CU(cuEventSynchronize, event));
    atexit(first);
}
