// cuGetProcAddress: the variant it returns, and its errors.
#include "facts.h"

static void *found(const char *name, int version, unsigned long long flags, int *status) {
    void *pointer = NULL;
    int unused;
    if (CU(cuGetProcAddress_v2, name, &pointer, version, flags, status ? status : &unused)) return NULL;
    return pointer;
}

static void failing(const char *fact, const char *name, int version, unsigned long long flags) {
    char text[96];
    void *pointer = &pointer;
    int status = -1;
    say_result(fact, CU(cuGetProcAddress_v2, name, &pointer, version, flags, &status));
    snprintf(text, sizeof text, "%s.pointer_is_null", fact);
    say_bool(text, pointer == NULL);
    snprintf(text, sizeof text, "%s.status", fact);
    say_number(text, status);
}

void lookup_facts(void) {
    int version = 0;
    must("cuDriverGetVersion", CU(cuDriverGetVersion, &version));
    say_bool("works_before_init", found("cuInit", 12000, 0, NULL) != NULL);
    say_bool("ctx_create_differs_by_version", found("cuCtxCreate", 3020, 0, NULL) != found("cuCtxCreate", 11040, 0, NULL));
    say_bool("same_variant_between_its_versions", found("cuMemAlloc", 3020, 0, NULL) == found("cuMemAlloc", 12000, 0, NULL));
    say_bool("legacy_flag_is_plain", found("cuMemcpyAsync", 12000, 1, NULL) == found("cuMemcpyAsync", 12000, 0, NULL));
    say_bool("per_thread_flag_is_another", found("cuMemcpyAsync", 12000, 2, NULL) != found("cuMemcpyAsync", 12000, 0, NULL));
    say_bool("per_thread_flag_without_twin_is_plain", found("cuInit", 12000, 2, NULL) == found("cuInit", 12000, 0, NULL));
    say_bool("itself_before_12000_is_another", found("cuGetProcAddress", 11030, 0, NULL) != found("cuGetProcAddress", 12000, 0, NULL));
    say_bool("status_may_be_null", ({
        void *pointer = NULL;
        CU(cuGetProcAddress_v2, "cuInit", &pointer, 12000, 0ULL, NULL) == 0 && pointer;
    }));
    int status = -1;
    found("cuInit", 12000, 0, &status);
    say_number("status_of_found", status);
    failing("unknown_name", "cuNoSuchFunction", 12000, 0);
    failing("empty_name", "", 12000, 0);
    failing("suffixed_name", "cuMemAlloc_v2", 12000, 0);
    failing("version_too_low", "cuCtxCreate", 1000, 0);
    say_bool("per_thread_flag_at_the_twins_version", found("cuStreamSynchronize", 7000, 2, NULL) != NULL);
    failing("per_thread_flag_below_the_twins_version", "cuStreamSynchronize", 2000, 2);
    failing("version_above_the_drivers", "cuInit", version + 1000, 0);
    void *pointer = NULL;
    say_result("unknown_flags", CU(cuGetProcAddress_v2, "cuInit", &pointer, 12000, 4ULL, &status));
    say_result("null_name", CU(cuGetProcAddress_v2, NULL, &pointer, 12000, 0ULL, &status));
    say_result("null_pointer", CU(cuGetProcAddress_v2, "cuInit", NULL, 12000, 0ULL, &status));
    say_result("first_version.found", CU(cuGetProcAddress, "cuInit", &pointer, 11030, 0ULL));
    say_result("first_version.unknown_name", CU(cuGetProcAddress, "cuNoSuchFunction", &pointer, 11030, 0ULL));
}
