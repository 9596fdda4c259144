//! `RTLD_NEXT` keeps its meaning for every other library that wraps functions, wherever it stands.

mod support;

use std::path::PathBuf;

use support::{compile, driver_in, folder, library, run};

fn wrapped(test: &str) -> (PathBuf, PathBuf, PathBuf) {
    let folder = folder(test);
    let driver = driver_in(&folder);
    let (client, wrapper) = (folder.join("wrapped"), folder.join("libwrapper.so"));
    compile("wrapped.c", &client, &["-ldl"]);
    compile("wrapper.c", &wrapper, &["-shared", "-fPIC", "-ldl"]);
    (client, wrapper, driver)
}

#[test]
fn a_wrapper_before_us_gets_what_comes_after_itself() {
    let (client, wrapper, driver) = wrapped("before");
    let answer = run(
        &client,
        &[driver.to_str().expect("text")],
        &[&wrapper, &library()],
    );
    assert_eq!(answer, "a parent\ncuInit passed the wrapper\ncuInit: 0\n");
}

#[test]
fn a_wrapper_after_us_gets_what_comes_after_itself() {
    let (client, wrapper, driver) = wrapped("after");
    let answer = run(
        &client,
        &[driver.to_str().expect("text")],
        &[&library(), &wrapper],
    );
    assert_eq!(answer, "a parent\ncuInit passed the wrapper\ncuInit: 0\n");
}

#[test]
fn a_wrapper_without_a_driver_gets_nothing_next() {
    let (client, wrapper, _) = wrapped("nodriver");
    let bare = run(&client, &[], &[&wrapper]);
    assert_eq!(bare, "a parent\ncuInit passed the wrapper\ncuInit: -1\n");
    assert_eq!(run(&client, &[], &[&wrapper, &library()]), bare);
    assert_eq!(run(&client, &[], &[&library(), &wrapper]), bare);
}
