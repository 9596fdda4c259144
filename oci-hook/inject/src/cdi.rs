//! The node's classes as a CDI specification: each class is a device that adds mounts and variables
//! and nothing else, so that no engine executes anything for it.

use serde_json::{Value, json};

use crate::edits::{Edits, Host};

/// The vendor and class of our devices.
pub const KIND: &str = "gpushare.io/gpu";
/// The oldest version that has all we use: names that begin with a digit.
pub const VERSION: &str = "0.5.0";

/// The specification for classes, each with the folder of its socket.
#[must_use]
pub fn render(library: &str, classes: &[(String, String)]) -> Value {
    let device = |(name, folder): &(String, String)| {
        let edits = Edits::of(&Host {
            library: library.to_owned(),
            tenant: folder.clone(),
        });
        json!({"name": name, "containerEdits": of(&edits)})
    };
    json!({
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": classes.iter().map(device).collect::<Vec<_>>(),
    })
}

fn of(edits: &Edits) -> Value {
    let variable = |(name, value): &(&str, &str)| format!("{name}={value}");
    let mounts = edits.mounts.iter().map(|mount| {
        json!({
            "hostPath": mount.source,
            "containerPath": mount.place.path,
            "options": mount.options(),
        })
    });
    json!({
        "env": edits.environment.iter().map(variable).collect::<Vec<_>>(),
        "mounts": mounts.collect::<Vec<_>>(),
    })
}

/// Whether a class may be named so: letters, digits, and `_ - .` inside, as CDI has it.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    let bytes = name.as_bytes();
    bytes.len() <= 40 && ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_mounts_three_things_and_executes_nothing() {
        let class = (
            "gpu0-4g".to_owned(),
            "/run/gpushare/classes/gpu0-4g".to_owned(),
        );
        let spec = render("/usr/lib/gpushare/1", &[class]);
        assert_eq!(spec["cdiVersion"], "0.5.0");
        assert_eq!(spec["devices"][0]["name"], "gpu0-4g");
        let edits = &spec["devices"][0]["containerEdits"];
        assert_eq!(edits["env"], json!(["GPUSHARE_SOCKET=/run/gpushare"]));
        let mounts = edits["mounts"].as_array().expect("a list");
        let places: Vec<&str> = mounts
            .iter()
            .filter_map(|it| it["containerPath"].as_str())
            .collect();
        assert_eq!(
            places,
            [
                "/usr/lib/gpushare",
                "/run/gpushare",
                "/etc/ld-nix.so.preload",
                "/etc/ld.so.preload"
            ]
        );
        assert_eq!(mounts[2]["hostPath"], mounts[3]["hostPath"]);
        assert!(!spec.to_string().contains("hooks"));
        // Of what is below the host's /run nothing is executed, and there may be no lock on that
        // option that a user namespace could not repeat.
        let options = |exec: &[&str]| json!([&["ro", "nosuid", "nodev"], exec, &["bind"]].concat());
        assert_eq!(mounts[0]["options"], options(&[]), "the library");
        for of_tenant in &mounts[1..] {
            assert_eq!(of_tenant["options"], options(&["noexec"]));
        }
    }

    #[test]
    fn a_class_has_a_name_that_cdi_accepts() {
        for name in ["a", "gpu0-4g", "0", "A.b_c-1"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-a", "a-", "a/b", "a b", "ä", "..", &"a".repeat(41)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
