//! An ordinary user's Podman: that user's own hook registers the container, under the node's
//! maxima. The container has no cgroup of its own here, so the operator has to accept that.
//! And root's Podman with the same image, in a user namespace.

use std::process::Command;

use gpushare_tests::container::Lab;
use gpushare_tests::gpu::links;
use gpushare_tests::machine::{ALICE, ROOT};
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{GIB, Guest, artefacts, clients, until};

const IMAGE: &str = "docker.io/lab/small:1";
/// All of the user's folders, and Podman with them.
const PODMAN: &str = "env HOME=/var/lib/lab/home XDG_RUNTIME_DIR=/var/lib/lab/user podman \
    --root /var/lib/lab/home/root --runroot /var/lib/lab/user/run --tmpdir /var/lib/lab/user/tmp \
    --storage-driver vfs --cgroup-manager cgroupfs --events-backend file --runtime runc \
    --hooks-dir /var/lib/lab/hooks.d";

/// The same for root.
const ROOTS: &str = "podman --root /var/lib/lab/roots/root --runroot /var/lib/lab/roots/run \
    --tmpdir /var/lib/lab/roots/tmp --storage-driver vfs --cgroup-manager cgroupfs \
    --events-backend file --runtime runc --hooks-dir /var/lib/lab/hooks.d";

/// A machine whose user has the image.
fn lab(config: &str) -> Option<Lab> {
    let lab = with_an_image(config, &["podman", "runc", "newuidmap"])?;
    lab.machine().sh(
        ALICE,
        &format!("cd /var/lib/lab/home && {PODMAN} load --input /var/lib/lab/image.tar"),
    );
    Some(lab)
}

/// A machine with an archive of the image, where these programs are installed.
fn with_an_image(config: &str, programs: &[&str]) -> Option<Lab> {
    let test = std::thread::current();
    let test = test.name().unwrap_or("containers_rootless");
    for program in programs {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output();
        if !found.is_ok_and(|found| found.status.success()) {
            not_runnable_here(test, &format!("{program} is not installed"));
            return None;
        }
    }
    let lab = Lab::start(test, config)?;
    let hook = artefacts::folder()
        .join("gpushare-oci-hook")
        .display()
        .to_string();
    let script = artefacts::repository().join("tests/clients/small_image.sh");
    let (cuda, library) = (artefacts::soft_cuda(), artefacts::interposer());
    lab.sh(&format!(
        "cd /var/lib/lab && mkdir -p home user hooks.d && chown {ALICE}:{ALICE} home user && \
         chmod 700 user && for file in subuid subgid; do \
         for name in nobody nogroup; do echo $name:200000:65536; done >$file; \
         mount --bind $file /etc/$file; done && \
         printf '%s\\n' '{{\"version\": \"1.0.0\", \"hook\": {{\"path\": \"{hook}\", \"args\": [\"{hook}\", \
         \"--library\", \"/var/lib/lab/library\", \"createRuntime\"], \"env\": [], \"timeout\": 10}}, \
         \"when\": {{\"annotations\": {{\"^gpushare\\\\.io/.*$\": \".*\"}}}}, \
         \"stages\": [\"createRuntime\"]}}' >hooks.d/gpushare.json && \
         {} /var/lib/lab/image.tar {IMAGE} {} {}",
        script.display(),
        cuda.display(),
        library.display(),
    ));
    Some(lab)
}

/// The quota client in a container of that user.
fn container(lab: &Lab, limit: &str) -> Guest {
    let line = format!(
        "cd /var/lib/lab/home && exec {PODMAN} {}",
        run(lab, limit, "")
    );
    let mut command = lab.machine().as_user(ALICE, "sh");
    command.env_remove("LD_LIBRARY_PATH").args(["-c", &line]);
    Guest::start(command)
}

/// Podman's words for the quota client in a container, with these flags.
fn run(lab: &Lab, limit: &str, flags: &str) -> String {
    let build = artefacts::folder()
        .parent()
        .expect("a target folder")
        .display();
    format!(
        "run --interactive --rm --network host {flags} \
         --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 \
         --annotation gpushare.io/mem-limit={limit} --env LD_LIBRARY_PATH={} --env SOFTGPU={} \
         --env SOFTGPU_FOLDER=/mnt/softgpu --volume /var/lib/lab/gpu:/mnt/softgpu \
         --volume {build}:{build} {IMAGE} {}",
        links().display(),
        lab.machine().gpu().spec(),
        clients::compile("quota", &[]).display()
    )
}

#[test]
#[ignore = "long tier: needs Podman and uidmap"]
fn a_users_container_has_its_quota_under_the_nodes_maxima() {
    let config = "[containers]\nno_cgroup = \"socket\"\n[maxima]\nGPUSHARE_MEM_LIMIT = \"3GiB\"\n";
    let Some(lab) = lab(config) else { return };
    let mut guest = container(&lab, "2GiB").started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
    assert_eq!(guest.ask(&format!("alloc {GIB}")), "alloc 0");
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), "alloc 2");
    let tenants = || lab.sh("ls /run/gpushare/sockets");
    let row = lab.row(&tenants()).expect("it is a tenant");
    assert_eq!(
        (&row["charged"], &row["owner"]),
        (&GIB.into(), &ALICE.into()),
        "{row}"
    );
    guest.finish();
    until("it ends", || tenants().is_empty());
    let ended = container(&lab, "4GiB").finish();
    assert!(
        !ended.status.success() && ended.stdout.is_empty(),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("at most 3GiB"), "{ended:?}");
}

#[test]
#[ignore = "long tier: needs Podman and uidmap"]
fn a_users_container_without_a_cgroup_is_refused_by_default() {
    let Some(lab) = lab("") else { return };
    let ended = container(&lab, "2GiB").finish();
    assert!(
        !ended.status.success() && ended.stdout.is_empty(),
        "{ended:?}"
    );
    for word in ["no cgroup of its own", "no_cgroup = "] {
        assert!(ended.stderr.contains(word), "{word}: {ended:?}");
    }
    let events = lab.machine().run(ROOT, &["ps", "--json"]);
    assert_eq!(String::from_utf8_lossy(&events.stdout).trim(), "[]");
}

/// Podman 4.3.1 gives the folder of its bundle to the container's root, as it does not where the
/// root was prepared (`--rootfs`).
#[test]
#[ignore = "long tier: needs Podman"]
fn roots_container_of_an_image_has_its_quota_in_a_user_namespace() {
    let Some(lab) = with_an_image("", &["podman", "runc"]) else {
        return;
    };
    lab.sh(&format!(
        "mkdir -p /var/lib/lab/roots && {ROOTS} load --input /var/lib/lab/image.tar"
    ));
    let flags = "--uidmap 0:100000:65536 --gidmap 0:100000:65536";
    let line = format!("exec {ROOTS} {}", run(&lab, "2GiB", flags));
    let mut command = lab.machine().as_user(ROOT, "unshare");
    command.env_remove("LD_LIBRARY_PATH");
    command.args(["--mount", "--propagation", "slave", "sh", "-c", &line]);
    let mut guest = Guest::start(command).started();
    assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
    guest.finish();
}
