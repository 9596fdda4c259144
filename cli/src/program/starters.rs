//! Programs that are known to start others where a run's limits do not hold, by the names of their
//! files.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// How a program starts others in a root of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    /// They are its children, with a root in which the preload's path is not there by itself.
    OfItsOwn,
    /// An engine starts them elsewhere, with an environment that is not the program's.
    OfAnEngine,
}

/// Programs that start others in containers.
const OWN: [&str; 8] = [
    "apptainer",
    "singularity",
    "enroot",
    "ch-run",
    "sarus",
    "bwrap",
    "chroot",
    "systemd-nspawn",
];
const ENGINES: [&str; 5] = ["docker", "podman", "podman-hpc", "nerdctl", "shifter"];

/// Programs that start others on other machines, or have them started there.
const ELSEWHERE: [&str; 10] = [
    "srun",
    "sbatch",
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "orterun",
    "prterun",
    "ssh",
    "pdsh",
    "kubectl",
];

/// Programs that have a server on this machine start others, or that give them an environment of
/// its own.
const APART: [&str; 8] = [
    "tmux",
    "screen",
    "systemd-run",
    "machinectl",
    "sudo",
    "doas",
    "at",
    "batch",
];
/// Programs that do so only where a login is asked for.
const SWITCHES: [&str; 2] = ["su", "runuser"];

fn is_in(command: &OsStr, names: &[&str]) -> bool {
    let name = Path::new(command).file_name();
    name.is_some_and(|name| names.iter().any(|known| name == *known))
}

/// Whether a command is known to start programs on other machines.
pub(crate) fn starts_elsewhere(command: &OsStr) -> bool {
    is_in(command, &ELSEWHERE)
}

/// Whether a command is known to start programs on this machine that do not have its environment.
pub(crate) fn starts_apart(command: &OsStr, arguments: &[OsString]) -> bool {
    let asks_for_login = || arguments.iter().any(|one| is_login(one));
    is_in(command, &APART) || is_in(command, &SWITCHES) && asks_for_login()
}

/// Whether an argument asks `su` for the environment of a login.
fn is_login(argument: &OsStr) -> bool {
    ["-", "-l", "--login"].iter().any(|one| argument == *one)
}

/// Whether a command is known to start programs in containers.
pub(crate) fn container(command: &OsStr) -> Option<Container> {
    if is_in(command, &OWN) {
        return Some(Container::OfItsOwn);
    }
    is_in(command, &ENGINES).then_some(Container::OfAnEngine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_start_others_in_containers_are_known_by_their_names() {
        let of = |command: &str| container(OsStr::new(command));
        for own in ["apptainer", "/opt/bin/singularity", "bwrap"] {
            assert_eq!(of(own), Some(Container::OfItsOwn), "{own}");
        }
        for engine in ["docker", "/usr/bin/podman"] {
            assert_eq!(of(engine), Some(Container::OfAnEngine), "{engine}");
        }
        for other in ["python3", "apptainer.py", "/opt/apptainer/run", "", "/"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn programs_that_start_others_on_other_machines_are_known_by_their_names() {
        for (command, known) in [
            ("srun", true),
            ("/usr/bin/mpirun", true),
            ("ssh", true),
            ("sshd", false),
            ("/opt/srun/python3", false),
            ("/", false),
        ] {
            assert_eq!(starts_elsewhere(OsStr::new(command)), known, "{command}");
        }
    }

    #[test]
    fn programs_that_start_others_in_another_environment_are_known() {
        for (command, known) in [
            ("tmux new -d python3", true),
            ("/usr/bin/sudo -u alice id", true),
            ("systemd-run --user id", true),
            ("su - alice -c id", true),
            ("su -l alice", true),
            // It keeps the environment.
            ("su alice -c id", false),
            ("bash -l", false),
            ("python3 tmux", false),
            ("", false),
        ] {
            let mut words = command.split(' ').map(OsString::from);
            let name = words.next().unwrap_or_default();
            let arguments: Vec<OsString> = words.collect();
            assert_eq!(starts_apart(&name, &arguments), known, "{command}");
        }
    }
}
