// Shared by all files of facts: calling a driver function by name, and printing its answer.
//
// A fact is one line: its name, a tab, the answer. Names and answers are the same in every run and on every healthy machine:
// result codes, yes or no, orders; never an address or a size of the device.
#ifndef FACTS_H
#define FACTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int result;
typedef int device;
typedef void *handle;
typedef unsigned long long address;

// The exported function with exactly this name, version suffix included. If the driver lacks it, the family ends with a line.
void *driver_function(const char *name);

// Calls a driver function. Arguments must have the width of the function's parameters: handles, addresses and sizes are 64 bits.
//
// If the call ends the process by a signal, the family is started again without it, and the call's answer is `signal N`.
#define CU(name, ...) call_ends(call_begins() ? ((result(*)())driver_function(#name))(__VA_ARGS__) : call_is_left_out())

// Whether the next call of this process is made: no if it ended an earlier process of this family.
int call_begins(void);
// The answer of the call that is not made.
result call_is_left_out(void);
// The end of a call. Gives its answer.
result call_ends(result answer);

// Whether the driver lacks a function. Then each of these facts, up to NULL, has the answer `absent`.
int lacks(const char *function, const char *const *facts);

// Prints one fact.
void say(const char *fact, const char *answer);
// Prints a fact whose answer is a result code, by name without its prefix: `SUCCESS`, `INVALID_VALUE`.
void say_result(const char *fact, result answer);
// Prints a fact whose answer is yes or no.
void say_bool(const char *fact, int holds);
// Prints a fact whose answer is a number that is the same on every device.
void say_number(const char *fact, long long answer);

// A call that the rest of a family needs: if it fails, the family ends with a line that reports it.
void must(const char *what, result answer);
// Makes the primary context of device 0 current in this thread.
handle begin(void);
// Calls a driver function as often as it takes: not counted among the calls of a family, whose numbers are the same in every process of it.
#define LOOK(name, ...) ((result(*)())driver_function(#name))(__VA_ARGS__)
// Microseconds of a clock.
double microseconds(void);
// Forks. The child has the time limit of a family, too.
int fork_facts(void);
// The driver's version, 1000 * major + 10 * minor.
int driver_version(void);
// The first driver that makes green contexts without a default stream.
enum { NEEDS_NO_STREAM = 13030 };
// A description of some of the multiprocessors of device 0.
handle green_described(void);
// Runs `body` in another thread and waits for it.
void in_thread(void (*body)(void *), void *argument);

void start_facts(void);
void lookup_facts(void);
void device_facts(void);
void primary_facts(void);
void context_facts(void);
void linear_facts(void);
void copy_facts(void);
void host_facts(void);
void pool_facts(void);
void place_facts(void);
void vmm_facts(void);
void kept_facts(void);
void reset_facts(void);
void reset_mapped_facts(void);
void reset_pool_facts(void);
void array_facts(void);
void managed_facts(void);
void beyond_facts(void);
void home_facts(void);
void full_facts(void);
void pointer_facts(void);
void denied_facts(void);
void reach_facts(void);
void foreign_facts(void);
void stream_facts(void);
void capture_facts(void);
void forbidden_facts(void);
void launch_facts(void);
void module_facts(void);
void kernel_facts(void);
void fault_facts(void);
void fault_beside_facts(void);
void graph_facts(void);
void graph_update_facts(void);
void told_facts(void);
void conditional_facts(void);
void coredump_facts(void);
void green_facts(void);
void green_life_facts(void);
void green_use_facts(void);
void green_end_facts(void);
void green_as_context_facts(void);
void green_undescribed_facts(void);
void green_plain_facts(void);
void ipc_facts(void);
void ipc_freed_facts(void);
void values_facts(void);
void room_facts(void);
void turn_facts(void);
void along_facts(void);
void moves_facts(void);
void marks_facts(void);
void ending_facts(void);
void free_facts(void);
void ended_facts(void);

#endif
