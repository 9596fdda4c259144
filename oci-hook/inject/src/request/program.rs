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
