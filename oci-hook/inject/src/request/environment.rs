//! The environment of a container's first process.

use gpushare_protocol::limits::Limits;
use serde_json::Value;

use crate::Refusal;

/// The beginning of our variables' names.
const OURS: &str = "GPUSHARE_";

/// The variables in their order, those that occur twice too: engines append theirs to the image's.
#[derive(Debug)]
pub(super) struct Environment(Vec<(String, String)>);

impl Environment {
    /// Reads it from a `config.json`.
    ///
    /// # Errors
    /// If it is no list of texts.
    pub(super) fn of(config: &Value) -> Result<Self, Refusal> {
        let set = config.get("process").and_then(|process| process.get("env"));
        let Some(set) = set.filter(|set| !set.is_null()) else {
            return Ok(Self(Vec::new()));
        };
        let odd = || Refusal("config.json: process.env is no list of texts".to_owned());
        let pair = |one: &Value| {
            let one = one.as_str().ok_or_else(odd)?;
            let (name, value) = one.split_once('=').unwrap_or((one, ""));
            Ok((name.to_owned(), value.to_owned()))
        };
        let all = set.as_array().ok_or_else(odd)?.iter().map(pair);
        all.collect::<Result<_, _>>().map(Self)
    }

    /// The variables that say limits.
    ///
    /// # Errors
    /// One whose name is misspelt: without a refusal the container would run without that limit.
    pub(super) fn limits(&self) -> Result<Vec<&(String, String)>, Refusal> {
        let mut limits = Vec::new();
        for variable in &self.0 {
            let (name, value) = variable;
            if Limits::asks(name, value).map_err(|error| Refusal(error.to_string()))? {
                limits.push(variable);
            }
        }
        Ok(limits)
    }

    /// Refuses a variable of ours that occurs twice: programs differ in which of the two they take.
    pub(super) fn once(&self) -> Result<(), Refusal> {
        for (at, (name, value)) in self.0.iter().enumerate() {
            let is_ours = name.starts_with(OURS) || Limits::reads(name);
            if is_ours && self.0[..at].iter().any(|(known, _)| known == name) {
                return Err(Refusal(format!(
                    "{name}={value:?} is refused: the container's environment has it twice; accepted: once"
                )));
            }
        }
        Ok(())
    }

    /// All variables.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.0.iter();
        all.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Without the variables whose names begin so.
    pub(super) fn but(&self, start: &str) -> Self {
        let others = self.0.iter().filter(|(name, _)| !name.starts_with(start));
        Self(others.cloned().collect())
    }

    /// The first value of a name.
    pub(super) fn first(&self, name: &str) -> Option<&str> {
        value(self.0.iter().find(|(known, _)| known == name))
    }

    /// The last value of a name.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        value(self.0.iter().rfind(|(known, _)| known == name))
    }
}

fn value(variable: Option<&(String, String)>) -> Option<&str> {
    variable.map(|(_, value)| value.as_str())
}
