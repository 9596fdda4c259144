//! Contexts beside a process's first one take nothing that was promised to others, and what is set
//! aside for them is given back.

use gpushare_protocol::wire::EventRecord;
use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant, clients, until, waiting};
use nix::unistd::Pid;

/// Contexts take 64 of 1024 MiB.
const SPEC: &str = "mem=1GiB,ctx=64MiB";
/// The daemon guesses that of the first one.
const FIRST: &str = "first_context = \"64MiB\"\n";
const NO_REQUEST: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_REQUEST", "0"),
    ("GPUSHARE_MEM_LIMIT", "1GiB"),
];

fn started(tenant: &Tenant) -> Guest {
    let mut guest = Guest::start(tenant.command(&clients::compile("contexts", &[])));
    guest.does("init");
    guest
}

fn alloc(mib: u64) -> String {
    format!("alloc {}", mib * MIB)
}

/// A tenant that requested so many MiB and holds some, and a neighbour that requested none.
struct Scene {
    daemon: Daemon,
    _tenants: [Tenant; 2],
    one: Guest,
    other: Guest,
}

fn scene(request: u64, held: u64, more: &[(&str, &str)]) -> Scene {
    let daemon = Daemon::configured(&Gpu::new(SPEC), FIRST);
    let request = format!("{request}MiB");
    let limits = [
        ("GPUSHARE_MEM_REQUEST", &*request),
        ("GPUSHARE_MEM_LIMIT", &request),
    ];
    let first = daemon.tenant("one", &limits);
    let second = daemon.tenant("other", &[&NO_REQUEST, more].concat());
    let mut one = started(&first);
    one.does(&alloc(held));
    let other = started(&second);
    for name in ["one", "other"] {
        daemon.until(name, |row| row.overhead == 64 * MIB);
    }
    Scene {
        daemon,
        _tenants: [first, second],
        one,
        other,
    }
}

#[test]
fn beside_a_neighbours_second_context_a_tenant_gets_what_it_requested() {
    let mut scene = scene(864, 784, &[]);
    scene.other.send("create");
    scene.daemon.until_one_waits("other");
    scene.one.does(&alloc(80));
    scene.one.kill();
    drop(scene._tenants);
    assert_eq!(scene.other.line(), "create 0", "it waited for room");
    scene.daemon.until("other", |row| row.overhead == 128 * MIB);
}

#[test]
fn a_second_context_that_does_not_fit_fails_when_its_time_is_over() {
    let wait = [("GPUSHARE_WAIT_TIMEOUT", "200ms")];
    let mut scene = scene(864, 784, &wait);
    assert_eq!(scene.other.ask("create"), "create 2");
    assert_eq!(scene.other.ask("retain"), "retain 2", "nor the primary one");
    assert_eq!(scene.other.ask("wrong"), "wrong 1", "the driver says so");
    scene.one.does(&alloc(80));
    scene.other.does("destroy 1");
    scene.other.does("retain");
}

/// The `refused` event of the tenant `other`, once it is told.
fn told_refusal(daemon: &Daemon) -> EventRecord {
    waiting::until_some("a refusal is told", || {
        let mut past = daemon.commands().past().into_iter();
        past.find(|event| event.kind == "refused" && event.tenant.as_deref() == Some("other"))
    })
}

#[test]
fn a_context_that_is_refused_is_told_with_the_reason() {
    for (limit, reason) in [
        (("GPUSHARE_ON_COLLISION", "fail"), "no_room"),
        (("GPUSHARE_WAIT_TIMEOUT", "20ms"), "timed_out"),
    ] {
        let mut scene = scene(864, 784, &[limit]);
        assert_eq!(scene.other.ask("create"), "create 2");
        assert_eq!(scene.other.ask("wrong"), "wrong 1", "no refusal");
        let told = told_refusal(&scene.daemon);
        let counts = ["count", reason].map(|name| told.number_of(name));
        assert_eq!(counts, [Some(1); 2], "{told:?}");
        assert_eq!(told.number_of("largest_bytes"), None, "{told:?}");
        assert!(told.text.contains("of a context"), "{told:?}");
    }
}

#[test]
fn a_first_context_that_is_refused_is_told_when_its_program_has_ended() {
    let mut scene = scene(864, 784, &[("GPUSHARE_WAIT_TIMEOUT", "20ms")]);
    let mut second = Guest::start(scene._tenants[1].command(&clients::compile("contexts", &[])));
    assert_eq!(second.ask("init"), "init 2");
    second.finish().silently();
    let told = told_refusal(&scene.daemon);
    let counts = ["count", "waited"].map(|name| told.number_of(name));
    assert_eq!(counts, [Some(1); 2], "{told:?}");
    scene.other.does("destroy 1");
}

#[test]
fn a_second_context_takes_what_nobody_requested() {
    let mut scene = scene(784, 784, &[]);
    scene.other.does("create");
    scene.daemon.until("other", |row| row.overhead == 128 * MIB);
    scene.other.does("destroy 1");
    scene.daemon.until("other", |row| row.overhead == 64 * MIB);
    scene.other.does("destroy 1");
    scene.daemon.until("other", |row| row.overhead == 0);
    scene.other.does("create");
    scene.daemon.until("other", |row| row.overhead == 64 * MIB);
}

#[test]
fn contexts_that_fail_and_contexts_in_a_loop_leave_nothing_set_aside() {
    let wait = [("GPUSHARE_WAIT_TIMEOUT", "5s")];
    let mut scene = scene(864, 864, &wait);
    // 32 MiB are nobody's.
    scene.other.does("destroy 1");
    for _ in 0..20 {
        assert_eq!(scene.other.ask("wrong"), "wrong 1");
    }
    scene.other.does("create");
    scene.other.does("loop 100");
    let past = scene.daemon.commands().past();
    let refused = past.iter().filter(|event| event.kind == "refused");
    assert_eq!(refused.count(), 0, "each wait ended with memory");
    let row = scene.daemon.until("other", |row| row.overhead == 64 * MIB);
    assert_eq!(row.limbo, 0);
    assert_eq!(scene.daemon.row("one").charged, 864 * MIB);
}

#[test]
fn contexts_of_many_threads_take_no_more_than_there_is() {
    let mut scene = scene(512, 512, &[("GPUSHARE_ON_COLLISION", "fail")]);
    // 384 MiB are nobody's.
    scene.other.does("threads 6");
    scene.daemon.until("other", |row| row.overhead == 448 * MIB);
    assert_eq!(scene.other.ask("create"), "create 2");
    scene.other.does("destroy 7");
    scene.daemon.until("other", |row| row.overhead == 0);
}

#[test]
fn more_calls_than_a_process_may_have_at_once_wait_for_their_turns() {
    let daemon = Daemon::configured(&Gpu::new("mem=4GiB,ctx=64MiB"), FIRST);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_REQUEST", "0")]);
    let (mut guest, file) = held(&tenant, "cuCtxCreate_v2");
    guest.does("bare");
    guest.does("begin 24");
    // The first one of all, and seven more.
    daemon.until("one", |row| row.overhead == 8 * 64 * MIB);
    drop(file);
    guest.does("join");
    daemon.until("one", |row| row.overhead == 24 * 64 * MIB);
}

#[test]
fn a_call_under_way_keeps_its_memory_while_daemons_change() {
    let mut daemon = Daemon::configured(&Gpu::new(SPEC), FIRST);
    let tenant = daemon.tenant("one", &NO_REQUEST);
    let (mut guest, file) = held(&tenant, "cuDevicePrimaryCtxRetain");
    guest.does("init");
    daemon.until("one", |row| row.overhead == 64 * MIB);
    guest.send("retain");
    let both = |daemon: &Daemon| daemon.until("one", |row| row.overhead == 128 * MIB);
    both(&daemon);
    daemon.restart();
    both(&daemon);
    drop(file);
    assert_eq!(guest.line(), "retain 0");
    both(&daemon);
}

/// A program whose calls of this name take until the file is gone.
fn held(tenant: &Tenant, call: &str) -> (Guest, tempfile::TempPath) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let file = file.into_temp_path();
    let mut command = tenant.command(&clients::compile("contexts", &[]));
    command.env("SOFTGPU_HOLD", format!("{call}:{}", file.display()));
    (Guest::start(command), file)
}

#[test]
fn a_program_that_execs_itself_begins_with_a_first_context() {
    let mut scene = scene(700, 700, &[]);
    scene.other.does("create");
    scene.other.does("anew");
    scene.other.does("init");
    scene.daemon.until("other", |row| {
        row.overhead == 64 * MIB && row.limbo == 0 && row.processes.len() == 1
    });
    scene.other.does("create");
    scene.daemon.until("other", |row| row.overhead == 128 * MIB);
}

#[test]
fn the_next_daemon_counts_further_contexts_and_guards_requests_from_more() {
    let mut scene = scene(784, 700, &[("GPUSHARE_WAIT_TIMEOUT", "500ms")]);
    scene.other.does("create");
    scene.daemon.restart();
    for (name, contexts) in [("one", 1), ("other", 2)] {
        scene.daemon.until(name, |row| {
            row.overhead == contexts * 64 * MIB && row.processes.len() == 1
        });
    }
    assert_eq!(scene.other.ask("create"), "create 2");
    scene.one.does(&alloc(84));
    scene.other.does("destroy 2");
    scene.other.does("create");
    scene.daemon.until("other", |row| row.overhead == 64 * MIB);
}

#[test]
fn what_the_driver_refuses_is_its_answer_while_a_daemon_counts() {
    let gpu = Gpu::new(SPEC);
    let mut daemon = Daemon::configured(&gpu, &format!("{FIRST}recovery = \"6s\"\n"));
    let limits = [("GPUSHARE_WAIT_TIMEOUT", "20ms"), NO_REQUEST[0]];
    let tenant = daemon.tenant("one", &limits);
    let (stopped, mut guest) = (started(&tenant), started(&tenant));
    daemon.until("one", |row| row.overhead == 128 * MIB);
    // The next daemon waits for it before it gives any memory.
    gpu.stop(Pid::from_raw(stopped.id().cast_signed()));
    daemon.restart();
    let mut is_refused = || {
        let answer = guest.ask("create");
        if answer == "create 0" {
            guest.does("destroy 1");
        }
        answer == "create 2"
    };
    until("it counts", &mut is_refused);
    assert_eq!(guest.ask("wrong"), "wrong 1");
    drop(stopped);
    until("it has counted", || guest.ask("create") == "create 0");
}

#[test]
fn without_a_daemon_further_contexts_are_the_drivers() {
    let mut scene = scene(864, 784, &[]);
    scene.daemon.kill();
    scene.other.does("create");
    scene.other.does("destroy 2");
    scene.other.does("create");
}
