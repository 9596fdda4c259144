//! The flags and variables of Docker's daemon, as its unit has them.

use super::*;

/// Docker with this unit and this drop-in.
fn docker(unit: &str, part: &str) -> (Machine, Engine) {
    let machine = Machine::new(&["usr/bin/dockerd"]);
    machine.put("usr/lib/systemd/system/docker.service", unit);
    if !part.is_empty() {
        machine.put("etc/systemd/system/docker.service.d/x.conf", part);
    }
    let engine = machine.engine();
    (machine, engine)
}

const OURS: &str = "--add-runtime gpushare=/usr/bin/gpushare-runtime --default-runtime gpushare";

#[test]
fn the_flags_of_dockers_daemon_count_as_its_file_does() {
    let plain = "[Service]\nExecStart=/usr/bin/dockerd -H fd://\n";
    let with_equals = OURS.replace("runtime gpushare", "runtime=gpushare");
    for (unit, part) in [
        (format!("[Service]\nExecStart=/usr/bin/dockerd {OURS}\n"), String::new()),
        (plain.to_owned(), format!("[Service]\nExecStart=\nExecStart=dockerd {OURS}\n")),
        (plain.to_owned(), format!("[Service]\nExecStart=\nExecStart=dockerd \\\n {with_equals}\n")),
        (
            "[Service]\nEnvironment=\"OPTS=-H fd://\" 'MORE=--debug'\nExecStart=dockerd $OPTS $MORE\n".to_owned(),
            format!("[Service]\nEnvironment=\"MORE={OURS}\"\n"),
        ),
    ] {
        let (machine, engine) = docker(&unit, &part);
        assert_eq!(engine.runtimes, [machine.runtime("gpushare", None)], "{unit}{part}");
        assert_eq!(engine.default.as_deref(), Some("gpushare"));
    }
    let (_, engine) = docker(plain, &format!("#ExecStart=dockerd {OURS}\n"));
    assert_eq!((engine.runtimes, engine.default), (vec![], None));
}

#[test]
fn a_file_of_variables_counts_where_the_unit_names_it() {
    let unit = |from: &str| format!("[Service]\n{from}ExecStart=dockerd $OPTIONS\n");
    let default = |unit: &str| {
        let machine = Machine::new(&["usr/bin/dockerd"]);
        machine.put("lib/systemd/system/docker.service", unit);
        machine.put(
            "etc/sysconfig/docker",
            &format!("# x\nOPTIONS=\"{OURS}\"\n"),
        );
        machine.engine().default
    };
    let named = default(&unit("EnvironmentFile=-/etc/sysconfig/docker\n"));
    assert_eq!(named.as_deref(), Some("gpushare"));
    assert_eq!(default(&unit("")), None);
}

#[test]
fn image_builds_come_to_the_wrapper_by_a_variable_of_the_daemon_alone() {
    let unit = "[Service]\nExecStart=/usr/bin/dockerd\n";
    let past = |part: &str| docker(unit, part).1.builds_past;
    let variable =
        |path: &str| format!("[Service]\nEnvironment=DOCKER_BUILDKIT_RUNC_COMMAND={path}\n");
    assert!(past(""));
    assert!(past(&variable("/usr/bin/crun")));
    assert!(!past(&variable("/usr/bin/gpushare-runtime")));
    assert!(docker(&format!("{unit}# {OURS}"), "").1.builds_past);
    let (machine, _) = docker(unit, "");
    machine.put("etc/docker/daemon.json", "{\"features\": {\"cdi\": false}}");
    assert!(!machine.engine().builds_past, "it gives builds no GPU");
}
