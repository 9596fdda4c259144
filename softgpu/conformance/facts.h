// What every file of facts uses: calling the driver by name, and saying what it answered.
//
// A fact is one line: its name, a tab, the answer. Names and answers hold nothing that differs from run to run or from one healthy
// machine to another: results, whether something holds, the order of things; never an address or a size of this card.
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

// The exported function of this very name (version suffix and all); ends the family with a line if the driver lacks it.
void *driver_function(const char *name);

// Calls a driver function. Arguments must have the width the function takes: handles, addresses and sizes are 64 bits.
#define CU(name, ...) (((result(*)())driver_function(#name))(__VA_ARGS__))

// Says one fact.
void say(const char *fact, const char *answer);
// Says a fact whose answer is a result, by name without its prefix: `SUCCESS`, `INVALID_VALUE`.
void say_result(const char *fact, result answer);
// Says a fact that holds or does not.
void say_bool(const char *fact, int holds);
// Says a fact that is a number which is the same on every device.
void say_number(const char *fact, long long answer);

// Something the rest of a family stands on: if it fails, the family ends with a line that says so.
void must(const char *what, result answer);
// A context on device 0, current on this thread: the primary one.
handle begin(void);
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
void vmm_facts(void);
void array_facts(void);
void managed_facts(void);
void pointer_facts(void);
void denied_facts(void);
void foreign_facts(void);
void stream_facts(void);
void capture_facts(void);
void forbidden_facts(void);
void launch_facts(void);
void fault_facts(void);
void graph_facts(void);
void green_facts(void);
void ipc_facts(void);
void values_facts(void);
void room_facts(void);
void turn_facts(void);
void moves_facts(void);

#endif
