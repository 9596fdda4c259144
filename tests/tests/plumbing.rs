//! `GPUSHARE_LOG` and `GPUSHARE_DISABLE` under a plain preload: silent by default, inactive when
//! disabled.

use std::fs;

use gpushare_tests::guest::plain;
use gpushare_tests::{GIB, Gpu, Guest, artefacts, clients};

/// The quota client with the library and these variables.
fn preloaded(gpu: &Gpu, environment: &[(&str, &str)]) -> Guest {
    let mut client = plain(gpu, &clients::compile("quota", &[]));
    client
        .env("LD_PRELOAD", artefacts::interposer())
        .envs(environment.iter().copied());
    Guest::start(client)
}

#[test]
fn a_log_is_written_where_it_was_asked_for_and_nowhere_else() {
    let gpu = Gpu::new("");
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let path = log.to_str().expect("text");
    for environment in [&[][..], &[("GPUSHARE_LOG", path)]] {
        let guest = preloaded(&gpu, environment).started();
        guest.finish().silently();
        assert_eq!(log.exists(), !environment.is_empty(), "{environment:?}");
    }
    let text = fs::read_to_string(&log).expect("written");
    assert!(
        text.lines().count() >= 2 && text.lines().all(|line| line.starts_with("gpushare[")),
        "{text}"
    );
    assert!(
        text.contains("started") && text.contains("joined"),
        "{text}"
    );
}

#[test]
fn a_log_that_cannot_be_opened_changes_nothing() {
    let gpu = Gpu::new("");
    for log in ["/nowhere/at/all", "", "-1", "99999"] {
        let mut guest = preloaded(&gpu, &[("GPUSHARE_LOG", log)]);
        assert_eq!(guest.ask("init"), "init 0", "{log:?}");
        guest.finish().silently();
    }
}

#[test]
fn a_disabled_library_is_inactive_and_only_1_disables_it() {
    let gpu = Gpu::new("mem=4GiB");
    let limited = ("GPUSHARE_MEM_LIMIT", "64MiB");
    let mut guest = preloaded(&gpu, &[limited, ("GPUSHARE_DISABLE", "1")]).started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 4 * GIB));
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    guest.finish().silently();

    let mut guest = preloaded(&gpu, &[limited]).started();
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 2");
    guest.finish().silently();
}
