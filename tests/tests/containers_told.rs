//! What is told of a container that the hook refuses, under runtimes that drop what hooks say, or
//! send it to a file that an annotation names.

use std::os::unix::net::UnixDatagram;

use gpushare_tests::container::{Bundle, Lab, Runtime};
use gpushare_tests::runnable::not_runnable_here;

/// A line for root's shell: a `/dev` of this machine alone, whose log is the socket `$1`.
const OWN_DEV: &str = "mkdir -p /run/dev/all /run/dev/upper /run/dev/work && \
     mount --rbind /dev /run/dev/all && \
     mount -t overlay overlay -o lowerdir=/dev,upperdir=/run/dev/upper,workdir=/run/dev/work /dev && \
     for folder in pts shm; do mount --bind /run/dev/all/$folder /dev/$folder; done";
/// The annotation by which crun chooses where hooks write.
const OUTPUT: &str = "run.oci.hooks.stderr";
/// The file that it names.
const CHOSEN: &str = "/var/lib/lab/chosen";

/// What the machine's log has been told since the last call.
fn told(log: &UnixDatagram) -> Vec<String> {
    let mut all = Vec::new();
    let mut text = [0; 4096];
    while let Ok(length) = log.recv(&mut text) {
        let line = String::from_utf8_lossy(&text[..length]).into_owned();
        // Runtimes may use the same log.
        all.extend(line.contains("gpushare-oci-hook").then_some(line));
    }
    all
}

/// A container with a misspelt limit is refused, by each of these runtimes that is installed.
fn all(test: &str, runtimes: &[(Runtime, &str)]) {
    let Some(lab) = Lab::start(test, "") else {
        return;
    };
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("log");
    let log = UnixDatagram::bind(&path).expect("a socket");
    log.set_nonblocking(true).expect("it is one");
    lab.sh(&format!("{OWN_DEV} && ln -s {} /dev/log", path.display()));
    for (number, (runtime, program)) in runtimes.iter().enumerate() {
        if lab.sh(&format!("command -v {program} || true")).is_empty() {
            not_runnable_here(test, &format!("{program} is not installed"));
            continue;
        }
        for output in [None, Some(CHOSEN)] {
            let id = format!("c{number}{}", output.map_or("", |_| "x"));
            let mut bundle = Bundle::new(&id, *runtime, &[("mem-limt", "2GiB")]);
            bundle
                .annotations
                .extend(output.map(|path| (OUTPUT.to_owned(), path.to_owned())));
            let ended = lab.ends(&bundle);
            assert!(
                !ended.status.success() && ended.stdout.is_empty(),
                "{ended:?}"
            );
            let told = told(&log);
            let [line] = &told[..] else {
                panic!("one line: {told:?} {ended:?}");
            };
            assert!(
                line.contains("is refused: annotation gpushare.io/mem-limt"),
                "{line}"
            );
            // Whoever opens that file, no word of an image is in it.
            assert_eq!(lab.sh(&format!("cat {CHOSEN} 2>/dev/null || true")), "");
        }
        let mut asks = Bundle::new(&format!("c{number}y"), *runtime, &[("mem-limit", "2GiB")]);
        asks.program = vec!["true".to_owned()];
        let ended = lab.ends(&asks);
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(told(&log), [""; 0], "it is not refused");
    }
}

#[test]
fn the_machines_log_has_the_reason_of_a_refusal() {
    let test = "the_machines_log_has_the_reason_of_a_refusal";
    all(test, &[(Runtime::ByHand, "sh")]);
}

#[test]
#[ignore = "long tier: needs runc, crun and Podman"]
fn under_runtimes_that_drop_it_the_log_has_the_reason_of_a_refusal() {
    let runtimes = [
        (Runtime::Runc, "runc"),
        (Runtime::Crun, "crun"),
        (Runtime::Podman("runc"), "podman"),
        (Runtime::Podman("crun"), "podman"),
    ];
    let test = "under_runtimes_that_drop_it_the_log_has_the_reason_of_a_refusal";
    all(test, &runtimes);
}
