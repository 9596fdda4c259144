//! The kinds of memory through the C library. Each case is a function of a C program that is linked
//! against the library like an application.

mod evictions;
mod kills;
mod support;
mod truth;

use support::run;

macro_rules! cases {
    ($($(#[$meta:meta])* $test:ident = $client:literal $case:literal $spec:literal;)*) => {$(
        $(#[$meta])*
        #[test]
        fn $test() {
            print!("{}", run($client, $case, $spec));
        }
    )*};
}

cases! {
    nothing_is_allocated_without_a_context = "linear" "without_context" "mem=256MiB";
    every_size_fills_the_device_and_frees_it_twice = "linear" "exhaustion" "mem=512MiB";
    wrong_sizes_and_pointers_are_refused = "linear" "wrong_arguments" "mem=256MiB";
    every_one_dimensional_copy_preserves_the_bytes = "linear" "round_trips" "mem=256MiB";
    memsets_write_exactly_their_elements = "linear" "fills" "mem=256MiB";
    pitched_copies_preserve_the_rows = "linear" "pitched" "mem=256MiB";
    pinned_memory_has_one_address_for_host_and_device = "linear" "pinned" "mem=256MiB";
    registering_takes_the_pages_of_its_whole_range = "linear" "register_checks" "mem=256MiB";
    a_copy_to_memory_that_was_registered_for_reading_faults = "linear" "register_read_only" "mem=256MiB";
    copies_reach_the_pages_that_were_registered = "linear" "registered_pages_stay" "mem=256MiB";
    a_copy_to_registered_pages_that_the_file_has_lost_faults = "linear" "registered_with_a_hole" "mem=256MiB";
    pageable_memory_is_read_at_the_call_and_written_before_it_returns = "linear" "asynchronous" "mem=256MiB";
    a_prefetch_makes_managed_memory_resident_at_its_target = "linear" "managed" "mem=256MiB,home=freed";
    managed_memory_at_home_keeps_its_device_memory_until_other_needs_it = "managed" "kept" "mem=256MiB";
    oversubscribed_managed_memory_keeps_its_bytes = "linear" "oversubscribed" "mem=256MiB";
    managed_memory_that_cannot_move_takes_its_memory_at_once = "managed" "fixed" "mem=256MiB,managed=fixed";
    a_range_that_is_mostly_read_has_two_copies = "managed" "mostly_read" "mem=256MiB,home=freed";
    destroying_a_context_frees_its_memory = "linear" "context_takes_all_with_it" "mem=512MiB";
    pointer_attributes_describe_the_allocation = "linear" "attributes" "mem=256MiB";
    two_hundred_thousand_allocations_stay_fast = "linear" "speed" "mem=512MiB";

    pools_grow_in_steps_and_release_memory_at_a_synchronisation = "pool" "steps" "mem=512MiB";
    a_threshold_and_a_trim_keep_the_requested_bytes = "pool" "threshold" "mem=512MiB";
    stream_ordered_memory_preserves_the_bytes = "pool" "data" "mem=512MiB";
    access_before_the_allocation_in_stream_order_faults = "pool" "too_early" "mem=512MiB";
    access_after_the_allocation_in_stream_order_succeeds = "pool" "in_order" "mem=512MiB";
    a_pool_fills_the_device_and_frees_it = "pool" "exhaustion" "mem=512MiB";
    a_destroyed_pool_lives_until_its_last_allocation_is_freed = "pool" "own_pools" "mem=512MiB";

    memory_of_a_host_pool_is_the_hosts = "places" "host" "mem=256MiB,driver=13000";
    a_host_pool_without_access_faults = "places" "host_without_access" "mem=256MiB,driver=13000";
    a_host_pool_keeps_stream_order = "places" "host_too_early" "mem=256MiB,driver=13000";
    a_managed_pool_takes_what_is_touched = "places" "managed" "mem=512MiB,driver=13000";
    a_managed_pool_prefers_its_place = "places" "preferred" "mem=256MiB,driver=13000";
    pools_of_other_places_are_neither_exported_nor_captured = "places" "refused" "mem=256MiB,driver=13000";
    managed_pools_need_memory_that_moves = "places" "fixed" "mem=256MiB,driver=13000,managed=fixed";
    drivers_before_13_have_pools_of_devices_and_nodes = "places" "older" "mem=256MiB,driver=12080";

    a_mapping_keeps_memory_whose_handle_is_released = "vmm" "handle_first" "mem=256MiB";
    a_handle_keeps_memory_that_is_unmapped = "vmm" "mapping_first" "mem=256MiB";
    wrong_mappings_are_refused = "vmm" "wrong_arguments" "mem=256MiB";
    a_mapping_without_rights_is_refused = "vmm" "no_access" "mem=256MiB";
    writing_a_read_only_mapping_is_refused = "vmm" "read_only" "mem=256MiB";
    unmapping_under_work_faults = "vmm" "unmapped_under_work" "mem=256MiB";
    unmapping_under_a_kernel_faults_though_the_memory_is_back = "vmm" "unmapped_and_back" "mem=256MiB";
    unmapping_what_a_lost_context_had_under_way_costs_no_other = "vmm" "unmapped_after_a_loss" "mem=256MiB";
    a_mapping_beside_a_kernels_memory_may_go = "vmm" "unmapped_beside" "mem=256MiB";
    taking_the_rights_from_a_kernels_memory_faults = "vmm" "rights_taken" "mem=256MiB";
    unmapping_before_work_is_waited_for_faults = "vmm" "unmapped_before_the_wait" "mem=256MiB";
    a_kernel_that_begins_while_its_memory_is_away_faults = "vmm" "began_without" "mem=256MiB";
    a_kernel_that_begins_once_its_memory_is_back_succeeds = "vmm" "began_with" "mem=256MiB";
    copies_may_span_adjacent_mappings = "vmm" "side_by_side" "mem=256MiB";
    physical_memory_is_exhausted_and_freed = "vmm" "exhaustion" "mem=256MiB";

    arrays_preserve_the_bytes = "array" "round_trips" "mem=256MiB";
    illegal_array_descriptors_are_refused = "array" "descriptors" "mem=256MiB";
    arrays_fill_the_device_and_free_it = "array" "exhaustion" "mem=256MiB";
    mipmapped_arrays_have_their_levels = "array" "mipmaps" "mem=256MiB";

    exported_memory_lives_while_a_process_holds_it = "share" "physical" "mem=512MiB";
    exported_memory_outlives_its_killed_maker = "share" "survivor" "mem=512MiB";
    legacy_handles_open_in_another_process_only = "share" "legacy" "mem=512MiB";
    pools_are_shared_by_descriptor_and_pointer = "share" "pool" "mem=512MiB";
    exporters_of_one_pid_in_two_namespaces_are_not_mixed_up = "share" "namespaces" "mem=512MiB";

    copies_between_devices_work_and_memory_counts_on_its_device = "devices" "between_devices" "mem=256MiB,count=2";
    devices_without_peer_access_refuse_rights_and_copy = "devices" "without_peers" "mem=256MiB,count=2,peer=off";
    calls_in_a_created_stream_need_no_current_context = "linear" "in_a_stream_alone" "mem=256MiB";
    access_rights_of_a_mapping_are_per_device = "devices" "rights_by_device" "mem=256MiB,count=2";
    batches_copy_everything_or_report_the_failed_copy = "devices" "batches" "mem=256MiB";
    texture_objects_keep_their_description = "devices" "textures" "mem=256MiB";

    threads_never_see_each_others_allocations = "threads" "all" "mem=512MiB";
    a_page_that_another_thread_registered_has_an_address_at_once = "threads" "same_page" "mem=256MiB";

    kernels_can_access_every_kind_of_memory = "kernels" "everywhere" "mem=512MiB";
    a_kernel_past_the_end_of_an_allocation_faults = "kernels" "one_too_many" "mem=256MiB";
    a_kernel_in_freed_memory_faults = "kernels" "freed" "mem=256MiB";
    a_kernel_after_a_stream_ordered_free_faults = "kernels" "freed_in_order" "mem=256MiB";

    graph_memory_exists_from_launch_to_free_and_is_kept_until_trimmed = "graphs" "launches" "mem=512MiB";
    memory_a_graph_does_not_free_outlives_its_launch = "graphs" "outlives" "mem=512MiB";
    a_launch_without_enough_memory_changes_nothing = "graphs" "runs_out" "mem=512MiB";

    a_graph_uses_the_memory_that_its_addresses_have_when_it_runs = "nodes" "remapped" "mem=256MiB";
    a_graph_whose_addresses_have_no_memory_when_it_runs_faults = "nodes" "unmapped" "mem=256MiB";
    queued_work_uses_the_memory_that_is_there_when_it_runs_or_faults = "nodes" "queued" "mem=256MiB";
}
