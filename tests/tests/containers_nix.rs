//! Programs of the Nix package collection in a container. Its glibc reads a preload file of its own
//! name; here a dynamic linker stands for it that reads a link to that file.

use gpushare_tests::container::{Bundle, Door, Lab, Runtime};
use gpushare_tests::{GIB, artefacts, clients};

const CONFIG: &str = "[containers]\ncdi = \"/run/cdi/gpushare.json\"\nlibrary = \"/var/lib/lab/library\"\n\
    [classes.two]\ndevices = [\"0\"]\n[classes.two.limits]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n";
const LINKER: &str = "/nix/store/x-glibc/lib/ld-linux-x86-64.so.2";
/// As long as the name that it replaces in the linker.
const LINK: &str = "etc/nx.so.preload";

fn lab() -> Option<Lab> {
    let test = std::thread::current();
    Lab::start(test.name().unwrap_or("containers_nix"), CONFIG)
}

fn bundle(id: &str, image: &str, program: &[&str]) -> Bundle {
    Bundle {
        image: format!(
            "mkdir -p etc .{} && {image}",
            LINKER.trim_end_matches("/ld-linux-x86-64.so.2")
        ),
        program: program.iter().map(ToString::to_string).collect(),
        ..Bundle::new(
            id,
            Runtime::ByHand,
            &[("mem-limit", "2GiB"), ("devices", "0")],
        )
    }
}

/// Both ways by which a container comes that nothing but a preload file protects.
fn doors(bundle: &Bundle) -> [Bundle; 2] {
    let class = Bundle {
        id: "ab".repeat(32),
        door: Door::Cdi("two"),
        annotations: vec![],
        ..bundle.clone()
    };
    [bundle.clone(), class]
}

#[test]
fn a_program_of_nix_sees_its_quota_and_hits_it() {
    let Some(lab) = lab() else { return };
    let client = clients::compile("quota", &[]).display().to_string();
    let image = format!(
        "ln -s ld-nix.so.preload {LINK} && \
         sed s,/etc/ld.so.preload,/{LINK}, /lib64/ld-linux-x86-64.so.2 >.{LINKER} && \
         chmod 755 .{LINKER}"
    );
    for bundle in doors(&bundle("one", &image, &[LINKER, &client])) {
        let mut guest = lab.run(&bundle).started();
        assert_eq!(guest.ask("total"), format!("total {} 0", 2 * GIB));
        assert_eq!(guest.ask(&format!("alloc {}", 3 * GIB)), "alloc 2");
        guest.finish().silently();
    }
}

#[test]
fn an_images_own_preloads_for_nix_are_kept_behind_ours() {
    let Some(lab) = lab() else { return };
    let own = artefacts::soft_nvml().display().to_string();
    let image = format!("echo {own} >etc/ld-nix.so.preload");
    let line = "cat /etc/ld-nix.so.preload";
    let told = lab.ends(&bundle("one", &image, &["sh", "-c", line]));
    let told = told.silently();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines, ["/usr/lib/gpushare/libgpushare.so", &*own]);
}

#[test]
fn an_image_without_nix_gets_no_file_for_it() {
    let Some(lab) = lab() else { return };
    let bundle = Bundle {
        image: String::new(),
        ..bundle(
            "one",
            "",
            &[
                "sh",
                "-c",
                "ls /etc/ld-nix.so.preload || cat /etc/ld.so.preload",
            ],
        )
    };
    let ended = lab.ends(&bundle);
    assert_eq!(ended.stdout, "/usr/lib/gpushare/libgpushare.so\n");
}
