//! `gpushare run` of programs that gain rights when they start: the dynamic linker takes the
//! library from them and from what they start, and `run` says so.

use gpushare_tests::machine::{ALICE, Machine, ROOT};
use std::process::Output;

/// A program that starts others, with a file of its own on the machine.
const ENV: &str = "/var/lib/env";

/// Runs a shell by that program under `run`, as this user. It prints what it would preload.
fn preloaded(machine: &Machine, user: u32) -> (String, String) {
    let gpu = format!("soft:{}", machine.gpu().spec());
    let run = [
        "run",
        "--daemon",
        "off",
        "--gpu",
        &gpu,
        "--mem-limit",
        "1GiB",
        "--",
    ];
    let program = [ENV, "sh", "-c", "echo ${LD_PRELOAD:-nothing}"];
    let output: Output = machine.run(user, &[&run[..], &program].concat());
    assert!(output.status.success(), "{output:?}");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr))
}

/// Gives the file the capability to change owners, as setcap(8) does.
const CAPABLE: &str = "
import os, struct, sys
os.setxattr(sys.argv[1], 'security.capability', struct.pack('<5I', 0x02000001, 1, 0, 0, 0))
";

#[test]
fn what_a_privileged_program_starts_is_not_said_to_be_covered() {
    let test = "what_a_privileged_program_starts_is_not_said_to_be_covered";
    let Some(machine) = Machine::bare(test) else {
        return;
    };
    machine.sh(ROOT, &format!("cp /usr/bin/env {ENV}"));
    let (preload, said) = preloaded(&machine, ALICE);
    assert!(preload.contains("libgpushare.so"), "{preload}");
    assert_eq!(said, "");
    machine.sh(ROOT, &format!("chmod 4755 {ENV}"));
    let (preload, said) = preloaded(&machine, ALICE);
    assert_eq!(preload, "nothing\n");
    assert!(said.contains("is setuid or setgid"), "{said}");
    assert!(said.contains("sudo gpushare run"), "{said}");
    assert!(!said.contains("covered"), "{said}");
    // Root gains nothing by it.
    let (preload, said) = preloaded(&machine, ROOT);
    assert!(preload.contains("libgpushare.so"), "{preload}");
    assert_eq!(said, "");
    machine.sh(
        ROOT,
        &format!("chmod 755 {ENV} && python3 -c \"{CAPABLE}\" {ENV}"),
    );
    let (preload, said) = preloaded(&machine, ALICE);
    assert_eq!(preload, "nothing\n");
    assert!(said.contains("has capabilities of its own"), "{said}");
    assert!(!said.contains("covered"), "{said}");
}
