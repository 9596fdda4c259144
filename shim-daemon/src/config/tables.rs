//! `[defaults]` and `[maxima]`: tables of variables.

use std::ffi::OsString;

use gpushare_protocol::limits::{LimitError, Limits, Maxima};

use super::{File, NO_HOST, Table, Variables};

/// Where the variable of this name stands in the file.
fn line(text: &str, table: &Table, name: &str) -> usize {
    let at = table.get(name).map_or(0, |value| value.span().start);
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// The fault of a variable of the table `[title]`.
fn refused(text: &str, (title, table): (&str, &Table), error: &LimitError) -> String {
    let line = line(text, table, &error.variable);
    format!("line {line}, [{title}]: {error}")
}

fn variables(table: &Table) -> Variables {
    let all = table.iter();
    all.map(|(name, value)| (name.clone(), value.get_ref().clone()))
        .collect()
}

fn pairs(table: &Table) -> Vec<(OsString, OsString)> {
    let all = table.iter();
    all.map(|(name, value)| (name.into(), value.get_ref().into()))
        .collect()
}

/// `[defaults]` and `[maxima]`, each as variables; no default may be above its maximum.
pub(super) fn limits_of(text: &str, file: &File) -> Result<[Variables; 2], String> {
    if let Some((name, value)) = file.defaults.iter().find(|(name, _)| !Limits::reads(name)) {
        let line = line(text, &file.defaults, name);
        return Err(format!(
            "line {line}, [defaults]: {name} = {:?} is refused: there is no such limit; accepted: the variables of a tenant's limits, such as GPUSHARE_WAIT_TIMEOUT",
            value.get_ref()
        ));
    }
    let maxima = Maxima::read(pairs(&file.maxima))
        .map_err(|error| refused(text, ("maxima", &file.maxima), &error))?;
    Limits::from_env_under(pairs(&file.defaults), [], maxima)
        .map_err(|error| refused(text, ("defaults", &file.defaults), &error))?;
    Ok([&file.defaults, &file.maxima].map(variables))
}

/// Refuses defaults by which tenants' memory would move, on a node that has no host memory for it.
pub(super) fn refuse_swap(text: &str, file: &File) -> Result<(), String> {
    let limits = Limits::from_env(pairs(&file.defaults)).map_err(|error| error.to_string())?;
    match limits.policy().refuse_moves(NO_HOST) {
        None => Ok(()),
        Some(error) => Err(refused(text, ("defaults", &file.defaults), &error)),
    }
}
