//! Containers whose first program is static, so that nothing can be preloaded into it.

use gpushare_tests::clients;
use gpushare_tests::container::{Bundle, Lab, Runtime};
use gpushare_tests::machine::ROOT;

fn lab(config: &str) -> Option<Lab> {
    let test = std::thread::current();
    Lab::start(test.name().unwrap_or("containers_static"), config)
}

fn bundle(id: &str) -> Bundle {
    let limits = [("mem-limit", "2GiB"), ("devices", "0")];
    Bundle::new(id, Runtime::ByHand, &limits)
}
#[test]
fn a_static_program_runs_untouched_and_is_reported() {
    let Some(lab) = lab("") else { return };
    let program = clients::compile("hello", &["-static"]);
    let bundle = Bundle {
        program: vec![program.to_string_lossy().into_owned()],
        ..bundle("one")
    };
    assert_eq!(lab.ends(&bundle).silently(), "hello\n");
    let events = lab.machine().run(ROOT, &["events", "--json"]);
    let events = String::from_utf8_lossy(&events.stdout).into_owned();
    assert!(
        events.contains("unenforced") && events.contains("static"),
        "{events}"
    );
}

#[test]
fn a_static_program_is_denied_also_by_a_relative_name() {
    let Some(lab) = lab("[containers]\nunenforceable = \"deny\"\n") else {
        return;
    };
    let fixed = clients::compile("hello", &["-static"]);
    let linked = clients::compile("hello", &[]);
    for (id, client, denied) in [("one", fixed, true), ("two", linked, false)] {
        let bundle = Bundle {
            image: format!("mkdir app && cp {} app/hello", client.display()),
            cwd: "/app".to_owned(),
            program: ["./hello"].map(str::to_owned).to_vec(),
            ..bundle(id)
        };
        let ended = lab.ends(&bundle);
        assert_eq!(ended.stderr.contains("unenforceable"), denied, "{ended:?}");
        assert_eq!(ended.stdout, if denied { "" } else { "hello\n" });
    }
}

#[test]
fn a_static_init_is_denied_only_with_a_static_program_behind() {
    let Some(lab) = lab("[containers]\nunenforceable = \"deny\"\n") else {
        return;
    };
    let init = clients::compile("started", &["-static"]);
    let fixed = clients::compile("hello", &["-static"]);
    let linked = clients::compile("hello", &[]);
    for (id, client, denied) in [("one", fixed, true), ("two", linked, false)] {
        // As engines do for `--init`, but that they mount it.
        let bundle = Bundle {
            image: format!(
                "mkdir app && cp {} app/docker-init && cp {} app/hello",
                init.display(),
                client.display()
            ),
            program: ["/app/docker-init", "--", "/app/hello"]
                .map(str::to_owned)
                .to_vec(),
            ..bundle(id)
        };
        let ended = lab.ends(&bundle);
        assert_eq!(ended.stderr.contains("unenforceable"), denied, "{ended:?}");
        assert_eq!(ended.stdout, if denied { "" } else { "hello\n" });
    }
}
