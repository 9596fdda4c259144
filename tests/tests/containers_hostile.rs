//! Images and configurations that try to reach the host through the hook. Nothing on the host is
//! written, nothing runs outside, and no container starts unenforced.

use gpushare_tests::GIB;
use gpushare_tests::container::{Bundle, Lab, Runtime};
use gpushare_tests::runnable::not_runnable_here;

const TWO: [(&str, &str); 2] = [("mem-limit", "2GiB"), ("devices", "0")];
/// A folder of the host that no container may access.
const HOST: &str = "/var/lib/lab/host";

/// The result of a shape.
enum Comes {
    /// The create fails, with this in its one line.
    Refused(&'static str),
    /// The container starts, under its limit.
    Enforced,
}

struct Shape {
    what: &'static str,
    /// A shell line in the image's root.
    image: &'static str,
    /// A folder or file of the host, mounted here.
    volume: Option<(&'static str, &'static str)>,
    comes: Comes,
}

const fn image(what: &'static str, image: &'static str, comes: Comes) -> Shape {
    Shape {
        what,
        image,
        volume: None,
        comes,
    }
}

const fn volume(what: &'static str, from: &'static str, to: &'static str) -> Shape {
    Shape {
        what,
        image: "",
        volume: Some((from, to)),
        comes: Refused("volume"),
    }
}

use Comes::{Enforced, Refused};

/// Lines run in an upper folder: their files hide the image's files.
const SHAPES: [Shape; 30] = [
    image("nothing odd", "true", Enforced),
    image(
        "/run leads to the host",
        "ln -s /var/lib/lab/host run",
        Refused(""),
    ),
    image(
        "/run leads up and out",
        "ln -s ../../../../../var/lib/lab/host run",
        Refused(""),
    ),
    image(
        "/run leads out by a magic link",
        "ln -s /proc/1/root/var/lib/lab/host run",
        Refused("link"),
    ),
    image(
        "/run leads to a working folder",
        "ln -s /proc/self/cwd run",
        Refused("link"),
    ),
    image("/run leads to itself", "ln -s run run", Refused("")),
    image("/run is a file", "touch run", Refused("accepted: a folder")),
    image(
        "/run leads to another folder of the image",
        "mkdir r && ln -s r run",
        Enforced,
    ),
    image(
        "/run leads there by an absolute path",
        "mkdir r && ln -s /r run",
        Enforced,
    ),
    image(
        "the socket folder is a link",
        "mkdir run && ln -s /var/lib/lab/host run/gpushare",
        Refused("not a folder"),
    ),
    image(
        "it leads up and out",
        "mkdir run && ln -s ../../var/lib/lab/host run/gpushare",
        Refused("not a folder"),
    ),
    image(
        "it is a dangling link",
        "mkdir run && ln -s /nowhere run/gpushare",
        Refused("not a folder"),
    ),
    image(
        "it is a file",
        "mkdir run && touch run/gpushare",
        Refused("not a folder"),
    ),
    image(
        "it is a pipe",
        "mkdir run && mkfifo run/gpushare",
        Refused("not a folder"),
    ),
    image(
        "it has a socket and mark of its own",
        "mkdir -p run/gpushare && touch run/gpushare/container run/gpushare/gpushare.sock",
        Enforced,
    ),
    image(
        "the library's folder is a link",
        "mkdir -p usr/lib && ln -s /var/lib/lab/host usr/lib/gpushare",
        Refused("not a folder"),
    ),
    image(
        "it is a file",
        "mkdir -p usr/lib && touch usr/lib/gpushare",
        Refused("not a folder"),
    ),
    image(
        "it has a library of its own",
        "mkdir -p usr/lib/gpushare && echo x > usr/lib/gpushare/libgpushare.so",
        Enforced,
    ),
    image(
        "/etc leads to the host",
        "ln -s /var/lib/lab/host etc",
        Refused(""),
    ),
    image(
        "the preload file leads to the host",
        "mkdir etc && ln -s /var/lib/lab/host/new etc/ld.so.preload",
        Refused("not a regular file"),
    ),
    image(
        "it leads to a file of the image",
        "mkdir etc && ln -s passwd etc/ld.so.preload",
        Refused("not a regular file"),
    ),
    image(
        "it is a folder",
        "mkdir -p etc/ld.so.preload",
        Refused("not a regular file"),
    ),
    image(
        "it is a pipe without a writer",
        "mkdir etc && mkfifo etc/ld.so.preload",
        Refused("not a regular file"),
    ),
    image(
        "it is a device",
        "mkdir etc && mknod etc/ld.so.preload c 1 5",
        Refused("not a regular file"),
    ),
    image(
        "it is longer than any",
        "mkdir etc && head -c 1000000 /dev/zero | tr '\\0' a > etc/ld.so.preload",
        Refused("16 KiB"),
    ),
    image(
        "it is no text",
        "mkdir etc && printf '/a\\001b' > etc/ld.so.preload",
        Refused("control characters"),
    ),
    volume("a folder of the host is /run", HOST, "/run"),
    volume("a folder of the host is /etc", HOST, "/etc"),
    volume(
        "a folder of the host is the socket folder",
        HOST,
        "/run/gpushare",
    ),
    volume(
        "a file of the host is the preload file",
        "/var/lib/lab/host/file",
        "/etc/ld.so.preload",
    ),
];

#[test]
fn no_image_reaches_the_host_or_starts_unenforced() {
    let test = "no_image_reaches_the_host_or_starts_unenforced";
    let Some(lab) = Lab::start(test, "") else {
        return;
    };
    lab.sh(&format!("mkdir -p {HOST} && echo kept > {HOST}/file"));
    // The parts of the machine that a container might have changed, and the mounts.
    let host = || {
        lab.sh(&format!(
            "ls -lAR {HOST}; cat {HOST}/file; ls -la /etc/ld.so.preload /usr/lib/gpushare 2>&1; \
             cut -d' ' -f5 /proc/self/mountinfo | grep -v rootfs"
        ))
    };
    let before = host();
    for (at, shape) in SHAPES.iter().enumerate() {
        let volumes = shape
            .volume
            .map(|(from, to)| (from.to_owned(), to.to_owned()));
        let bundle = Bundle {
            image: shape.image.to_owned(),
            volumes: volumes.into_iter().collect(),
            ..Bundle::new(&format!("c{at}"), Runtime::ByHand, &TWO)
        };
        match shape.comes {
            Enforced => {
                let mut guest = lab.run(&bundle).started();
                assert_eq!(
                    guest.ask("total"),
                    format!("total {} 0", 2 * GIB),
                    "{}",
                    shape.what
                );
                guest.finish().silently();
            }
            Refused(word) => {
                let ended = lab.ends(&bundle);
                assert!(
                    !ended.status.success() && ended.stdout.is_empty(),
                    "{}: {ended:?}",
                    shape.what
                );
                let told: Vec<&str> = ended
                    .stderr
                    .lines()
                    .filter(|line| line.starts_with("gpushare: "))
                    .collect();
                assert!(
                    told.len() == 1 && told[0].contains(word),
                    "{}: {ended:?}",
                    shape.what
                );
            }
        }
        assert_eq!(host(), before, "{}", shape.what);
    }
}

/// Its files are of devices that no table of mounts names.
#[test]
#[ignore = "long tier: needs btrfs-progs and loop devices"]
fn a_volume_on_btrfs_is_a_volume_too() {
    let test = "a_volume_on_btrfs_is_a_volume_too";
    let Some(lab) = Lab::start(test, "") else {
        return;
    };
    let made = lab.sh(&format!(
        "mkdir -p {HOST} && truncate -s 128M /var/lib/lab/disk && mkfs.btrfs -q /var/lib/lab/disk \
         >/dev/null 2>&1 && mount -o loop /var/lib/lab/disk {HOST} && mkdir {HOST}/etc && echo made; true"
    ));
    if made != "made" {
        not_runnable_here(test, "no btrfs can be made and mounted");
        return;
    }
    let bundle = Bundle {
        volumes: vec![(format!("{HOST}/etc"), "/etc".to_owned())],
        ..Bundle::new("one", Runtime::ByHand, &TWO)
    };
    let ended = lab.ends(&bundle);
    let left = lab.sh(&format!("ls -A {HOST}/etc; umount -l {HOST}"));
    assert!(ended.stderr.contains("in a volume"), "{ended:?}");
    assert_eq!(left, "", "nothing is made on the host");
}

#[test]
fn no_configuration_reaches_the_hook() {
    let test = "no_configuration_reaches_the_hook";
    let Some(lab) = Lab::start(test, "") else {
        return;
    };
    let plain = || Bundle::new("one", Runtime::ByHand, &TWO);
    let with = |name: &str, value: &str| Bundle {
        annotations: [
            &plain().annotations[..],
            &[(name.to_owned(), value.to_owned())],
        ]
        .concat(),
        ..plain()
    };
    let long = "9".repeat(100_000);
    for (bundle, word) in [
        (with("gpushare.io/sm-limit", &long), "32 KiB"),
        (with("gpushare.io/socket", "/tmp"), "there is no such limit"),
        (with("gpushare.io/disable", "1"), "there is no such limit"),
        (
            with("gpushare.io/../mem-limit", "1"),
            "there is no such limit",
        ),
        (
            with("gpushare.io/mem-limit_0\n", "1"),
            "there is no such limit",
        ),
        (
            with("gpushare.io/sm-limit", "1\u{1b}[2J\n\ngpushare: forged"),
            "GPUSHARE_SM_LIMIT",
        ),
        (
            Bundle {
                environment: vec![
                    "GPUSHARE_SM_LIMIT=1".to_owned(),
                    "GPUSHARE_SM_LIMIT=2".to_owned(),
                ],
                ..plain()
            },
            "twice",
        ),
        (
            Bundle {
                id: ".hidden".to_owned(),
                ..plain()
            },
            "no id",
        ),
    ] {
        let ended = lab.ends(&bundle);
        assert!(
            !ended.status.success() && ended.stdout.is_empty(),
            "{word}: {ended:?}"
        );
        let told: Vec<&str> = ended
            .stderr
            .lines()
            .filter(|line| line.starts_with("gpushare: "))
            .collect();
        assert!(
            told.len() == 1 && told[0].contains(word),
            "{word}: {ended:?}"
        );
    }
}
