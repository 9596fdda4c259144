//! A tenant's state on one device, order by order and report by report.

use super::*;

const A: ProcessId = ProcessId(1);
const B: ProcessId = ProcessId(2);

fn two() -> Resident {
    let mut resident = Resident::default();
    resident.join(Nanos::ZERO, A, true, true);
    resident.join(Nanos::ZERO, B, true, true);
    resident
}

#[test]
fn a_tenant_is_sealed_once_all_its_processes_are() {
    let mut resident = two();
    let (epoch, _) = resident.go(Nanos(1), Place::Sealing, true);
    assert_eq!(
        resident.told(A, epoch, Told::Sealed),
        Some(Turned::Progress)
    );
    assert_eq!(
        resident.told(B, epoch - 1, Told::Sealed),
        None,
        "an old order"
    );
    assert_eq!(resident.told(B, epoch, Told::Sealed), Some(Turned::Sealed));
}

#[test]
fn the_death_of_the_last_that_did_not_answer_completes_a_step() {
    let mut resident = two();
    let (epoch, _) = resident.go(Nanos(1), Place::Sealing, true);
    resident.told(A, epoch, Told::Sealed);
    assert_eq!(resident.leave(B), Some(Turned::Sealed));
    assert_eq!(resident.leave(B), None);
}

#[test]
fn a_report_that_answers_no_order_is_ignored() {
    let mut resident = two();
    let back = resident.told(A, 0, Told::Back);
    let away = Told::Away {
        away: Bytes::gib(1),
        residue: Bytes::ZERO,
    };
    assert_eq!((back, resident.told(A, 0, away)), (None, None));
    assert_eq!(resident.told_away(), Bytes::ZERO);
}

#[test]
fn one_that_does_not_leave_is_asked_again_later_and_later() {
    let (mut resident, terms) = (two(), SwapPolicy::default());
    let pauses = (0..8).map(|_| {
        resident.back_off(Nanos::ZERO, Nanos::ZERO, &terms);
        resident.backs_off().0 / 1_000_000_000
    });
    assert_eq!(pauses.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 60, 60]);
    resident.has_left();
    assert_eq!(resident.backs_off(), Nanos::ZERO);
}

#[test]
fn one_process_that_cannot_move_keeps_all_in() {
    let mut resident = two();
    assert!(resident.can_move());
    resident.join(Nanos::ZERO, B, false, true);
    assert!(!resident.can_move());
    resident.join(Nanos::ZERO, B, true, true);
    resident.set_here(Nanos::secs(3), A, false);
    assert!(!resident.can_move() && resident.can_when_connected());
    assert_eq!(resident.disconnected(), Some(Nanos::secs(3)));
    resident.set_here(Nanos::secs(4), A, true);
    assert!(resident.can_move());
}

#[test]
fn processes_on_other_devices_answer_the_order_to_be_sealed_too() {
    let mut resident = two();
    let (other, busy) = (
        ProcessId(3),
        Told::Busy {
            retry: 100,
            late: true,
        },
    );
    let (epoch, _) = resident.go(Nanos(1), Place::Sealing, true);
    resident.seals_beside([other].into());
    for process in [A, B] {
        let turned = resident.told(process, epoch, Told::Sealed);
        assert_eq!(turned, Some(Turned::Progress));
    }
    let old = resident.told(other, epoch - 1, Told::Sealed);
    assert_eq!(old, None, "an old order");
    assert_eq!(
        resident.told(other, epoch, busy),
        Some(Turned::Busy {
            retry: Nanos::millis(100),
            late: true
        })
    );
    let sealed = resident.told(other, epoch, Told::Sealed);
    assert_eq!(sealed, Some(Turned::Sealed));
    let (epoch, _) = resident.go(Nanos(2), Place::Leaving, false);
    assert_eq!(resident.told(other, epoch, busy), None, "it leaves nothing");
}

#[test]
fn of_processes_on_other_devices_those_that_are_there_are_waited_for() {
    let mut resident = two();
    let (epoch, _) = resident.go(Nanos(1), Place::Sealing, true);
    let [one, two] = [3, 4].map(ProcessId);
    resident.seals_beside([one, two].into());
    for process in [A, B, one] {
        resident.told(process, epoch, Told::Sealed);
    }
    assert_eq!(resident.waits_beside(&[two].into()), None);
    let all = resident.waits_beside(&[].into());
    assert_eq!(all, Some(Turned::Sealed));
    assert_eq!(resident.waits_beside(&[].into()), None, "once");
}
