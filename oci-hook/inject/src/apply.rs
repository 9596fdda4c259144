//! The hook in an OCI `config.json`, for a runtime wrapper. Everything else stays as it is.

use serde_json::{Map, Value, json};

use crate::Refusal;

/// Seconds that the runtime gives the hook.
const TIMEOUT: u32 = 10;

/// Adds the hook to a container's configuration, behind those that are there: devices and their
/// libraries come before it.
///
/// # Errors
/// If the configuration has no form that takes hooks, or has this hook already.
pub fn add_hook(config: &mut Value, path: &str, arguments: &[String]) -> Result<(), Refusal> {
    let odd = |what: &str| Refusal(format!("config.json: {what}"));
    let all = config
        .as_object_mut()
        .ok_or_else(|| odd("it is no object"))?;
    let hooks = all
        .entry("hooks")
        .or_insert_with(|| Value::Object(Map::new()));
    if hooks.is_null() {
        *hooks = Value::Object(Map::new());
    }
    let hooks = hooks
        .as_object_mut()
        .ok_or_else(|| odd("hooks is no object"))?;
    let stage = hooks.entry("createRuntime").or_insert_with(|| json!([]));
    if stage.is_null() {
        *stage = json!([]);
    }
    let stage = stage
        .as_array_mut()
        .ok_or_else(|| odd("hooks.createRuntime is no list"))?;
    if stage.iter().any(|hook| hook["path"] == path) {
        return Err(odd(&format!(
            "{path} is among its hooks already; use either the wrapper or the hook"
        )));
    }
    let own = arguments.iter().map(String::as_str);
    let args: Vec<&str> = [path]
        .into_iter()
        .chain(own)
        .chain(["createRuntime"])
        .collect();
    // An empty environment, not none: a runtime may pass the image's where there is none.
    stage.push(json!({"path": path, "args": args, "env": [], "timeout": TIMEOUT}));
    Ok(())
}

/// The hook as a file of an engine's folder of hooks (`hooks.d`): for containers that have one of
/// our annotations.
#[must_use]
pub fn hooks_d(path: &str) -> Value {
    json!({
        "version": "1.0.0",
        "hook": {"path": path, "args": [path, "createRuntime"], "env": [], "timeout": TIMEOUT},
        "when": {"annotations": {"^gpushare\\.io/.*$": ".*"}},
        "stages": ["createRuntime"],
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn the_hook_comes_last_and_the_rest_stays() {
        let mut config = json!({
            "unknown": {"x": [1, 2.5, null]},
            "hooks": {"createRuntime": [{"path": "/nvidia"}], "poststop": [{"path": "/y"}]},
        });
        let before = config.clone();
        add_hook(&mut config, "/h", &["--daemon".to_owned(), "/s".to_owned()]).unwrap();
        assert_eq!(config["unknown"], before["unknown"]);
        assert_eq!(config["hooks"]["poststop"], before["hooks"]["poststop"]);
        let stage = config["hooks"]["createRuntime"].as_array().unwrap();
        assert_eq!(stage[0], before["hooks"]["createRuntime"][0]);
        assert_eq!(
            stage[1]["args"],
            json!(["/h", "--daemon", "/s", "createRuntime"])
        );
        assert_eq!(stage[1]["env"], json!([]));
        let twice = add_hook(&mut config, "/h", &[]).unwrap_err().0;
        assert!(twice.contains("either"), "{twice}");
    }

    #[test]
    fn a_configuration_of_another_form_is_refused() {
        for broken in [
            json!([]),
            json!({"hooks": 1}),
            json!({"hooks": {"createRuntime": {}}}),
        ] {
            add_hook(&mut broken.clone(), "/h", &[]).unwrap_err();
        }
        for empty in [
            json!({}),
            json!({"hooks": null}),
            json!({"hooks": {"createRuntime": null}}),
        ] {
            add_hook(&mut empty.clone(), "/h", &[]).unwrap();
        }
    }

    #[test]
    fn the_packaged_file_of_the_hook_is_what_it_has_to_be() {
        let packaged = include_str!("../../../packaging/hooks.d/gpushare.json");
        let packaged: Value = serde_json::from_str(packaged).unwrap();
        assert_eq!(packaged, hooks_d("/usr/bin/gpushare-oci-hook"));
        assert_eq!(packaged["hook"]["env"], json!([]));
    }
}
