//! `versions.sh`: an upgrade and a removal keep the versions of the library that processes use,
//! also where the library's folder is on a file system of its own, whose paths in `mountinfo` are
//! others.

use gpushare_tests::artefacts;
use gpushare_tests::guest::Guest;
use gpushare_tests::machine::{Machine, ROOT};

/// The library's folder. A separate machine's `/var/lib` is a file system of its own. Its processes
/// are seen by all machines, and their environments name the folder: each test has another one.
struct Here;
const HERE: Here = Here;

impl std::fmt::Display for Here {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let test = std::thread::current();
        let name = test.name().and_then(|name| name.rsplit("::").next());
        write!(out, "/var/lib/opt/a b/{}/lib", name.unwrap_or("test"))
    }
}

fn machine() -> Option<Machine> {
    let test = std::thread::current();
    let machine = Machine::bare(test.name().unwrap_or("versions_kept"))?;
    let script = artefacts::repository().join("packaging/versions.sh");
    machine.sh(
        ROOT,
        &format!(
            "mkdir -p '{HERE}/package' /var/lib/inside && cp '{}' '{HERE}/versions.sh'",
            script.display()
        ),
    );
    Some(machine)
}

/// Installs a version, with this build's library.
fn add(machine: &Machine, version: &str) -> String {
    let library = artefacts::interposer();
    let line = format!(
        "cd '{HERE}' && rm -f package/* && cp {} package/libgpushare.so && \
         echo {version} >package/VERSION && sh ./versions.sh add",
        library.display()
    );
    machine.sh(ROOT, &line)
}

/// The versions that are there.
fn versions(machine: &Machine) -> String {
    let line = format!("ls '{HERE}/versions' 2>/dev/null | tr '\\n' ' '");
    machine.sh(ROOT, &line)
}

/// A process in a mount namespace of its own that has done this there, as a container's first one.
fn container(machine: &Machine, line: &str) -> Guest {
    let line = format!("{line} && echo up && read go");
    let mut command = machine.as_user(ROOT, "unshare");
    command.args(["--mount", "sh", "-c", &line]);
    let mut guest = Guest::start(command);
    assert_eq!(guest.line(), "up");
    guest
}

/// Two upgrades: without a use, the first version goes.
fn upgrade_twice(machine: &Machine) -> String {
    let said = [add(machine, "2"), add(machine, "3")];
    said.join("\n")
}

#[test]
fn a_version_that_a_container_has_mounted_stays_until_it_ends() {
    let Some(machine) = machine() else { return };
    add(&machine, "1");
    let mount = format!("mount --bind '{HERE}/versions/1' /var/lib/inside");
    let inside = container(&machine, &mount);
    let said = upgrade_twice(&machine);
    let told = format!("kept {HERE}/versions/1:");
    assert!(said.contains(&told), "{said}");
    assert_eq!(versions(&machine), "1 2 3");
    inside.kill();
    add(&machine, "4");
    assert_eq!(versions(&machine), "3 4");
}

#[test]
fn a_version_whose_library_alone_is_mounted_stays_and_a_neighbour_goes() {
    let Some(machine) = machine() else { return };
    // A name that begins like the one in use.
    add(&machine, "1");
    add(&machine, "10");
    let mount = format!(
        "touch /var/lib/inside/lib.so && mount --bind '{HERE}/versions/1/libgpushare.so' /var/lib/inside/lib.so"
    );
    let _inside = container(&machine, &mount);
    upgrade_twice(&machine);
    assert_eq!(versions(&machine), "1 2 3");
}

/// As `gpushare cdi generate >FILE` leaves it, which nothing keeps current.
#[test]
fn a_version_that_a_cdi_specification_names_stays_and_is_told() {
    let Some(machine) = machine() else { return };
    add(&machine, "1");
    add(&machine, "10");
    let file = "/run/cdi/ours.json";
    let names = |version: &str| {
        let line = format!(
            "mkdir -p /run/cdi && echo '{{\"hostPath\": \"{HERE}/versions/{version}\"}}' >{file}"
        );
        machine.sh(ROOT, &line);
    };
    names("1");
    let said = upgrade_twice(&machine);
    let told = format!("{file} gives containers the library in {HERE}/versions/1:");
    assert!(said.contains(&told), "{said}");
    // A command that fails leaves the file as it was.
    let told = format!("gpushare cdi generate >{file}.new && mv {file}.new {file}");
    assert!(said.contains(&told), "{said}");
    assert_eq!(versions(&machine), "1 2 3");
    names("4");
    let said = add(&machine, "4");
    assert!(!said.contains(file), "{said}");
    assert_eq!(versions(&machine), "3 4");
    // The daemon's own is written anew by the daemon.
    names("3");
    machine.sh(
        ROOT,
        &format!("mkdir -p /run/gpushare && echo {file} >/run/gpushare/cdi"),
    );
    let said = add(&machine, "5");
    assert!(!said.contains(file), "{said}");
    // A removal keeps none for a specification.
    names("4");
    let remove = format!("rm /run/gpushare/cdi; sh '{HERE}/versions.sh' remove");
    let said = machine.sh(ROOT, &remove);
    let told = format!("{file} names {HERE}/versions/4: no container");
    assert!(said.contains(&told), "{said}");
    assert_eq!(versions(&machine), "");
}

#[test]
fn processes_with_an_older_version_are_listed_and_others_are_not() {
    let Some(machine) = machine() else { return };
    let users = || machine.sh(ROOT, &format!("sh '{HERE}/versions.sh' users"));
    add(&machine, "1");
    let mount = |version: u32| format!("mount --bind '{HERE}/versions/{version}' /var/lib/inside");
    let old = container(&machine, &mount(1));
    assert_eq!(users(), "", "the version is the current one");
    add(&machine, "2");
    let new = container(&machine, &mount(2));
    let told = users();
    let words: Vec<&str> = told.split_whitespace().collect();
    // The test machine's own number of the process is not known here.
    assert_eq!(words[1..], ["sh", "1"], "{told}");
    assert!(words[0].parse::<u32>().is_ok(), "{told}");
    new.kill();
    old.kill();
    assert_eq!(users(), "");
}

/// As where a process stays within an `exec`: the kernel shows its maps after that.
#[test]
fn maps_that_cannot_be_read_hold_no_upgrade_up_and_count_as_a_use() {
    let Some(machine) = machine() else { return };
    add(&machine, "1");
    add(&machine, "2");
    let waits = "#!/bin/sh\ncase $1 in -lsE) exec sleep 1000 ;; esac\nexec /usr/bin/grep \"$@\"\n";
    let said = machine.sh(
        ROOT,
        &format!(
            "mkdir /var/lib/slow && printf '{waits}' >/var/lib/slow/grep && chmod 755 /var/lib/slow/grep && \
             cd '{HERE}' && echo 3 >package/VERSION && PATH=/var/lib/slow:$PATH sh ./versions.sh add && \
             PATH=/var/lib/slow:$PATH sh ./versions.sh users"
        ),
    );
    let told = format!("kept {HERE}/versions/1:");
    assert!(said.contains(&told), "{said}");
    assert_eq!(said.lines().count(), 1, "no process is named: {said}");
    assert_eq!(versions(&machine), "1 2 3");
    add(&machine, "4");
    assert_eq!(versions(&machine), "3 4");
}

#[test]
fn a_removal_keeps_what_a_container_has_mounted() {
    let Some(machine) = machine() else { return };
    add(&machine, "1");
    add(&machine, "2");
    let mount = format!("mount --bind '{HERE}/versions/1' /var/lib/inside");
    let inside = container(&machine, &mount);
    let remove = || machine.sh(ROOT, &format!("sh '{HERE}/versions.sh' remove"));
    let said = remove();
    assert!(
        said.contains("versions/1:") && !said.contains("versions/2:"),
        "{said}"
    );
    assert_eq!(versions(&machine), "1");
    inside.kill();
    assert_eq!(remove(), "");
    assert_eq!(versions(&machine), "");
}

#[test]
fn a_library_that_a_process_maps_by_another_path_stays() {
    let Some(machine) = machine() else { return };
    add(&machine, "1");
    // The mount goes; what was mapped through it stays mapped.
    let line = format!(
        "touch /var/lib/inside/lib.so && mount --bind '{HERE}/versions/1/libgpushare.so' /var/lib/inside/lib.so && \
         exec env LD_PRELOAD=/var/lib/inside/lib.so sh -c 'umount -l /var/lib/inside/lib.so; echo up; read go'"
    );
    let mut command = machine.as_user(ROOT, "unshare");
    command.args(["--mount", "sh", "-c", &line]);
    let mut inside = Guest::start(command);
    assert_eq!(inside.line(), "up");
    upgrade_twice(&machine);
    assert_eq!(versions(&machine), "1 2 3");
    inside.kill();
    add(&machine, "4");
    assert_eq!(versions(&machine), "3 4");
}

#[test]
fn where_the_mount_is_out_of_sight_the_versions_name_decides() {
    let Some(machine) = machine() else { return };
    // A root that is no mount point: no line of mountinfo is about its file system.
    let root = "/var/lib/root";
    machine.sh(
        ROOT,
        &format!(
            "mkdir -p {root}/lib {root}/package {root}/proc && cd {root} && mkdir bin dev etc usr lib64; \
             for folder in bin dev etc usr lib lib64; do [ ! -e /$folder ] || mount --rbind /$folder {root}/$folder; done; \
             mount --rbind /proc {root}/proc; mkdir -p '{root}{HERE}/package' {root}/tmp && cp '{HERE}/versions.sh' '{root}{HERE}/'"
        ),
    );
    let within = |line: &str| {
        let line = format!("chroot {root} sh -c \"cd '{HERE}' && {line}\"");
        machine.sh(ROOT, &line)
    };
    let add = |version: &str| {
        within(&format!(
            "rm -f package/*; echo lib{version} >package/libgpushare.so; echo {version} >package/VERSION; sh ./versions.sh add"
        ))
    };
    // Names of this test alone: the processes of all tests are seen.
    add("61");
    let mount = format!("mount --bind '{root}{HERE}/versions/61' /var/lib/inside");
    let inside = container(&machine, &mount);
    add("62");
    add("63");
    assert_eq!(within("ls versions | tr '\\n' ' '"), "61 62 63");
    inside.kill();
    add("64");
    assert_eq!(within("ls versions | tr '\\n' ' '"), "63 64");
}

/// A program that is about to start may have the path of the one before already.
#[test]
fn an_upgrade_that_is_repeated_keeps_the_version_before_it() {
    let Some(machine) = machine() else { return };
    for version in ["1", "2", "2"] {
        add(&machine, version);
    }
    assert_eq!(versions(&machine), "1 2");
    // What was current last, not what was made last.
    for version in ["3", "2", "2"] {
        add(&machine, version);
    }
    assert_eq!(versions(&machine), "2 3");
    add(&machine, "4");
    assert_eq!(versions(&machine), "2 4");
}

/// A version in a folder of NFS is mapped by programs of machines whose `/proc` is not here.
#[test]
fn where_other_machines_may_use_the_folder_no_version_goes() {
    let Some(machine) = machine() else { return };
    let by = |magic: &str| {
        let stat = format!(
            "#!/bin/sh\ncase $1 in -f) echo {magic} ;; *) exec /usr/bin/stat \"$@\" ;; esac\n"
        );
        let line = format!(
            "mkdir -p /var/lib/stat && printf '%s' '{stat}' >/var/lib/stat/stat && chmod 755 /var/lib/stat/stat"
        );
        machine.sh(ROOT, &line);
    };
    let call = |line: &str| {
        machine.sh(
            ROOT,
            &format!("cd '{HERE}' && PATH=/var/lib/stat:$PATH && {line}"),
        )
    };
    by("6969");
    call("echo 1 >package/VERSION; echo lib >package/libgpushare.so; sh ./versions.sh add");
    for version in ["2", "3"] {
        call(&format!(
            "echo {version} >package/VERSION; sh ./versions.sh add"
        ));
    }
    assert_eq!(versions(&machine), "1 2 3");
    let said = call("sh ./versions.sh remove");
    let told = format!("kept {HERE}/versions/1: other machines may use it");
    assert!(said.contains(&told), "{said}");
    assert_eq!(versions(&machine), "1 2 3");
    // ext4.
    by("ef53");
    assert_eq!(call("sh ./versions.sh remove"), "");
    assert_eq!(versions(&machine), "");
}

/// A static supervisor of `gpushare run` maps nothing; what it starts loads the version.
#[test]
fn a_version_that_an_environment_names_stays() {
    let Some(machine) = machine() else { return };
    add(&machine, "1");
    let named = |folder: &str| {
        let path = format!("{HERE}/{folder}/lib/libgpushare.so");
        let mut command = machine.as_user(ROOT, "env");
        command.args([&format!("NAMES={path}"), "sh", "-c", "echo up; read go"]);
        let mut guest = Guest::start(command);
        assert_eq!(guest.line(), "up");
        guest
    };
    let uses = named("versions/1/gpushare-preload");
    let other = named("versions/10/gpushare-preload");
    upgrade_twice(&machine);
    assert_eq!(versions(&machine), "1 2 3");
    let users = machine.sh(ROOT, &format!("sh '{HERE}/versions.sh' users"));
    assert!(users.ends_with(" sh 1"), "{users}");
    uses.kill();
    other.kill();
    add(&machine, "4");
    assert_eq!(versions(&machine), "3 4");
}

/// Programs of a shell that evaluated `gpushare env` take the version of their start.
#[test]
fn the_preload_of_a_shell_leads_to_the_newest_version() {
    let Some(machine) = machine() else { return };
    let leads = || {
        let line =
            format!("readlink -f '{HERE}/gpushare-preload/lib/x86_64-linux-gnu/libgpushare.so'");
        machine.sh(ROOT, &line)
    };
    for version in ["1", "2", "3"] {
        add(&machine, version);
        let library = format!("{HERE}/versions/{version}/libgpushare.so");
        assert_eq!(leads(), library);
    }
    // A removal takes neither it nor what it leads to from a shell that has it.
    let mut shell = machine.as_user(ROOT, "env");
    let path = format!("NAMES={HERE}/gpushare-preload/lib/libgpushare.so");
    shell.args([&path, "sh", "-c", "echo up; read go"]);
    let mut shell = Guest::start(shell);
    assert_eq!(shell.line(), "up");
    let remove = || machine.sh(ROOT, &format!("sh '{HERE}/versions.sh' remove"));
    for _ in 0..2 {
        let said = remove();
        let told = format!("kept {HERE}/versions/3:");
        assert!(said.contains(&told), "{said}");
        assert_eq!(versions(&machine), "3");
        assert_eq!(leads(), format!("{HERE}/versions/3/libgpushare.so"));
    }
    shell.kill();
    assert_eq!(remove(), "");
    let line = format!("ls '{HERE}'");
    assert_eq!(machine.sh(ROOT, &line).trim(), "package\nversions.sh");
}
