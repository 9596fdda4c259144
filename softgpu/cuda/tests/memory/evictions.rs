//! Managed memory leaves the device for other processes, and comes back with its bytes.

use softgpu::Kind;

use super::truth::Watched;

const MIB: u64 = 1 << 20;

/// Managed bytes on the device, of all processes.
fn managed(watched: &Watched) -> u64 {
    let device = watched.settle();
    let processes = device.processes.iter();
    processes
        .map(|held| held.physical[Kind::Managed as usize])
        .sum()
}

#[test]
fn managed_memory_leaves_for_another_process_and_comes_back() {
    let mut holder = Watched::of("managed", "holder", "evictions");
    holder.at("there");
    assert_eq!(managed(&holder), 256 * MIB);
    let mut intruder = Watched::of("managed", "intruder", "evictions");
    intruder.at("taken");
    // 512 MiB less two contexts and 320 MiB: the oldest pages left, and no more than had to.
    let free = 512 - 2 * 64 - 320;
    assert_eq!(managed(&holder), free * MIB);
    assert_eq!(holder.settle().evicted, (256 - free) * MIB);
    holder.go_on();
    holder.at("back");
    // Only what fits has come back: plain memory does not leave.
    assert_eq!(managed(&holder), free * MIB);
    intruder.go_on();
    intruder.at("freed");
    holder.go_on();
    holder.at("freed");
    assert_eq!(managed(&holder), 0);
}

#[test]
fn managed_memory_of_two_processes_shares_a_device_that_holds_one() {
    let mut holder = Watched::of("managed", "holder", "rivals");
    holder.at("there");
    let mut rival = Watched::of("managed", "rival", "rivals");
    rival.at("taken");
    let room = 512 - 2 * 64;
    assert_eq!(managed(&holder), room * MIB);
    holder.go_on();
    holder.at("back");
    let device = holder.settle();
    let mut held: Vec<u64> = device
        .processes
        .iter()
        .map(|held| held.physical[Kind::Managed as usize] / MIB)
        .collect();
    held.sort_unstable();
    // The holder's 64 MiB that had stayed were the oldest: they went for its own others.
    assert_eq!(held, [192, room - 192]);
    for watched in [&mut holder, &mut rival] {
        watched.go_on();
        watched.at("freed");
    }
    assert_eq!(managed(&holder), 0);
}
