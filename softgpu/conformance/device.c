// Devices: numbers, names, attributes.
#include "facts.h"

static void attribute(const char *fact, int which) {
    int value = -1;
    result answer = CU(cuDeviceGetAttribute, &value, which, 0);
    if (answer) say_result(fact, answer);
    else say_number(fact, value);
}

void device_facts(void) {
    int count = 0, number = 0, minor = 0;
    char text[256], id[64];
    unsigned char uuid[16], uuid2[16];
    size_t bytes = 0;
    must("cuInit", CU(cuInit, 0));
    say_result("count", CU(cuDeviceGetCount, &count));
    say_result("count_to_null", CU(cuDeviceGetCount, NULL));
    say_result("get_first", CU(cuDeviceGet, &number, 0));
    say_number("first_is", number);
    say_result("get_negative", CU(cuDeviceGet, &number, -1));
    say_result("get_beyond", CU(cuDeviceGet, &number, count));
    say_result("get_to_null", CU(cuDeviceGet, NULL, 0));
    say_result("name", CU(cuDeviceGetName, text, (int)sizeof text, 0));
    say_bool("name_is_not_empty", text[0] != 0);
    say_result("name_of_no_device", CU(cuDeviceGetName, text, (int)sizeof text, count));
    say_result("name_to_null", CU(cuDeviceGetName, NULL, 10, 0));
    say_result("name_into_4", CU(cuDeviceGetName, text, 4, 0));
    say_bool("name_into_4_is_cut", strlen(text) == 3);
    say_result("uuid", CU(cuDeviceGetUuid, uuid, 0));
    say_result("uuid_v2", CU(cuDeviceGetUuid_v2, uuid2, 0));
    say_bool("uuids_agree", !memcmp(uuid, uuid2, 16));
    say_result("uuid_of_no_device", CU(cuDeviceGetUuid, uuid, count));
    say_result("uuid_to_null", CU(cuDeviceGetUuid, NULL, 0));
    say_result("luid", CU(cuDeviceGetLuid, text, &number, 0));
    say_result("total", CU(cuDeviceTotalMem_v2, &bytes, 0));
    say_result("total_of_no_device", CU(cuDeviceTotalMem_v2, &bytes, count));
    say_result("total_to_null", CU(cuDeviceTotalMem_v2, NULL, 0));
    say_result("capability", CU(cuDeviceComputeCapability, &number, &minor, 0));
    say_result("bus_id", CU(cuDeviceGetPCIBusId, id, (int)sizeof id, 0));
    say_number("bus_id_length", (long long)strlen(id));
    say_result("by_bus_id", CU(cuDeviceGetByPCIBusId, &number, id));
    say_number("by_bus_id_is", number);
    say_result("by_bus_id_nonsense", CU(cuDeviceGetByPCIBusId, &number, "nonsense"));
    say_result("by_bus_id_of_nothing", CU(cuDeviceGetByPCIBusId, &number, "00fe:fe:1e.0"));
    say_result("peer_of_itself", CU(cuDeviceCanAccessPeer, &number, 0, 0));
    say_number("peer_of_itself_is", number);
    say_result("peer_of_no_device", CU(cuDeviceCanAccessPeer, &number, 0, count));
    say_result("p2p_attribute_of_itself", CU(cuDeviceGetP2PAttribute, &number, 2, 0, 0));
    say_result("attribute_0", CU(cuDeviceGetAttribute, &number, 0, 0));
    say_result("attribute_beyond", CU(cuDeviceGetAttribute, &number, 100000, 0));
    say_result("attribute_to_null", CU(cuDeviceGetAttribute, NULL, 1, 0));
    say_result("attribute_of_no_device", CU(cuDeviceGetAttribute, &number, 1, count));
    attribute("max_threads_per_block", 1);
    attribute("warp_size", 10);
    attribute("max_pitch", 11);
    attribute("texture_alignment", 14);
    attribute("can_map_host_memory", 19);
    attribute("compute_mode", 20);
    attribute("unified_addressing", 41);
    attribute("managed_memory", 83);
    attribute("stream_priorities", 78);
    attribute("host_register", 99);
    attribute("virtual_memory_management", 102);
    attribute("posix_file_descriptors", 103);
    attribute("memory_pools", 115);
}
