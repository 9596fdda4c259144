// Core-dump attributes, read and set.
#include "facts.h"

#include <unistd.h>

enum { ON_EXCEPTION = 1, TRIGGER_HOST, LIGHTWEIGHT, USER_TRIGGER, FILE_NAME, PIPE, FLAGS, NONE };

static long long flag(int which) {
    unsigned char on = 9;
    size_t size = 1;
    return CU(cuCoredumpGetAttributeGlobal, which, &on, &size) ? -1 : on;
}

static result set(int which, const void *value, size_t size) { return CU(cuCoredumpSetAttributeGlobal, which, value, &size); }

// Replaces this machine's name and this process's number by words.
static void masked(char *text) {
    char host[256] = "", number[16], from[1024];
    gethostname(host, sizeof host - 1);
    snprintf(number, sizeof number, "%d", getpid());
    const char *values[] = {host, number}, *words[] = {"HOST", "PID"};
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s", text);
        char *at = *values[i] ? strstr(from, values[i]) : NULL;
        if (at) snprintf(text, sizeof from, "%.*s%s%s", (int)(at - from), from, words[i], at + strlen(values[i]));
    }
}

void coredump_facts(void) {
    unsigned char yes = 1, no = 0;
    char text[1024] = "untouched", name[] = "dump";
    size_t size = 0;
    begin();
    say_number("on_exception_at_first", flag(ON_EXCEPTION));
    say_number("trigger_host_at_first", flag(TRIGGER_HOST));
    say_number("lightweight_at_first", flag(LIGHTWEIGHT));
    say_number("user_trigger_at_first", flag(USER_TRIGGER));
    size = sizeof text;
    say_result("file", CU(cuCoredumpGetAttributeGlobal, FILE_NAME, text, &size));
    masked(text);
    say("file_at_first", text);
    say_result("no_such_attribute", CU(cuCoredumpGetAttributeGlobal, NONE, text, &size));
    say_result("size_to_null", CU(cuCoredumpGetAttributeGlobal, LIGHTWEIGHT, text, NULL));
    size = 9;
    say_result("size_of_a_flag", CU(cuCoredumpGetAttributeGlobal, LIGHTWEIGHT, NULL, &size));
    say_number("size_of_a_flag_is", (long long)size);
    say_result("set_flag", set(TRIGGER_HOST, &no, 1));
    say_number("flag_after_it", flag(TRIGGER_HOST));
    say_result("set_file", set(FILE_NAME, name, 4));
    size = sizeof text;
    CU(cuCoredumpGetAttributeGlobal, FILE_NAME, text, &size);
    say("file_after_it", text);
    say_result("set_null", set(LIGHTWEIGHT, NULL, 1));
    say_number("lightweight_after_it", flag(LIGHTWEIGHT));
    size = 1;
    say_result("set_of_the_context", CU(cuCoredumpSetAttribute, LIGHTWEIGHT, &yes, &size));
    say_number("lightweight_of_all", flag(LIGHTWEIGHT));
    yes = 9;
    say_result("get_of_the_context", CU(cuCoredumpGetAttribute, LIGHTWEIGHT, &yes, &size));
    say_number("lightweight_of_the_context", yes);
}
