//! Checks values against the schemas in `docs/schema/`, with the part of JSON Schema that they use.
//! An unknown keyword fails the test, so that none is ignored.

use serde_json::Value;

use crate::artefacts::repository;

/// Reads the schema with this name.
fn read(name: &str) -> Value {
    let path = repository().join("docs/schema").join(name);
    let text = std::fs::read_to_string(&path).expect("a schema with this name");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Fails the test with all violations of a schema.
#[track_caller]
pub fn check(name: &str, value: &Value) {
    let mut wrong = Vec::new();
    walk(&read(name), value, "", &mut wrong);
    assert!(
        wrong.is_empty(),
        "violations of docs/schema/{name}: {wrong:#?}\n{value}"
    );
}

fn walk(schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    for (keyword, wanted) in schema.as_object().expect("a description is an object") {
        let fits = match &**keyword {
            "$schema" | "title" | "description" => true,
            "const" => value == wanted,
            "enum" => wanted.as_array().is_some_and(|all| all.contains(value)),
            "type" => match wanted.as_array() {
                Some(kinds) => kinds.iter().any(|kind| is(kind, value)),
                None => is(wanted, value),
            },
            "required" => {
                let mut names = wanted.as_array().into_iter().flatten();
                let has = |name: &Value| value.get(name.as_str().unwrap_or_default()).is_some();
                !value.is_object() || names.all(has)
            }
            "properties" => {
                for (name, inner) in wanted.as_object().into_iter().flatten() {
                    if let Some(value) = value.get(name) {
                        walk(inner, value, &format!("{at}/{name}"), wrong);
                    }
                }
                true
            }
            "additionalProperties" => {
                assert_eq!(wanted, false, "only false is supported");
                let known = schema.get("properties");
                let mut names = value.as_object().into_iter().flatten();
                names.all(|(name, _)| known.is_some_and(|known| known.get(name).is_some()))
            }
            "items" => {
                for (place, value) in value.as_array().into_iter().flatten().enumerate() {
                    walk(wanted, value, &format!("{at}/{place}"), wrong);
                }
                true
            }
            other => panic!("unknown keyword {other}"),
        };
        if !fits {
            wrong.push(format!(
                "{at}: {keyword} {wanted}, but the value is {value}"
            ));
        }
    }
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap_or_default() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    }
}
