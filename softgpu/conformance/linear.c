// Linear memory: sizes, addresses, freeing.
#include "facts.h"

void linear_facts(void) {
    address a = 0, b = 0, base = 0;
    size_t pitch = 0, total = 0, available = 0, whole = 0, size = 0;
    begin();
    say_result("alloc_0", CU(cuMemAlloc_v2, &a, (size_t)0));
    say_result("alloc_to_null", CU(cuMemAlloc_v2, NULL, (size_t)512));
    say_result("alloc_1", CU(cuMemAlloc_v2, &a, (size_t)1));
    say_result("alloc_1_again", CU(cuMemAlloc_v2, &b, (size_t)1));
    say_bool("addresses_are_multiples_of_512", a % 512 == 0 && b % 512 == 0);
    say_bool("small_ones_share_a_page", a / (2 << 20) == b / (2 << 20));
    say_result("range", CU(cuMemGetAddressRange_v2, &base, &size, a));
    say_bool("range_starts_at_the_address", base == a);
    say_number("range_has_the_size_asked_for", (long long)size);
    say_result("range_of_nothing", CU(cuMemGetAddressRange_v2, &base, &size, (address)64));
    say_result("free_inside", CU(cuMemFree_v2, a + 256));
    say_result("free_nothing", CU(cuMemFree_v2, (address)64));
    say_result("free_null", CU(cuMemFree_v2, (address)0));
    say_result("free", CU(cuMemFree_v2, a));
    say_result("free_again", CU(cuMemFree_v2, a));
    say_result("info", CU(cuMemGetInfo_v2, &available, &total));
    CU(cuDeviceTotalMem_v2, &whole, 0);
    say_bool("total_is_the_devices", total == whole);
    say_bool("less_is_free_than_there_is", available < total);
    say_result("info_to_null", CU(cuMemGetInfo_v2, NULL, NULL));
    say_result("alloc_more_than_there_is", CU(cuMemAlloc_v2, &a, total + (1 << 20)));
    say_result("alloc_nearly_everything", CU(cuMemAlloc_v2, &a, (size_t)-1));
    say_result("pitch", CU(cuMemAllocPitch_v2, &a, &pitch, (size_t)100, (size_t)7, 4u));
    say_number("pitch_of_100", (long long)pitch);
    say_result("pitch_element_3", CU(cuMemAllocPitch_v2, &b, &pitch, (size_t)100, (size_t)7, 3u));
    say_result("pitch_width_0", CU(cuMemAllocPitch_v2, &b, &pitch, (size_t)0, (size_t)7, 4u));
    say_result("pitch_height_0", CU(cuMemAllocPitch_v2, &b, &pitch, (size_t)100, (size_t)0, 4u));
    say_result("managed", CU(cuMemAllocManaged, &b, (size_t)4096, 1u));
    if (b) *(volatile int *)(uintptr_t)b = 5;
    say_bool("managed_is_the_hosts_too", *(volatile int *)(uintptr_t)b == 5);
    say_result("managed_flags_0", CU(cuMemAllocManaged, &a, (size_t)4096, 0u));
    say_result("managed_0", CU(cuMemAllocManaged, &a, (size_t)0, 1u));
    say_result("free_managed", CU(cuMemFree_v2, b));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &a, (size_t)8 << 20));
    must("cuMemFree", CU(cuMemFree_v2, a));
    must("cuMemAlloc", CU(cuMemAlloc_v2, &b, (size_t)8 << 20));
    say_bool("address_again_is_the_same", a == b);
}
