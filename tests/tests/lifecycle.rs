//! Calls at unusual moments behave as without the library: in destructors, around fork and exec, in
//! a race for the first call.

use gpushare_tests::guest::{command, plain};
use gpushare_tests::process::goes_on;
use gpushare_tests::{Daemon, Gpu, Guest, artefacts, clients, until};
use nix::libc::SYS_clock_nanosleep;
use nix::unistd::Pid;

/// The client's output without the library, then with it: by a plain preload, under `gpushare run`,
/// in a daemon's tenant.
fn outputs(moment: &str) -> [String; 4] {
    let client = clients::compile("lifecycle", &[]);
    // A library's destructor calls the driver after its teardown.
    let gpu = Gpu::new("exit=refuse");
    let mut bare = plain(&gpu, &client);
    bare.arg(moment);
    let mut preloaded = plain(&gpu, &client);
    preloaded
        .arg(moment)
        .env("LD_PRELOAD", artefacts::interposer());
    let mut run = command(&gpu, &["--mem-limit", "64MiB"]);
    run.arg(&client).arg(moment);
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("lifecycle", &[("GPUSHARE_MEM_LIMIT", "64MiB")]);
    let mut registered = tenant.command(&client);
    registered.arg(moment);
    [bare, preloaded, run, registered].map(|command| Guest::start(command).finish().silently())
}

#[track_caller]
fn same(moment: &str, part: &str) {
    let [bare, preloaded, run, registered] = outputs(moment);
    assert!(bare.contains(part), "{bare}");
    assert_eq!(bare, preloaded, "{moment}: plain preload");
    assert_eq!(bare, run, "{moment}: gpushare run");
    assert_eq!(bare, registered, "{moment}: a daemon's tenant");
}

#[test]
fn calls_from_destructors_and_exit_handlers_work() {
    for moment in ["thread", "key", "library"] {
        same("destructors", &format!("{moment} destructor: "));
    }
    same("destructors", "exit handler: ");
}

#[test]
fn both_sides_of_a_fork_before_the_first_call_may_use_cuda() {
    same(
        "fork-before",
        "child: 0\nchild: 0 0 0\nchild ended 0\nparent: 0\nparent: 0 0 0\n",
    );
}

/// Its first call is in the middle as long as nobody reads the log.
#[test]
fn a_child_forked_in_the_middle_of_the_first_call_may_use_cuda() {
    let gpu = Gpu::new("");
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).expect("a pipe with a name");
    let mut command = command(&gpu, &["--mem-limit", "64MiB"]);
    command
        .arg(clients::compile("lifecycle", &[]))
        .arg("fork-during")
        .env("GPUSHARE_LOG", &log);
    let mut guest = Guest::start(command);
    assert_eq!(guest.line(), "forked");
    let reader = std::thread::spawn(move || std::fs::read(log));
    let rest = guest.finish().silently();
    assert_eq!(
        rest,
        "child: 0\nchild: 0 0 0\nchild ended 0\nparent: 0\nparent: 0 0 0\n"
    );
    let read = reader.join().expect("it reads").expect("the log");
    assert!(!read.is_empty());
}

#[test]
fn a_child_forked_after_the_first_call_is_refused_until_it_execs() {
    same("fork-after", "child: 3\nfresh: 0\nfresh: 0 0 0\n");
}

#[test]
fn threads_that_race_for_the_first_call_all_get_the_drivers_answer() {
    same("race", "0000000000000000\nafter the race: 0 0 0\n");
}

/// The loading thread has the linker's lock while the constructor waits for the first call.
#[test]
fn a_constructor_that_calls_cuda_during_anothers_first_call_works() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("lifecycle", &[("GPUSHARE_MEM_LIMIT", "64MiB")]);
    let library = clients::compile("constructed", &["-shared", "-fPIC"]);
    let mut command = tenant.command(&clients::compile("lifecycle", &[]));
    command.arg("loading").arg(library);
    gpu.stop(Pid::from_raw(
        i32::try_from(daemon.pid()).expect("a process"),
    ));
    let mut guest = Guest::start(command);
    assert_eq!(guest.line(), "constructor");
    let (pid, nap) = (guest.id(), format!("{SYS_clock_nanosleep} "));
    until("the constructor waits for the first call", || {
        let call = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/syscall"));
        call.is_ok_and(|call| call.starts_with(&nap))
    });
    goes_on(daemon.pid());
    let rest = guest.finish().silently();
    assert_eq!(rest, "constructor: 0\nstarter: 0\n");
}

#[test]
fn functions_outlive_a_dlclose_of_the_driver() {
    same("closed", "after dlclose: 0 0 0\n");
}

/// Starting NVML on a node with many devices takes longer than CUDA's start may be delayed.
#[test]
fn starting_cuda_does_not_start_nvml() {
    let dir = tempfile::tempdir().expect("a folder");
    let trace = dir.path().join("trace");
    let gpu = Gpu::new("");
    let mut run = command(&gpu, &["--mem-limit", "256MiB"]);
    run.env("SOFTGPU_TRACE", &trace)
        .arg(clients::compile("ordered", &[]));
    let mut guest = Guest::start(run);
    for line in [
        "init",
        "linear 1048576",
        "alloc 1048576 1",
        "sync 1",
        "info",
    ] {
        guest.ask(line);
    }
    guest.finish().silently();
    let calls = std::fs::read_to_string(&trace).expect("a trace");
    assert!(calls.contains(" cuDevicePrimaryCtxRetain 0"), "{calls}");
    let nvml: Vec<&str> = calls
        .lines()
        .filter(|line| line.contains(" nvml"))
        .collect();
    assert!(nvml.is_empty(), "{nvml:?}");
}
