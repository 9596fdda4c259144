//! Memory behind tiles of a sparse array stays charged as long as any of them is mapped, however a
//! program cuts the regions that it maps and unmaps. The driver is a double, which counts tile by
//! tile: the software GPU has no sparse arrays.

use gpushare_tests::MIB;

use crate::multicast::Program;

const BYTES: u64 = 64 * MIB;

/// A program whose memory of slot 0 is behind these tiles, and held by nothing else.
fn behind(tiles: &str) -> Program {
    let mut program = Program::started();
    let made = format!("make 0 {BYTES}");
    program.does(&[&made, &format!("tiles 0 {tiles}"), "release 0"]);
    assert_eq!(program.held(), BYTES);
    program
}

#[test]
fn memory_behind_a_region_stays_charged_while_a_part_is_unmapped() {
    let mut program = behind("0 0 8 8");
    program.does(&["untile 0 0 1 1", "untile 3 2 2 5", "untile 0 0 8 1"]);
    assert_eq!(program.held(), BYTES);
    program.lets_go_of(&["untile 0 0 8 8"]);
}

#[test]
fn memory_behind_a_region_is_credited_once_each_tile_is_unmapped() {
    for (width, height) in [(1, 1), (4, 2), (8, 1)] {
        let mut lines = Vec::new();
        for y in (0..8).step_by(height) {
            for x in (0..8).step_by(width) {
                lines.push(format!("untile {x} {y} {width} {height}"));
            }
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        behind("0 0 8 8").lets_go_of(&lines);
    }
}

#[test]
fn memory_behind_many_regions_is_credited_by_one_unmapping() {
    let mut program = Program::started();
    program.does(&[&format!("make 0 {BYTES}")]);
    for tile in ["0 0 1 1", "1 0 1 1", "0 1 2 1", "5 5 3 3"] {
        program.does(&[&format!("tiles 0 {tile}")]);
    }
    program.does(&["release 0"]);
    program.lets_go_of(&["untile 0 0 8 8"]);
}

#[test]
fn other_memory_over_a_part_leaves_the_first_charged() {
    let mut program = behind("0 0 8 8");
    program.does(&[
        &format!("make 1 {}", 2 * MIB),
        "tiles 1 0 0 1 1",
        "release 1",
    ]);
    assert_eq!(program.held(), BYTES + 2 * MIB);
    program.does(&[
        &format!("make 2 {}", 4 * MIB),
        "tiles 2 0 0 8 8",
        "release 2",
    ]);
    assert_eq!(program.held(), 4 * MIB, "over all of both");
    program.lets_go_of(&["untile 0 0 8 8"]);
}

#[test]
fn memory_behind_a_tail_stays_charged_while_a_part_is_unmapped() {
    let mut program = Program::started();
    program.does(&[&format!("make 0 {BYTES}"), "tail 0 0 8", "release 0"]);
    // Tiles of the level at the same places are others.
    program.does(&["untile 0 0 8 8", "tail 8 0 1", "tail 8 2 3"]);
    assert_eq!(program.held(), BYTES);
    program.lets_go_of(&["tail 8 5 3", "tail 8 1 1"]);
}

#[test]
fn memory_behind_tiles_is_credited_when_the_context_of_their_array_ends() {
    for making in ["sparse", "levels"] {
        let mut program = Program::started();
        program.does(&["context 1", making, &format!("make 0 {BYTES}")]);
        program.does(&["tiles 0 0 0 8 8", "tail 0 0 8", "release 0", "context 2"]);
        // Another one's end leaves it.
        program.lets_go_of(&["destroy 2", "destroy 1"]);
    }
}
