//! `gpushare top`: one page as text, and in a real terminal.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use gpushare_tests::terminal::Terminal;
use gpushare_tests::{Home, artefacts, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const MIB: u64 = 1 << 20;

#[test]
fn one_screen_as_text_shows_what_runs_and_needs_no_terminal() {
    let home = Home::new("mem=16GiB");
    let mut guest = home.guest("shown", &["--mem-limit", "1GiB"]);
    assert_eq!(guest.ask(&format!("alloc {}", 300 * MIB)), "alloc 0");
    let output = home.gpushare(&["top", "--once"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let row = text.lines().find(|line| line.starts_with("shown "));
    assert!(row.is_some_and(|row| row.contains("300M/1G")), "{text}");
    assert!(text.contains("1 GPU  1 tenant  0 queued"), "{text}");
    let gpu = text.lines().find(|line| line.starts_with("GPU 0 "));
    let gpu = gpu.unwrap_or_else(|| panic!("{text}"));
    for part in ["  util ", "%  ", "W  ", "C"] {
        assert!(gpu.contains(part), "what NVML shows of the GPU: {gpu}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let output = home.gpushare(&["top"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("--once"),
        "{output:?}"
    );
}

#[test]
fn a_watched_list_goes_on_with_the_next_daemon() {
    let home = Home::new("mem=16GiB");
    let first = home.guest("first", &["--mem-limit", "1GiB"]);
    let mut command = home.command(&["ps", "--watch", "0.5"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("gpushare starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut lines = lines.map_while(Result::ok);
    let notes = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut notes = notes.map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("first ")));
    first.finish().silently();
    home.until_no_daemon();
    assert!(notes.any(|line| line.contains("note: this is old: ")));
    let _second = home.guest("second", &["--mem-limit", "1GiB"]);
    assert!(lines.any(|line| line.starts_with("second ")));
    drop(lines);
    let status = child.wait().expect("nothing reads it any more");
    assert!(status.success(), "{status}");
}

#[test]
fn a_watched_list_is_printed_again_and_again() {
    let home = Home::new("mem=16GiB");
    let _guest = home.guest("watched", &["--mem-limit", "1GiB"]);
    let mut command = home.command(&["ps", "--watch", "0.1"]);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("gpushare starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let rows = lines
        .map_while(Result::ok)
        .filter(|line| line.starts_with("watched"));
    assert_eq!(rows.take(3).count(), 3);
    // Nothing reads it any more, as behind `| head`.
    until("it has ended", || {
        child.try_wait().is_ok_and(|ended| ended.is_some())
    });
    let status = child.wait().expect("it has ended");
    assert!(status.success(), "{status}");
}

#[test]
fn in_a_terminal_keys_sort_filter_change_and_end_tenants() {
    let test = "top::in_a_terminal_keys_sort_filter_change_and_end_tenants";
    let home = Home::new("mem=16GiB");
    let mut first = home.guest("alpha", &["--mem-limit", "4GiB", "--mem-request", "1GiB"]);
    let mut second = home.guest("beta", &["--mem-limit", "2GiB"]);
    first.ask(&format!("alloc {}", 100 * MIB));
    second.ask(&format!("alloc {}", 200 * MIB));
    let like = home.command(&["top"]);
    let Some(terminal) = Terminal::open(test, &like, (100, 30)) else {
        return;
    };
    let program = artefacts::gpushare();
    terminal.write(&format!("{} top --every 0.2", program.display()));
    terminal.press(&["Enter"]);
    let at = |screen: &str, name: &str| {
        let start = format!("{name} ");
        screen.lines().position(|line| line.starts_with(&start))
    };
    let are_there = |screen: &str| screen.contains("200M/2G") && screen.contains("100M/4G");
    let screen = terminal.until(are_there);
    assert!(
        at(&screen, "beta") < at(&screen, "alpha"),
        "by memory:\n{screen}"
    );
    for (keys, foot) in [
        ("o", "(time)"),
        ("o", "(wait)"),
        ("o", "(refusals)"),
        ("o", "(name)"),
    ] {
        terminal.press(&[keys]);
        terminal.until(|screen| screen.contains(foot));
    }
    let screen = terminal.screen();
    assert!(
        at(&screen, "alpha") < at(&screen, "beta"),
        "by name:\n{screen}"
    );
    terminal.press(&["?"]);
    terminal.until(|screen| screen.contains("any key leaves this help"));
    terminal.press(&["x"]);
    terminal.press(&["Enter"]);
    terminal.until(|screen| screen.contains(" pid "));
    terminal.press(&["Enter", "f"]);
    terminal.write("bet");
    terminal.until(|screen| at(screen, "alpha").is_none() && at(screen, "beta").is_some());
    terminal.press(&["Enter", "L"]);
    terminal.write("3GiB");
    terminal.press(&["Enter"]);
    terminal.until(|screen| screen.contains("200M/3G"));
    terminal.resize((60, 20));
    terminal.until(|screen| at(screen, "beta").is_some() && !screen.contains("PEAK"));
    terminal.resize((100, 30));
    terminal.until(|screen| screen.contains("PEAK"));
    terminal.press(&["K"]);
    terminal.until(|screen| screen.contains("ask tenant beta to end?"));
    terminal.press(&["y"]);
    until("beta is gone", || home.row("beta").is_none());
    let ended = second.finish();
    assert!(!ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("ended it"), "{ended:?}");
    terminal.press(&["Escape"]);
    terminal.until(|screen| at(screen, "alpha").is_some() && at(screen, "beta").is_none());
    assert!(home.row("alpha").is_some(), "the other lives");
    // The terminal is as it was.
    terminal.press(&["q"]);
    terminal.until(|screen| screen.contains("ready$") && !screen.contains("TENANT"));
    terminal.write("stty -a");
    terminal.press(&["Enter"]);
    let screen = terminal.until(|screen| screen.contains("icanon"));
    assert!(
        !screen.contains("-icanon") && !screen.contains("-echo "),
        "{screen}"
    );
    until("the daemon has the one tenant", || home.ps().len() == 1);
}

#[test]
fn a_daemon_that_does_not_answer_keeps_nobody_in_top() {
    let test = "top::a_daemon_that_does_not_answer_keeps_nobody_in_top";
    let home = Home::new("mem=16GiB");
    let _guest = home.guest("alpha", &["--mem-limit", "4GiB"]);
    let Some(terminal) = Terminal::open(test, &home.command(&["top"]), (100, 30)) else {
        return;
    };
    let program = artefacts::gpushare();
    terminal.write(&format!("{} top --every 0.2", program.display()));
    terminal.press(&["Enter"]);
    terminal.until(|screen| screen.contains("alpha"));
    let daemon = Pid::from_raw(home.daemons()[0].cast_signed());
    kill(daemon, Signal::SIGSTOP).expect("it lives");
    terminal.until(|screen| screen.contains("what is shown is old"));
    kill(daemon, Signal::SIGCONT).expect("it lives");
    terminal.until(|screen| !screen.contains("what is shown is old"));
    kill(daemon, Signal::SIGSTOP).expect("it lives");
    terminal.until(|screen| screen.contains("what is shown is old"));
    terminal.press(&["q"]);
    terminal.until(|screen| screen.contains("ready$") && !screen.contains("TENANT"));
    kill(daemon, Signal::SIGCONT).expect("it lives");
}

#[test]
fn in_a_terminal_a_tenant_is_suspended_and_resumed() {
    let test = "top::in_a_terminal_a_tenant_is_suspended_and_resumed";
    let home = Home::with_config("mem=16GiB", "[swap]\nhost = \"1GiB\"\n");
    let mut moves = home.guest("moves", &["--oversubscribe", "swap", "--mem-limit", "1GiB"]);
    assert_eq!(moves.ask(&format!("alloc {}", 64 * MIB)), "alloc 0");
    let mut stays = home.guest("stays", &["--mem-limit", "1GiB"]);
    stays.ask(&format!("alloc {}", 100 * MIB));
    let like = home.command(&["top"]);
    let Some(terminal) = Terminal::open(test, &like, (120, 30)) else {
        return;
    };
    terminal.write(&format!(
        "{} top --every 0.2",
        artefacts::gpushare().display()
    ));
    terminal.press(&["Enter"]);
    terminal.until(|screen| screen.contains("64M/1G"));
    let state = |screen: &str, name: &str| {
        let mut rows = screen.lines();
        rows.find(|row| row.starts_with(name))
            .unwrap_or_default()
            .to_owned()
    };
    // The first row holds the most memory, which cannot move.
    terminal.press(&["s"]);
    terminal.until(|screen| screen.contains("stays cannot be suspended"));
    terminal.press(&["Down", "s"]);
    terminal.until(|screen| state(screen, "moves").contains("suspended 64M"));
    let metrics = home.gpushare(&["metrics"]);
    let text = String::from_utf8_lossy(&metrics.stdout).into_owned();
    let value = |name: &str| {
        let start = format!("{name}{{tenant=\"moves\"");
        let line = text.lines().find(|line| line.starts_with(&start));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    assert_eq!(value("gpushare_tenant_suspended"), Some(2), "{text}");
    let swapped = value("gpushare_tenant_memory_swapped_bytes");
    assert_eq!(swapped, Some(64 * MIB), "{text}");
    assert!(
        value("gpushare_tenant_swap_bytes_total") >= swapped,
        "{text}"
    );
    terminal.press(&["s"]);
    terminal.until(|screen| {
        let row = state(screen, "moves");
        !row.is_empty() && !row.contains("suspended")
    });
    // Its bytes are back, and whole.
    assert_eq!(moves.ask("check"), "check 1");
    terminal.press(&["q"]);
}
