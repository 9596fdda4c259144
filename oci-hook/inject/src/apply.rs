//! The hook in an OCI `config.json`, for a runtime wrapper. Everything else stays as it is.

use serde_json::{Map, Value, json};

use crate::Refusal;

/// Seconds that the runtime gives the hook.
const TIMEOUT: u32 = 10;

/// The file name of the hook.
const NAME: &str = "gpushare-oci-hook";

/// Adds the hook to a container's configuration, behind those that are there: devices and their
/// libraries come before it. False if the configuration has this hook with these arguments already:
/// a bundle that bare runc or crun runs again. The hook holds no limits, it reads the configuration
/// each time.
///
/// # Errors
/// If the configuration has no form that takes hooks, or has this hook with other arguments.
pub fn add_hook(config: &mut Value, path: &str, arguments: &[String]) -> Result<bool, Refusal> {
    let stage = create_runtime(config)?;
    let own = arguments.iter().map(String::as_str);
    let args: Vec<&str> = [path]
        .into_iter()
        .chain(own)
        .chain(["createRuntime"])
        .collect();
    // An empty environment, not none: a runtime may pass the image's where there is none.
    let hook = json!({"path": path, "args": args, "env": [], "timeout": TIMEOUT});
    let Some(known) = stage.iter_mut().find(|known| known["path"] == path) else {
        stage.push(hook);
        return Ok(true);
    };
    // Podman leaves the empty environment of a file of hooks out.
    let is_bare = known.get("env").is_none();
    match known["args"] == hook["args"] && (is_bare || known["env"] == hook["env"]) {
        true => {
            *known = hook;
            Ok(is_bare)
        }
        false => Err(odd(&format!(
            "{path} is among its hooks already, with other arguments ({}); use either the wrapper or the hook, or take that entry out",
            known["args"]
        ))),
    }
}

/// Whether the configuration has a hook of gpushare's, in whatever folder that is installed.
#[must_use]
pub fn has_hook(config: &Value) -> bool {
    let is_ours = |hook: &Value| {
        let path = hook.get("path").and_then(Value::as_str);
        path.is_some_and(|path| path.rsplit('/').next() == Some(NAME))
    };
    let stages = config.get("hooks").and_then(Value::as_object);
    let mut stages = stages.into_iter().flat_map(Map::values);
    stages.any(|stage| stage.as_array().is_some_and(|all| all.iter().any(is_ours)))
}

/// The hooks of the stage `createRuntime`, made if there are none.
fn create_runtime(config: &mut Value) -> Result<&mut Vec<Value>, Refusal> {
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
    stage
        .as_array_mut()
        .ok_or_else(|| odd("hooks.createRuntime is no list"))
}

fn odd(what: &str) -> Refusal {
    Refusal(format!("config.json: {what}"))
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
    }

    #[test]
    fn the_same_hook_is_added_once_and_another_beside_it_is_refused() {
        let own = |socket: &str| vec!["--daemon".to_owned(), socket.to_owned()];
        let mut config = json!({});
        assert_eq!(add_hook(&mut config, "/h", &own("/s")), Ok(true));
        let once = config.clone();
        assert_eq!(add_hook(&mut config, "/h", &own("/s")), Ok(false));
        assert_eq!(config, once);
        for other in [own("/t"), vec![]] {
            let told = add_hook(&mut config, "/h", &other).unwrap_err().0;
            assert!(told.contains("either") && told.contains("/s"), "{told}");
        }
        // With the environment of its caller it is not the hook that is added.
        config["hooks"]["createRuntime"][0]["env"] = json!(["A=1"]);
        add_hook(&mut config, "/h", &own("/s")).unwrap_err();
        // Podman writes no environment where its file of hooks has an empty one.
        let entry = &mut config["hooks"]["createRuntime"][0];
        entry.as_object_mut().unwrap().remove("env");
        assert_eq!(add_hook(&mut config, "/h", &own("/s")), Ok(true));
        assert_eq!(config, once);
        // Another program's hook is no obstacle.
        assert_eq!(add_hook(&mut config, "/other", &[]), Ok(true));
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
