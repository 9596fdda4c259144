//! The memory families through the C library: each case is a function of a C program that was
//! linked against it as applications are.

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
    every_size_fills_the_device_and_gives_it_all_back_twice = "linear" "exhaustion" "mem=512MiB";
    wrong_sizes_and_pointers_are_refused = "linear" "wrong_arguments" "mem=256MiB";
    bytes_survive_every_way_of_one_dimension = "linear" "round_trips" "mem=256MiB";
    memsets_write_their_elements_and_nothing_else = "linear" "fills" "mem=256MiB";
    rows_survive_pitched_memory = "linear" "pitched" "mem=256MiB";
    pinned_memory_is_the_hosts_and_the_devices = "linear" "pinned" "mem=256MiB";
    pageable_memory_is_read_at_the_call_and_written_before_it_returns = "linear" "asynchronous" "mem=256MiB";
    managed_memory_is_resident_where_it_was_sent = "linear" "managed" "mem=256MiB";
    more_managed_memory_than_the_device_has_loses_nothing = "linear" "oversubscribed" "mem=256MiB";
    a_destroyed_context_takes_its_memory_with_it = "linear" "context_takes_all_with_it" "mem=512MiB";
    pointers_say_what_they_are = "linear" "attributes" "mem=256MiB";
    two_hundred_thousand_allocations_stay_fast = "linear" "speed" "mem=512MiB";

    pools_grow_in_steps_and_let_go_at_a_synchronise = "pool" "steps" "mem=512MiB";
    a_threshold_and_a_trim_keep_what_they_say = "pool" "threshold" "mem=512MiB";
    bytes_survive_in_stream_ordered_memory = "pool" "data" "mem=512MiB";
    memory_touched_before_its_allocation_in_stream_order_faults = "pool" "too_early" "mem=512MiB";
    memory_touched_after_it_does_not = "pool" "in_order" "mem=512MiB";
    a_pool_fills_the_device_and_gives_it_all_back = "pool" "exhaustion" "mem=512MiB";
    a_destroyed_pool_lives_until_its_last_allocation_is_freed = "pool" "own_pools" "mem=512MiB";

    a_mapping_keeps_memory_whose_handle_is_released = "vmm" "handle_first" "mem=256MiB";
    a_handle_keeps_memory_that_is_unmapped = "vmm" "mapping_first" "mem=256MiB";
    wrong_mappings_are_refused = "vmm" "wrong_arguments" "mem=256MiB";
    a_mapping_without_rights_faults = "vmm" "no_access" "mem=256MiB";
    writing_a_read_only_mapping_faults = "vmm" "read_only" "mem=256MiB";
    unmapping_under_work_faults = "vmm" "unmapped_under_work" "mem=256MiB";
    copies_run_over_mappings_that_touch = "vmm" "side_by_side" "mem=256MiB";
    physical_memory_runs_out_and_comes_back = "vmm" "exhaustion" "mem=256MiB";

    bytes_survive_in_arrays = "array" "round_trips" "mem=256MiB";
    arrays_that_cannot_be_are_refused = "array" "descriptors" "mem=256MiB";
    arrays_fill_the_device_and_give_it_all_back = "array" "exhaustion" "mem=256MiB";
    mipmapped_arrays_have_their_levels = "array" "mipmaps" "mem=256MiB";

    exported_memory_lives_while_any_process_has_it = "share" "physical" "mem=512MiB";
    exported_memory_outlives_its_killed_maker = "share" "survivor" "mem=512MiB";
    legacy_handles_open_in_another_process_only = "share" "legacy" "mem=512MiB";
    pools_are_shared_by_descriptor_and_pointer = "share" "pool" "mem=512MiB";

    copies_run_between_devices_and_memory_is_counted_where_it_is = "devices" "between_devices" "mem=256MiB,count=2";
    rights_on_a_mapping_are_by_device = "devices" "rights_by_device" "mem=256MiB,count=2";
    batches_copy_everything_or_say_what_is_wrong = "devices" "batches" "mem=256MiB";
    texture_objects_keep_their_description = "devices" "textures" "mem=256MiB";

    threads_share_the_driver_and_never_each_others_memory = "threads" "all" "mem=512MiB";

    kernels_reach_every_kind_of_memory = "kernels" "everywhere" "mem=512MiB";
    a_kernel_past_the_end_of_an_allocation_faults = "kernels" "one_too_many" "mem=256MiB";
    a_kernel_in_freed_memory_faults = "kernels" "freed" "mem=256MiB";
    a_kernel_after_a_stream_ordered_free_faults = "kernels" "freed_in_order" "mem=256MiB";

    a_graphs_memory_is_there_from_launch_to_free_and_kept_until_trimmed = "graphs" "launches" "mem=512MiB";
    memory_a_graph_does_not_free_outlives_its_launch = "graphs" "outlives" "mem=512MiB";
    a_launch_that_finds_no_memory_changes_nothing = "graphs" "runs_out" "mem=512MiB";
}
