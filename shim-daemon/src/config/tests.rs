use super::*;
use gpushare_protocol::units::{Bytes, GIB, MIB};

#[test]
fn a_file_says_what_differs_from_the_base() {
    let text = "reserve = \"512MiB\"\nfirst_context = \"64MiB\"\nterm_grace = \"3s\"\nvictim_grace = \"9s\"\n[defaults]\nGPUSHARE_WAIT_TIMEOUT = \"5s\"\n";
    let base = Settings {
        capacity: Some(Bytes(GIB)),
        ..Settings::default()
    };
    let read = read(text, base).unwrap();
    assert_eq!(
        (read.reserve, read.capacity),
        (Bytes(512 * MIB), Some(Bytes(GIB)))
    );
    assert_eq!(read.policy.first_overhead, Bytes(64 * MIB));
    assert_eq!(read.policy.term_grace, Nanos::secs(3));
    assert_eq!(read.policy.victim_grace, Nanos::secs(9));
    assert_eq!(
        read.defaults,
        [("GPUSHARE_WAIT_TIMEOUT".to_owned(), "5s".to_owned())]
    );
}

#[test]
fn a_flag_wins_over_the_file_and_a_silent_one_does_not() {
    let text = "reserve = \"2MiB\"\ncapacity = \"8MiB\"\n";
    let read = |flags| {
        let read = read_under(text, Settings::default(), flags).unwrap();
        (read.reserve, read.capacity)
    };
    let (reserve, capacity) = (Some(Bytes(MIB)), Some(Bytes(4 * MIB)));
    let [file, eight] = [2, 8].map(|count| Bytes(count * MIB));
    assert_eq!(read(Flags::default()), (file, Some(eight)));
    let silent = Flags::default();
    assert_eq!(read(Flags { reserve, ..silent }), (Bytes(MIB), Some(eight)));
    assert_eq!(read(Flags { capacity, ..silent }), (file, capacity));
}

#[test]
fn nothing_may_be_kept_back_but_no_step_and_no_capacity_may_be_nothing() {
    let base = Settings {
        reserve: Bytes(GIB),
        ..Settings::default()
    };
    assert_eq!(
        read("reserve = \"0\"", base.clone()).unwrap().reserve,
        Bytes::ZERO
    );
    assert_eq!(read("", base.clone()).unwrap().reserve, Bytes(GIB));
    for text in ["step = \"0\"", "capacity = \"0\""] {
        assert!(
            read(text, base.clone()).unwrap_err().contains("line 1"),
            "{text}"
        );
    }
}

#[test]
fn the_journal_has_the_size_that_the_file_says() {
    let read = |text| read(text, Settings::default()).map(|settings| settings.journal.bytes);
    assert_eq!(read(""), Ok(16 * MIB));
    assert_eq!(read("journal = \"1GiB\""), Ok(GIB));
    for text in [
        "journal = \"1KiB\"",
        "journal = \"50%\"",
        "journal = \"much\"",
    ] {
        let refused = read(text).unwrap_err();
        assert!(
            refused.contains("line 1") && refused.contains("16MiB"),
            "{refused}"
        );
    }
}

#[test]
fn unmanaged_processes_are_ended_only_where_the_file_says_so() {
    let read = |text| read(text, Settings::default()).unwrap().unmanaged;
    assert_eq!(read(""), Unmanaged::default());
    assert!(!read("unmanaged = \"report\"").end);
    let ends = read("unmanaged = \"end\"\nunmanaged_root = true\nunmanaged_grace = \"1m\"");
    assert_eq!(
        (ends.end, ends.root, ends.grace),
        (true, true, Nanos::secs(60))
    );
}

#[test]
fn cgroups_are_spared_only_by_their_whole_names() {
    let read =
        |text: &str| read(text, Settings::default()).map(|settings| settings.unmanaged.spare);
    let service = "/system.slice/nvidia-mps.service";
    assert_eq!(read(""), Ok(vec![]));
    let one = format!("unmanaged_spare = [{service:?}]");
    assert_eq!(read(&one), Ok(vec![service.to_owned()]));
    for group in ["", "/", "mps", "/a/", "/a//b", "/a/../b"] {
        let text = format!("unmanaged_spare = [{group:?}]");
        let refused = read(&text).unwrap_err();
        let words = ["line 1", "/proc/PID/cgroup", service];
        assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
    }
}

#[test]
fn fences_are_only_where_file_build_and_machine_have_them() {
    let read = |text| read(text, Settings::default()).map(|settings| settings.fences);
    assert_eq!(read(""), Ok(None));
    assert_eq!(read("driver_fence = \"off\""), Ok(None));
    let on = read("driver_fence = \"on\"");
    if cfg!(feature = "driver-fence") {
        assert_eq!(on, Ok(cgroup::unified()));
    } else {
        let error = on.unwrap_err();
        let words = ["line 1", "driver_fence", "feature driver-fence", "\"off\""];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn a_build_without_the_fence_refuses_it() {
    assert!(Fence::of(Switch::On, false).is_err());
    assert_eq!(Fence::of(Switch::On, true), Ok(Fence(Switch::On)));
    for is_built in [false, true] {
        assert_eq!(Fence::of(Switch::Off, is_built), Ok(Fence(Switch::Off)));
    }
}

#[test]
fn turns_are_as_long_as_the_files_profile_says() {
    let read = |text| read(text, Settings::default()).unwrap().policy.lease;
    assert_eq!(read(""), LeasePolicy::default());
    assert_eq!(
        read("[compute]\nprofile = \"interactive\"").quantum,
        Nanos::millis(5)
    );
    let batch = read("[compute]\nprofile = \"batch\"\noverrun = \"40ms\"");
    assert_eq!(
        (batch.quantum, batch.overrun),
        (Nanos::millis(50), Nanos::millis(40))
    );
}

#[test]
fn devices_are_shared_unless_the_file_says_turns() {
    let read = |text| read(text, Settings::default()).unwrap().policy.lease;
    let together = read("[compute]\nsharing = \"together\"");
    assert_eq!(together, LeasePolicy::default());
    assert_eq!(together.sharing, Sharing::Together);
    let turns = read("[compute]\nsharing = \"turns\"");
    assert_eq!(turns, LeasePolicy::turns());
}

#[test]
fn the_drivers_slice_is_one_to_a_hundred_milliseconds() {
    let read = |slice| {
        let text = format!("[compute]\nslice = \"{slice}\"");
        read(&text, Settings::default()).map(|read| read.policy.lease)
    };
    assert_eq!(LeasePolicy::default().slice, Nanos::millis(2));
    for (text, slice) in [("1ms", 1), ("5ms", 5), ("100ms", 100)] {
        let policy = LeasePolicy {
            slice: Nanos::millis(slice),
            ..LeasePolicy::default()
        };
        assert_eq!(read(text), Ok(policy), "{text}");
    }
    for slice in ["0ms", "101ms", "1s", "2", "-2ms"] {
        let error = read(slice).unwrap_err();
        let words = ["line 2", "slice = ", slice, "1ms to 100ms"];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn a_change_of_contexts_takes_up_to_ten_milliseconds() {
    let read = |switch| {
        let text = format!("[compute]\nswitch = \"{switch}\"");
        read(&text, Settings::default()).map(|read| read.policy.lease)
    };
    assert_eq!(LeasePolicy::default().switch, Nanos::micros(150));
    for (text, switch) in [("0us", 0), ("90us", 90), ("10000us", 10_000)] {
        let policy = LeasePolicy {
            switch: Nanos::micros(switch),
            ..LeasePolicy::default()
        };
        assert_eq!(read(text), Ok(policy), "{text}");
    }
    for switch in ["10001us", "1ms", "us", "150", "-1us", "1.5us"] {
        let error = read(switch).unwrap_err();
        let words = ["line 2", "switch = ", switch, "0us to 10000us"];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn an_error_names_the_line_the_key_and_what_is_accepted() {
    for (text, words) in [
        ("reserve = \"much\"", ["line 1", "reserve", "512MiB"]),
        ("\nterm_grace = \"10\"", ["line 2", "term_grace", "10s"]),
        (
            "reserve = \"5%\"",
            ["0, or an amount of bytes", "5%", "512MiB"],
        ),
        ("capacity = \"0\"", ["line 1", "capacity", "more than zero"]),
        ("step = \"0\"", ["line 1", "step", "more than zero"]),
        (
            "end_warning = \"0s\"",
            ["end_warning", "more than zero", "such as 10s"],
        ),
        (
            "victim_grace = \"400d\"",
            ["victim_grace", "at most a year", "10s"],
        ),
        ("rserve = \"1GiB\"", ["line 1", "rserve", "reserve"]),
        (
            "[compute]\nprofile = \"fast\"",
            ["line 2", "profile", "interactive"],
        ),
        (
            "[compute]\nquantum = \"5ms\"",
            ["line 2", "quantum", "profile"],
        ),
        (
            "[compute]\noverrun = \"soon\"",
            ["line 2", "overrun", "ms, s, m, h, d or w"],
        ),
        (
            "[compute]\nsharing = \"alone\"",
            ["line 2", "sharing", "together"],
        ),
        (
            "[compute]\nslice = \"2\"",
            ["line 2", "slice", "1ms to 100ms"],
        ),
        ("[compute]\nearly = false", ["line 2", "early", "sharing"]),
        ("unmanaged = \"kill\"", ["line 1", "kill", "report"]),
        ("driver_fence = true", ["line 1", "driver_fence", "string"]),
        (
            "[defaults]\nGPUSHARE_PRIORITY = \"high\"",
            ["GPUSHARE_PRIORITY", "high", "0 to 1000"],
        ),
        (
            "[defaults]\nGPUSHARE_MEM = \"1GiB\"",
            ["line 2", "GPUSHARE_MEM", "no such limit"],
        ),
        (
            "\n[maxima]\nGPUSHARE_PRIORITY = \"high\"",
            ["line 3", "GPUSHARE_PRIORITY", "0 to 1000"],
        ),
        (
            "[maxima]\nGPUSHARE_MEM_LIMIT_0 = \"8GiB\"",
            ["line 2", "GPUSHARE_MEM_LIMIT_0", "_GPU_<UUID"],
        ),
        (
            "[maxima]\nGPUSHARE_RUN_LIMIT = \"off\"",
            ["line 2", "GPUSHARE_RUN_LIMIT", "8h"],
        ),
        (
            "[maxima]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n[defaults]\nGPUSHARE_MEM_LIMIT = \"9GiB\"",
            ["line 4", "GPUSHARE_MEM_LIMIT", "at most 8GiB"],
        ),
    ] {
        let error = read(text, Settings::default()).unwrap_err();
        assert!(
            words.iter().all(|word| error.contains(word)),
            "{text}: {error}"
        );
    }
}

/// The sample that packages bring, with these prefixes of its lines taken away.
fn sample(prefixes: &[&str]) -> String {
    let text = include_str!("../../../packaging/config.toml");
    let shown = text.lines().map(|line| {
        let bare = prefixes.iter().find_map(|prefix| line.strip_prefix(prefix));
        let is_setting = |line: &&str| {
            let key = line.split_once(" = ").map(|(key, _)| key);
            line.starts_with('[') || key.is_some_and(|key| !key.contains(' '))
        };
        bare.filter(is_setting).unwrap_or("")
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// The tables of the file whose keys are fixed, as a text that opens them and as their headers in
/// the sample.
const TABLES: [(&str, &str); 6] = [
    ("", ""),
    ("[compute]\n", "[compute]"),
    ("[swap]\n", "[swap]"),
    ("[containers]\n", "[containers]"),
    ("[[containers.rules]]\n", "[[containers.rules]]"),
    ("[classes.half]\n", "[classes.half]"),
];

/// The keys that the reader names and `sample` does not have, by table.
fn missing(sample: &str) -> Vec<String> {
    let mut lacks = Vec::new();
    for (opens, header) in TABLES {
        let text = format!("{opens}no_such_key = 1");
        let named = read(&text, Settings::default()).unwrap_err();
        let keys: Vec<&str> = named.split('`').skip(3).step_by(2).collect();
        assert!(keys.len() > 1, "the reader names its keys: {named}");
        let (_, table) = match header {
            "" => ("", sample),
            _ => sample.split_once(header).unwrap_or_default(),
        };
        let own = table.split("\n[").next().unwrap_or_default();
        let has = |key: &&str| {
            let line = format!("{key} = ");
            let path = match header.trim_matches(['[', ']']) {
                "" => (*key).to_owned(),
                above => format!("{above}.{key}"),
            };
            let tables = [format!("[{path}]"), format!("[{path}.")];
            own.lines().any(|own| own.starts_with(&line))
                || tables.iter().any(|table| sample.contains(table))
        };
        lacks.extend(
            keys.iter()
                .filter(|key| !has(key))
                .map(|key| format!("{header}{key}")),
        );
    }
    lacks
}

#[test]
fn the_sample_shows_every_default_as_it_is() {
    let defaults = read(&sample(&["# "]), Settings::default()).unwrap();
    let plain = Settings::default();
    assert_eq!(format!("{defaults:?}"), format!("{plain:?}"));
    // Its examples are accepted, too, and each key that there is occurs.
    let all = sample(&["# ", "## "]);
    read(&all, Settings::default()).unwrap();
    assert_eq!(missing(&all), [] as [&str; 0]);
    // As it is installed it changes nothing.
    let installed = include_str!("../../../packaging/config.toml");
    let untouched = read(installed, Settings::default()).unwrap();
    assert_eq!(format!("{untouched:?}"), format!("{plain:?}"));
}

#[test]
fn a_key_that_the_sample_lacks_is_found_in_every_table() {
    let all = sample(&["# ", "## "]);
    for key in [
        "capacity", "switch", "duplex", "library", "image", "devices",
    ] {
        let without = all.lines().filter(|line| !line.starts_with(key));
        let without = without.collect::<Vec<_>>().join("\n");
        let found = missing(&without);
        assert!(
            found.iter().any(|found| found.ends_with(key)),
            "{key}: {found:?}"
        );
    }
    let without = all.replace("[swap]", "[other]");
    assert!(missing(&without).contains(&"swap".to_owned()));
}

#[test]
fn host_memory_for_swapping_is_what_the_file_says_and_none_by_default() {
    let read = |text| read(text, Settings::default()).map(|read| read.policy.swap.host);
    assert_eq!(read(""), Ok(Bytes::ZERO));
    assert_eq!(read("[swap]\nhost = \"64GiB\""), Ok(Bytes::gib(64)));
    assert_eq!(read("[swap]\nhost = \"0\""), Ok(Bytes::ZERO));
    for (text, word) in [
        ("[swap]\nhost = \"50%\"", "an amount of bytes"),
        ("[swap]\nspill = \"nvme\"", "\"nvme\" is refused"),
        ("[swap]\nmost = \"1GiB\"", "unknown field"),
    ] {
        let refused = read(text).unwrap_err();
        assert!(
            refused.contains("line 2") && refused.contains(word),
            "{refused}"
        );
    }
}

#[test]
fn returns_begin_early_unless_the_file_says_otherwise() {
    let read = |text| read(text, Settings::default()).map(|read| read.policy.swap.duplex);
    assert_eq!(read(""), Ok(true));
    assert_eq!(read("[swap]\nduplex = true"), Ok(true));
    assert_eq!(read("[swap]\nduplex = false"), Ok(false));
    assert!(read("[swap]\nduplex = \"half\"").is_err());
}

#[test]
fn a_default_of_swap_needs_host_memory() {
    let read = |text: &str| read(text, Settings::default());
    for (variable, value) in [
        ("GPUSHARE_OVERSUBSCRIBE", "swap"),
        ("GPUSHARE_ON_COLLISION", "swap,wait"),
    ] {
        let text = format!("[defaults]\n{variable} = \"{value}\"\n");
        let refused = read(&text).unwrap_err();
        for word in ["line 2", "[defaults]", variable, "[swap] host", "accepted"] {
            assert!(refused.contains(word), "{refused}");
        }
        assert!(read(&format!("{text}[swap]\nhost = \"1GiB\"\n")).is_ok());
    }
}

#[test]
fn a_spill_folder_and_its_limit_are_what_the_file_says() {
    let text = "[swap]\nhost = \"1GiB\"\nspill = \"/nvme\"\nspill_limit = \"8GiB\"";
    let read_settings = |text: &str| read(text, Settings::default());
    let read = read_settings(text).unwrap();
    assert_eq!(read.spill.as_deref(), Some(Path::new("/nvme")));
    assert_eq!(read.policy.swap.spill, Bytes::gib(8));
    for (text, word) in [
        (
            "host = \"1GiB\"\nspill = \"/nvme\"",
            "spill needs spill_limit",
        ),
        ("host = \"1GiB\"\nspill_limit = \"1GiB\"", "needs spill"),
        (
            "spill = \"/nvme\"\nspill_limit = \"1GiB\"",
            "spill needs host",
        ),
    ] {
        let refused = read_settings(&format!("[swap]\n{text}")).unwrap_err();
        assert!(
            refused.contains("[swap]") && refused.contains(word),
            "{refused}"
        );
    }
}

#[test]
fn a_reserve_is_smaller_than_the_capacity() {
    let with = |reserve: &str, capacity: &str| {
        let text = format!("reserve = \"{reserve}\"\ncapacity = \"{capacity}\"\n");
        read(&text, Settings::default())
    };
    for reserve in ["5GiB", "4GiB"] {
        let error = with(reserve, "4GiB").unwrap_err();
        assert!(error.contains("leaves nothing of capacity"), "{error}");
    }
    with("3GiB", "4GiB").unwrap();
    read("reserve = \"900GiB\"", Settings::default()).unwrap();
}
