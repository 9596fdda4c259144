//! `gpushare ps --gpu INDEX` and tenants without a daemon: their books name a GPU by its UUID, and
//! the daemons or the driver know its index.

use gpushare_tests::gpu::links;
use gpushare_tests::{Guest, Home, MIB, assert_measured, clients};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The quota client under `gpushare run`.
fn run(home: &Home, flags: &[&str]) -> Command {
    let gpu = format!("soft:{}", home.gpu().spec());
    let mut run = home.command(&[&["run", "--gpu", &gpu], flags, &["--"]].concat());
    run.arg(clients::compile("quota", &[]));
    run
}

fn ready(command: Command) -> Guest {
    Guest::start(command).started()
}

#[test]
fn ps_of_a_gpu_has_its_tenants_without_a_daemon() {
    let home = Home::new("count=2,mem=16GiB");
    let mut second = run(&home, &["--daemon", "off", "--name", "files"]);
    second.env("CUDA_VISIBLE_DEVICES", "1");
    let mut second = ready(second);
    assert_eq!(second.ask(&format!("alloc {MIB}")), "alloc 0");
    let asked = |gpu: &str, sees: bool| {
        let mut ps = home.command(&["ps", "--gpu", gpu]);
        if sees {
            ps.env("LD_LIBRARY_PATH", links());
            ps.env("SOFTGPU", home.gpu().spec());
        }
        let output = ps.output().expect("gpushare starts");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), shown.contains("files "), told)
    };
    let [(one, has, _), (other, has_not, told)] = ["1", "0"].map(|gpu| asked(gpu, true));
    assert_eq!((one, has, other, has_not), (Some(0), true, Some(0), false));
    assert!(told.contains("there is no tenant on GPU 0"), "{told}");
    let (status, _, told) = asked("7", true);
    assert_eq!(status, Some(2), "{told}");
    assert!(told.contains("there is no GPU 7"), "{told}");
    // Nothing here knows that GPU.
    let (status, has, told) = asked("0", false);
    assert_eq!((status, has), (Some(0), true), "{told}");
    assert!(told.contains("is not known here"), "{told}");
    // A daemon does.
    let kept = ready(run(&home, &["--name", "kept"]));
    let [has, has_not] = ["1", "0"].map(|gpu| asked(gpu, false).1);
    assert_eq!((has, has_not), (true, false));
    kept.finish().silently();
    second.finish().silently();
}

#[test]
fn ps_that_watches_a_gpu_asks_the_driver_once() {
    let home = Home::new("count=2,mem=16GiB");
    let mut files = ready(run(&home, &["--daemon", "off", "--name", "files"]));
    assert_eq!(files.ask(&format!("alloc {MIB}")), "alloc 0");
    let trace = home.folder().join("trace");
    let mut ps = home.command(&["ps", "--gpu", "0", "--watch", "0.1"]);
    ps.env("LD_LIBRARY_PATH", links())
        .env("SOFTGPU", home.gpu().spec())
        .env("SOFTGPU_TRACE", &trace)
        .stdout(Stdio::piped());
    let mut ps = ps.spawn().expect("gpushare starts");
    let lines = BufReader::new(ps.stdout.take().expect("piped")).lines();
    let listed = lines.map_while(Result::ok);
    let listed = listed.filter(|line| line.starts_with("files "));
    assert_eq!(listed.take(5).count(), 5);
    assert!(ps.wait().expect("a child").success(), "nothing reads it");
    let trace = fs::read_to_string(trace).unwrap();
    let asked = trace.lines().filter(|line| line.contains(" cuInit "));
    assert_eq!(asked.count(), 1, "{trace}");
    files.finish().silently();
}

/// It is asked where rows belong, which is not worth a minute.
#[test]
fn ps_of_a_gpu_goes_on_without_a_driver_that_hangs() {
    let home = Home::new("mem=16GiB");
    let mut files = ready(run(&home, &["--daemon", "off", "--name", "files"]));
    assert_eq!(files.ask(&format!("alloc {MIB}")), "alloc 0");
    let hung = home.folder().join("hung");
    let mut ps = home.command(&["ps", "--gpu", "0"]);
    ps.env("LD_LIBRARY_PATH", clients::driver("hung_driver"))
        .env("GPUTEST_HANGS", "always")
        .env("GPUTEST_HUNG", &hung);
    let began = Instant::now();
    let output = ps.output().expect("gpushare starts");
    assert!(hung.exists(), "it was asked: {output:?}");
    let took = began.elapsed();
    assert_measured!(took < Duration::from_secs(30), "{took:?}");
    let shown = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert!(
        shown.contains("files ") && told.contains("is not known here"),
        "{output:?}"
    );
    files.finish().silently();
}
