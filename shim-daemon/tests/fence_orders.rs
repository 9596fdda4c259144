//! The driver calls that carry out a fence order, under both of the driver's mechanisms for limits.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use crate::driver::{Backend, Driver};
use gpushare_protocol::units::{Bytes, GIB};
use gpushared::devices::{FenceError, Order, Outcome, carry_out};

const GROUP: &str = "/cg/a";

fn order(driver: &Driver, hard: Option<u64>, ours: bool) -> Outcome {
    let order = Order {
        hard: hard.map(Bytes),
        ours,
    };
    carry_out(&mut driver.clone(), 0, Path::new(GROUP), order)
}

#[test]
fn a_fence_is_set_where_there_was_none_and_taken_away_again() {
    for backend in [Backend::Misc, Backend::Dmem] {
        let driver = Driver::of(backend);
        let stands = Outcome::Stands(Some(Bytes(GIB)));
        assert_eq!(order(&driver, Some(GIB), false), stands);
        assert_eq!(driver.hard(GROUP), Some(Bytes(GIB)));
        assert_eq!(order(&driver, None, true), Outcome::Stands(None));
        assert_eq!(driver.hard(GROUP), None);
    }
}

#[test]
fn a_fence_is_never_set_below_what_is_in_use() {
    for backend in [Backend::Misc, Backend::Dmem] {
        let driver = Driver::of(backend);
        driver.holds(GROUP, 3 * GIB - 5, Some(4 * GIB));
        let stands = Outcome::Stands(Some(Bytes(3 * GIB)));
        assert_eq!(order(&driver, Some(GIB), true), stands);
        driver.holds(GROUP, GIB / 2, Some(3 * GIB));
        let stands = Outcome::Stands(Some(Bytes(GIB)));
        assert_eq!(order(&driver, Some(GIB), true), stands);
    }
}

#[test]
fn the_limit_of_somebody_else_is_neither_moved_nor_taken_away() {
    let driver = Driver::of(Backend::Misc);
    driver.holds(GROUP, 0, Some(2 * GIB));
    let foreign = Outcome::Foreign(Bytes(2 * GIB));
    assert_eq!(order(&driver, Some(GIB), false), foreign);
    assert_eq!(order(&driver, Some(8 * GIB), false), foreign);
    assert_eq!(order(&driver, None, false), foreign);
    assert_eq!(driver.calls(), 0);
}

#[test]
fn what_the_driver_says_it_set_but_did_not_is_a_failure() {
    #[derive(Debug)]
    struct Deaf(Driver);
    impl gpushared::devices::Devices for Deaf {
        fn list(&mut self) -> Result<Vec<gpushared::devices::Device>, String> {
            self.0.list()
        }
        fn look(
            &mut self,
            index: usize,
        ) -> Result<gpushared::devices::Look, gpushared::devices::LookError> {
            self.0.look(index)
        }
        fn driver_limit(
            &mut self,
            index: usize,
            group: &Path,
        ) -> Result<gpushared::devices::DriverLimit, FenceError> {
            self.0.driver_limit(index, group)
        }
        fn limit_driver(&mut self, _: usize, _: &Path, _: Option<Bytes>) -> Result<(), FenceError> {
            Ok(())
        }
    }
    let wanted = Order {
        hard: Some(Bytes(GIB)),
        ours: false,
    };
    let mut deaf = Deaf(Driver::of(Backend::Dmem));
    let outcome = carry_out(&mut deaf, 0, Path::new(GROUP), wanted);
    let Outcome::Failed(FenceError::Failed(text)) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        text.contains("no limit") && text.contains("1 GiB"),
        "{text}"
    );
}

#[test]
fn no_limits_no_permission_and_no_cgroup_are_told_apart() {
    let off = Driver::of(Backend::Off);
    let failed = |error| Outcome::Failed(error);
    assert_eq!(
        order(&off, Some(GIB), false),
        failed(FenceError::NotSupported)
    );
    let forbidden = Driver::of(Backend::Dmem);
    forbidden.0.lock().unwrap().forbidden = true;
    assert_eq!(
        order(&forbidden, Some(GIB), false),
        failed(FenceError::NotPermitted)
    );
    let gone = Driver::of(Backend::Misc);
    gone.0.lock().unwrap().gone.push(GROUP.into());
    assert_eq!(order(&gone, Some(GIB), false), failed(FenceError::NotFound));
}
