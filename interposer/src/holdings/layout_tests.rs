//! The model of a pool's memory by itself.

use super::*;

const MIB: u64 = 1 << 20;
const STEP: u64 = 32 * MIB;
/// Where the tests' first piece is.
const BASE: u64 = 1 << 40;

/// A pool with one piece and one allocation at its start.
fn with(bytes: u64) -> Layout {
    let mut layout = Layout::default();
    placed(&mut layout, BASE, bytes, 0, STEP);
    layout
}

fn placed(layout: &mut Layout, at: u64, bytes: u64, before: u64, after: u64) {
    let growth = bytes.next_multiple_of(STEP);
    layout.placed(Placed {
        at,
        bytes,
        growth,
        before,
        after,
    });
}

#[test]
fn what_an_allocation_grew_the_pool_by_beyond_itself_is_room_and_no_more() {
    let layout = with(MIB);
    assert!(layout.fits(31 * MIB, &[]));
    assert!(!layout.fits(31 * MIB + 1, &[]));
    assert!(
        !Layout::default().fits(1, &[]),
        "nothing is known of an empty one"
    );
}

#[test]
fn a_freed_block_is_its_streams_at_once_and_all_streams_once_it_is_over() {
    let mut layout = with(STEP);
    layout.leaving(BASE, STEP, 1);
    assert!(!layout.fits(MIB, &[2]), "the driver does not know yet");
    layout.submitted(BASE, STEP, 1, Some(2));
    assert!(layout.fits(STEP, &[2]));
    assert!(!layout.fits(MIB, &[3]), "another stream's");
    layout.passed(2);
    assert!(layout.fits(STEP, &[]));
}

#[test]
fn a_refused_free_leaves_no_room() {
    let mut layout = with(STEP);
    layout.leaving(BASE, STEP, 1);
    layout.stayed(BASE, STEP, 1);
    assert!(!layout.fits(1, &[1]));
    layout.look(0, None);
    assert_eq!(layout.pieces.len(), 1, "it is alive, so its piece is there");
}

/// A pool with one piece, of which the driver was asked, and one allocation at its start.
fn trusted(bytes: u64) -> Layout {
    let mut layout = with(bytes);
    layout.look(STEP, None);
    layout.trust(0);
    layout
}

#[test]
fn an_address_in_a_piece_with_a_living_allocation_says_that_nothing_grew() {
    let mut layout = trusted(MIB);
    assert!(layout.reused(BASE + MIB, MIB, STEP));
    layout.leaving(BASE + MIB, MIB, 1);
    layout.submitted(BASE + MIB, MIB, 1, Some(2));
    assert!(
        layout.reused(BASE + MIB, MIB, STEP),
        "again, before the free is over"
    );
    assert!(
        !layout.reused(BASE + MIB, MIB, STEP),
        "something lives there"
    );
    assert!(!layout.reused(BASE + STEP, MIB, STEP), "outside");
    assert!(
        !layout.reused(BASE + 31 * MIB, 2 * MIB, STEP),
        "across its end"
    );
    assert!(layout.fits(30 * MIB, &[]) && !layout.fits(30 * MIB + 1, &[2]));
}

#[test]
fn an_empty_piece_says_so_only_where_a_new_one_would_take_its_place() {
    let mut layout = trusted(MIB);
    layout.leaving(BASE, MIB, 1);
    layout.submitted(BASE, MIB, 1, Some(2));
    assert!(
        !layout.reused(BASE + MIB, MIB, STEP),
        "it may be new and longer"
    );
    assert!(layout.reused(BASE, MIB, STEP), "no longer than the old one");
    assert!(
        !layout.reused(BASE + MIB, MIB, STEP),
        "beside one that may be new"
    );
    // The driver is asked: as much as ever is reserved, so the piece is the old one.
    placed(&mut layout, BASE + MIB, MIB, STEP, STEP);
    assert!(layout.reused(BASE + 2 * MIB, MIB, STEP));
}

#[test]
fn a_piece_that_may_be_new_is_forgotten_when_less_is_reserved() {
    let mut layout = Layout::default();
    placed(&mut layout, BASE, 2 * STEP, 0, 2 * STEP);
    layout.trust(0);
    layout.leaving(BASE, 2 * STEP, 1);
    layout.freed(BASE, 2 * STEP, 1);
    assert!(layout.reused(BASE, MIB, STEP));
    layout.look(STEP, None);
    assert!(layout.pieces.is_empty() && !layout.fits(1, &[]));
}

#[test]
fn what_is_reserved_is_certain_until_the_pool_shrinks_or_much_changed() {
    let mut layout = trusted(MIB);
    assert_eq!((layout.trusted(0), layout.trusted(1)), (Some(STEP), None));
    for number in 0..u64::from(UNREAD) {
        assert!(layout.trusted(0).is_some());
        assert!(layout.reused(BASE + MIB + number * GRANULE, GRANULE, STEP));
    }
    assert_eq!(layout.trusted(0), None);
    assert!(!layout.look(STEP, None) && layout.trusted(0).is_some());
    assert!(layout.look(2 * STEP, None), "more than was certain");
    layout.forget();
    assert_eq!(layout.trusted(0), None);
    assert_eq!(Layout::default().trusted(0), None, "nothing was ever asked");
}

#[test]
fn what_was_reused_before_its_free_was_over_is_not_free_after_it() {
    let mut layout = with(STEP);
    layout.leaving(BASE, STEP, 1);
    placed(&mut layout, BASE, 20 * MIB, STEP, STEP);
    layout.submitted(BASE, STEP, 1, Some(2));
    assert!(layout.fits(12 * MIB, &[2]) && !layout.fits(12 * MIB + 1, &[2]));
    layout.passed(2);
    assert!(layout.fits(12 * MIB, &[]) && !layout.fits(12 * MIB + 1, &[]));
}

#[test]
fn neighbours_in_one_piece_are_one_and_in_two_are_two() {
    let mut layout = with(STEP);
    placed(&mut layout, BASE + STEP, STEP, STEP, 2 * STEP);
    for (at, mark) in [(BASE, 1), (BASE + STEP, 2)] {
        layout.leaving(at, STEP, mark);
        layout.freed(at, STEP, mark);
    }
    assert!(layout.fits(STEP, &[]) && !layout.fits(STEP + 1, &[]));
    placed(&mut layout, BASE, MIB, 2 * STEP, 2 * STEP);
    placed(&mut layout, BASE + MIB, MIB, 2 * STEP, 2 * STEP);
    layout.leaving(BASE, MIB, 3);
    layout.freed(BASE, MIB, 3);
    layout.leaving(BASE + MIB, MIB, 4);
    layout.freed(BASE + MIB, MIB, 4);
    assert_eq!(layout.idle(), [BASE, BASE + STEP], "whole again");
}

#[test]
fn an_allocation_across_two_pieces_comes_back_to_both() {
    let mut layout = with(MIB);
    placed(&mut layout, BASE + STEP, STEP, STEP, 2 * STEP);
    layout.leaving(BASE + STEP, STEP, 1);
    layout.freed(BASE + STEP, STEP, 1);
    placed(&mut layout, BASE + 16 * MIB, 24 * MIB, 2 * STEP, 2 * STEP);
    assert!(!layout.fits(24 * MIB + 1, &[]));
    layout.leaving(BASE + 16 * MIB, 24 * MIB, 2);
    layout.freed(BASE + 16 * MIB, 24 * MIB, 2);
    assert!(layout.fits(STEP, &[]) && !layout.fits(STEP + 1, &[]));
}

#[test]
fn pieces_the_driver_has_let_go_of_are_no_room() {
    let mut layout = with(MIB);
    placed(&mut layout, BASE + 2 * STEP, STEP, STEP, 2 * STEP);
    layout.leaving(BASE + 2 * STEP, STEP, 1);
    layout.freed(BASE + 2 * STEP, STEP, 1);
    assert!(layout.fits(STEP, &[]));
    layout.look(STEP, None);
    assert!(!layout.fits(STEP, &[]));
    assert!(
        layout.fits(31 * MIB, &[]),
        "the other has a living allocation"
    );
}

#[test]
fn what_a_trim_explains_costs_no_other_knowledge() {
    let mut layout = with(STEP);
    placed(&mut layout, BASE + 2 * STEP, STEP, STEP, 2 * STEP);
    layout.leaving(BASE, STEP, 1);
    layout.submitted(BASE, STEP, 1, Some(9));
    layout.leaving(BASE + 2 * STEP, STEP, 2);
    layout.freed(BASE + 2 * STEP, STEP, 2);
    let idle = layout.idle();
    layout.look(STEP, Some(&idle));
    assert!(layout.fits(STEP, &[9]), "the other is still pending");
    assert!(!layout.fits(1, &[]));
    layout.look(0, Some(&layout.idle()));
    assert!(!layout.fits(1, &[9]), "that is gone, too");
}

#[test]
fn numbers_that_do_not_add_up_leave_only_what_has_living_allocations() {
    let mut layout = with(MIB);
    // Grew by a step while another piece was let go of: where it lies is not known.
    placed(&mut layout, BASE + 8 * STEP, MIB, 2 * STEP, 2 * STEP - MIB);
    assert_eq!(layout.pieces.len(), 1);
    assert!(layout.fits(31 * MIB, &[]));
    // Grew by a step while as much was let go of.
    placed(&mut layout, BASE + 4 * STEP, STEP, STEP, 2 * STEP);
    layout.leaving(BASE + 4 * STEP, STEP, 1);
    layout.freed(BASE + 4 * STEP, STEP, 1);
    placed(&mut layout, BASE + 6 * STEP, STEP, 2 * STEP, 2 * STEP);
    assert!(layout.fits(31 * MIB, &[]) && !layout.fits(STEP, &[]));
    // In the middle of what is alive: nothing is as we thought.
    placed(&mut layout, BASE, MIB, STEP, STEP);
    assert!(!layout.fits(1, &[]) && layout.pieces.is_empty());
}

#[test]
fn a_new_piece_replaces_what_was_known_of_its_addresses() {
    let mut layout = Layout::default();
    placed(&mut layout, BASE, 2 * STEP, 0, 2 * STEP);
    placed(&mut layout, BASE, 2 * STEP, 2 * STEP, 4 * STEP);
    assert!(layout.pieces.is_empty(), "one allocation on top of another");
    placed(&mut layout, BASE, 2 * STEP, 0, 2 * STEP);
    layout.leaving(BASE, 2 * STEP, 1);
    layout.freed(BASE, 2 * STEP, 1);
    placed(&mut layout, BASE, MIB, 0, STEP);
    assert!(layout.fits(31 * MIB, &[]) && !layout.fits(31 * MIB + 1, &[]));
}

#[test]
fn outside_known_pieces_a_block_stays_its_streams_until_memory_goes() {
    let mut layout = Layout::default();
    placed(&mut layout, BASE, STEP, 5 * STEP, 5 * STEP);
    layout.leaving(BASE, STEP, 1);
    layout.submitted(BASE, STEP, 1, Some(2));
    assert!(layout.fits(STEP, &[2]));
    layout.look(4 * STEP, None);
    assert!(!layout.fits(1, &[2]));
}
