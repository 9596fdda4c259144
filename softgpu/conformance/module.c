// What a module's image says: functions, their parameters, variables.
#include "facts.h"

const char *const MODULE_PTX =
    ".version 7.0\n.target sm_52\n.address_size 64\n"
    ".visible .global .align 4 .u32 counter = 7;\n"
    ".visible .global .align 8 .b8 table[24] = {1, 2, 3};\n"
    ".visible .const .align 4 .u32 factor = 9;\n"
    ".visible .entry take(.param .u64 take_0, .param .u32 take_1, .param .align 8 .b8 take_2[24], .param .u8 take_3)\n"
    ".maxntid 64, 2, 1\n"
    "{\nret;\n}\n"
    ".visible .entry idle()\n{\nret;\n}\n";

static uint32_t word_at(address at) {
    uint32_t word = 0;
    CU(cuMemcpyDtoH_v2, &word, at, sizeof word);
    return word;
}

void module_facts(void) {
    enum { MAX_THREADS = 0, PTX_VERSION = 5 };
    handle module = NULL, other = NULL, function = NULL, library = NULL, kernel = NULL;
    address at = 0, second = 0, base = 0;
    size_t bytes = 0, offset = 0, count = 0;
    int number = 0;
    unsigned int functions = 0;
    begin();
    must("cuModuleLoadData", CU(cuModuleLoadData, &module, MODULE_PTX));
    say_result("function_absent", CU(cuModuleGetFunction, &function, module, "absent"));
    say_result("function_count", CU(cuModuleGetFunctionCount, &functions, module));
    say_number("functions", functions);
    must("cuModuleGetFunction", CU(cuModuleGetFunction, &function, module, "take"));
    // Drivers have it from 13.2 on.
    static const char *const counts[] = {"param_count", "params", NULL};
    if (!lacks("cuFuncGetParamCount", counts)) {
        say_result("param_count", CU(cuFuncGetParamCount, function, &count));
        say_number("params", (long long)count);
    }
    for (size_t i = 0; i < 5; i++) {
        char name[32];
        offset = bytes = 99;
        snprintf(name, sizeof name, "param_%zu", i);
        result answer = CU(cuFuncGetParamInfo, function, i, &offset, &bytes);
        say_result(name, answer);
        if (answer) continue;
        snprintf(name, sizeof name, "param_%zu_offset", i);
        say_number(name, (long long)offset);
        snprintf(name, sizeof name, "param_%zu_size", i);
        say_number(name, (long long)bytes);
    }
    CU(cuFuncGetAttribute, &number, MAX_THREADS, function);
    say_number("max_threads_of_the_directive", number);
    CU(cuFuncGetAttribute, &number, PTX_VERSION, function);
    say_number("ptx_version", number);
    say_result("global", CU(cuModuleGetGlobal_v2, &at, &bytes, module, "counter"));
    say_number("global_bytes", (long long)bytes);
    say_number("global_has_its_initial_value", word_at(at));
    say_result("global_again", CU(cuModuleGetGlobal_v2, &second, NULL, module, "counter"));
    say_bool("global_again_is_the_same", at == second);
    say_result("global_address_range", CU(cuMemGetAddressRange_v2, &base, NULL, at));
    say_result("global_free", CU(cuMemFree_v2, at));
    say_result("global_set", CU(cuMemsetD32_v2, at, 11u, (size_t)1));
    say_number("global_holds_what_was_set", word_at(at));
    say_result("global_size_alone", CU(cuModuleGetGlobal_v2, NULL, &bytes, module, "table"));
    say_number("global_array_bytes", (long long)bytes);
    CU(cuModuleGetGlobal_v2, &at, NULL, module, "table");
    say_number("global_array_begins", word_at(at));
    say_number("global_array_ends", word_at(at + 20));
    say_result("global_of_constant_memory", CU(cuModuleGetGlobal_v2, &at, &bytes, module, "factor"));
    say_number("constant_has_its_initial_value", word_at(at));
    say_result("global_absent", CU(cuModuleGetGlobal_v2, &at, &bytes, module, "absent"));
    say_result("global_to_null", CU(cuModuleGetGlobal_v2, NULL, NULL, module, "counter"));
    say_result("global_null_name", CU(cuModuleGetGlobal_v2, &at, &bytes, module, NULL));
    must("cuModuleLoadData", CU(cuModuleLoadData, &other, MODULE_PTX));
    CU(cuModuleGetGlobal_v2, &base, NULL, other, "counter");
    say_bool("modules_of_one_image_share_no_variable", base != second);
    say_number("a_module_begins_with_initial_values", word_at(base));
    say_result("unload", CU(cuModuleUnload, module));
    must("cuLibraryLoadData", CU(cuLibraryLoadData, &library, MODULE_PTX, NULL, NULL, 0, NULL, NULL, 0));
    say_result("library_global", CU(cuLibraryGetGlobal, &at, &bytes, library, "counter"));
    say_number("library_global_has_its_initial_value", word_at(at));
    say_result("library_global_absent", CU(cuLibraryGetGlobal, &at, &bytes, library, "absent"));
    say_result("library_managed_of_a_plain_variable", CU(cuLibraryGetManaged, &at, &bytes, library, "counter"));
    say_result("kernel_absent", CU(cuLibraryGetKernel, &kernel, library, "absent"));
    must("cuLibraryGetKernel", CU(cuLibraryGetKernel, &kernel, library, "take"));
    say_result("kernel_param", CU(cuKernelGetParamInfo, kernel, (size_t)2, &offset, &bytes));
    say_number("kernel_param_offset", (long long)offset);
    say_number("kernel_param_size", (long long)bytes);
    CU(cuLibraryGetKernelCount, &functions, library);
    say_number("kernels", functions);
    must("cuLibraryGetModule", CU(cuLibraryGetModule, &other, library));
    say_result("unload_of_a_librarys_module", CU(cuModuleUnload, other));
    say_result("library_unload", CU(cuLibraryUnload, library));
}
