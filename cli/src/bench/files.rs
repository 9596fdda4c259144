//! The files that the benchmark writes.

use super::compare::Comparison;
use super::result::Outcome;
use super::{host, markdown, svg};
use crate::args::BenchShare;
use crate::failure::Failure;
use crate::output;
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Everything that has been measured, as the JSON output has it.
#[derive(Serialize)]
pub(super) struct All {
    device: String,
    host: String,
    bare: bool,
    version: &'static str,
    pub(super) experiments: Vec<Outcome>,
    pub(super) without: Vec<Outcome>,
    pub(super) comparisons: Vec<Comparison>,
}

impl All {
    /// Nothing yet.
    pub(super) fn of(device: String, arguments: &BenchShare) -> Self {
        Self {
            device,
            host: host::text(),
            bare: arguments.bare,
            version: gpushare_protocol::build!(),
            experiments: Vec::new(),
            without: Vec::new(),
            comparisons: Vec::new(),
        }
    }

    /// The device and the host, as text.
    pub(super) fn head(&self) -> String {
        format!("on {}, {}", self.device, self.host)
    }

    /// Writes those files that the command line names and `wanted` is true of.
    pub(super) fn write(
        &self,
        arguments: &BenchShare,
        wanted: impl Fn(&Path) -> bool,
    ) -> Result<(), Failure> {
        let wanted = |path: &&PathBuf| !self.experiments.is_empty() && wanted(path);
        if let Some(path) = arguments.markdown.as_ref().filter(&wanted) {
            let how = (arguments.seconds, arguments.pairs);
            output::file(path, &markdown::table(&self.head(), how, &self.comparisons))?;
        }
        if let Some(path) = arguments.json.as_ref().filter(&wanted) {
            let text = serde_json::to_string_pretty(self).map_err(Failure::ours)?;
            output::file(path, &format!("{text}\n"))?;
        }
        if let Some(path) = arguments.svg.as_ref().filter(&wanted) {
            output::file(path, &svg::picture(&self.experiments)?)?;
        }
        Ok(())
    }
}

/// Refuses files that cannot be written, before anything is measured.
pub(super) fn check<'a>(
    paths: impl IntoIterator<Item = &'a Option<PathBuf>>,
) -> Result<(), Failure> {
    for path in paths.into_iter().flatten() {
        try_out(path)
            .map_err(|error| Failure::ours(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(())
}

/// Changes nothing. A pipe is not tried: it may have no reader yet.
fn try_out(path: &Path) -> io::Result<()> {
    if !output::is_replaced(path) {
        return match path.is_dir() {
            true => Err(ErrorKind::IsADirectory.into()),
            false => Ok(()),
        };
    }
    if fs::exists(path)? {
        return OpenOptions::new().append(true).open(path).map(drop);
    }
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    tempfile::tempfile_in(folder.unwrap_or_else(|| Path::new("."))).map(drop)
}
