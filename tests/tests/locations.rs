//! Physical memory at each type of location, on a driver that knows more of them than we do. The
//! driver is a double, because the software GPU makes memory on devices only.

use gpushare_tests::MIB;

use crate::multicast::Program;

/// `CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN`: the device in the low byte, its part above.
const PART_OF_DEVICE: i32 = 6;
/// Of a driver that is newer than we are.
const NEW: i32 = 70;

#[test]
fn memory_at_a_location_of_any_but_the_hosts_type_is_charged() {
    let mut program = Program::started();
    for (slot, (kind, id)) in [(1, 0), (PART_OF_DEVICE, 0x0300), (NEW, 0), (NEW, 900)]
        .into_iter()
        .enumerate()
    {
        program.does(&[&format!("at {kind} {id} {slot} {}", 32 * MIB)]);
        assert_eq!(program.held(), 32 * MIB * (slot as u64 + 1), "{kind}");
    }
    let refused = format!("at {NEW} 0 7 {}", 256 * MIB);
    program.guest.answers(&refused, "2");
    for slot in 0..4 {
        program.does(&[&format!("release {slot}")]);
    }
    assert_eq!(program.held(), 0);
    program.guest.finish().silently();
}

#[test]
fn memory_on_the_host_is_not_charged_to_a_device() {
    let mut program = Program::started();
    for (slot, kind) in [2, 3, 4].into_iter().enumerate() {
        program
            .guest
            .does(&format!("at {kind} 0 {slot} {}", 512 * MIB));
        assert_eq!(program.held(), 0, "{kind}");
    }
    program.guest.finish().silently();
}
