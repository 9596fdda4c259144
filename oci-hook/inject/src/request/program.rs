//! The program that a container is for ([ADR
//! 221](../../../../docs/adr/0221-behind-an-init-the-program-counts.md)).

use serde_json::Value;

use super::environment::Environment;

/// Programs that start another one and only wait for it: that of `docker run --init` (tini, at
/// `/sbin/docker-init`), that of `podman run --init` (catatonit, at `/run/podman-init`), and those
/// that images bring. Most are static, and their linkage says nothing about the program.
const INITS: [&str; 6] = [
    "docker-init",
    "podman-init",
    "catatonit",
    "tini",
    "tini-static",
    "dumb-init",
];
/// Their options that have a value.
const VALUED: [&str; 4] = ["-p", "-e", "-r", "--rewrite"];

/// The first program, or the one behind an init for containers, and the folders in which it is
/// looked for. What is relative begins at the process's working folder.
pub(super) fn program(config: &Value, variables: &Environment) -> Option<(String, Vec<String>)> {
    let args = config.pointer("/process/args").and_then(Value::as_array);
    let args: Vec<&str> = args?.iter().map_while(Value::as_str).collect();
    let first = behind_inits(&args)?;
    let cwd = config.pointer("/process/cwd").and_then(Value::as_str);
    let cwd = cwd.unwrap_or("/");
    let from_there = |path: &str| match path {
        path if path.starts_with('/') => path.to_owned(),
        path => format!("{}/{path}", cwd.trim_end_matches('/')),
    };
    let first = match first.contains('/') {
        true => from_there(first),
        false => first.to_owned(),
    };
    let path = variables.first("PATH").unwrap_or("/usr/bin:/bin");
    Some((first, path.split(':').map(from_there).collect()))
}

fn behind_inits<'a>(args: &[&'a str]) -> Option<&'a str> {
    let (first, rest) = args.split_first()?;
    let name = first.rsplit('/').next().unwrap_or(first);
    let behind = INITS.contains(&name).then(|| behind_options(rest));
    behind.and_then(behind_inits).or(Some(first))
}

fn behind_options<'a, 'b>(args: &'b [&'a str]) -> &'b [&'a str] {
    let mut rest = args.iter();
    while let Some(option) = rest.as_slice().first().filter(|one| one.starts_with('-')) {
        rest.next();
        match *option {
            "--" => break,
            valued if VALUED.contains(&valued) => drop(rest.next()),
            _ => {}
        }
    }
    rest.as_slice()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use serde_json::{Value, json};

    use crate::Request;

    #[test]
    fn a_relative_program_begins_at_the_working_folder() {
        let program = |cwd: Value, first: &str| {
            let config = json!({
                "annotations": {"gpushare.io/mem-limit": "1GiB"},
                "process": {"cwd": cwd, "args": [first], "env": ["PATH=/bin:tools:"]},
            });
            let (first, folders) = Request::of(&config).unwrap().unwrap().program.unwrap();
            (first, folders.join(":"))
        };
        let of = |first: &str, folders: &str| (first.to_owned(), folders.to_owned());
        let folders = "/bin:/app/tools:/app/";
        for (first, found) in [
            ("./serve", "/app/./serve"),
            ("bin/serve", "/app/bin/serve"),
            ("/bin/serve", "/bin/serve"),
            ("serve", "serve"),
        ] {
            assert_eq!(program(json!("/app"), first), of(found, folders), "{first}");
        }
        for cwd in [json!("/"), json!(null)] {
            let found = program(cwd, "./serve");
            assert_eq!(found, of("/./serve", "/bin:/tools:/"));
        }
    }

    #[test]
    fn behind_an_init_of_containers_the_program_that_it_starts_counts() {
        let first = |args: &[&str]| {
            let config = json!({
                "annotations": {"gpushare.io/mem-limit": "1GiB"},
                "process": {"cwd": "/app", "args": args, "env": ["PATH=/bin"]},
            });
            Request::of(&config).unwrap().unwrap().program.unwrap().0
        };
        for (args, found) in [
            (
                &["/sbin/docker-init", "--", "python3", "x.py"][..],
                "python3",
            ),
            (&["/run/podman-init", "--", "./serve"], "/app/./serve"),
            (
                &["/sbin/docker-init", "--", "/tini", "--", "/bin/a"],
                "/bin/a",
            ),
            (&["tini", "-s", "-p", "SIGTERM", "sh", "--", "x"], "sh"),
            (
                &["/usr/bin/dumb-init", "-r", "15:3", "--single-child", "sh"],
                "sh",
            ),
            // An init without a program, and what is no init.
            (&["/tini", "--version"], "/tini"),
            (&["/tini", "--"], "/tini"),
            (&["/bin/serve", "--", "python3"], "/bin/serve"),
            (&["/app/tini.sh", "--", "python3"], "/app/tini.sh"),
            (&["sh", "/tini", "--", "python3"], "sh"),
        ] {
            assert_eq!(first(args), found, "{args:?}");
        }
    }
}
