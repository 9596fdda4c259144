//! What several daemons answer, of which one may leave meanwhile.

use super::Talk;
use crate::failure::Failure;
use crate::output;

/// What the daemons answered, and why the last one of those that are lost did not. These are taken
/// off the list.
pub(crate) fn answers<T, E: Into<Failure>>(
    daemons: &mut Vec<Talk>,
    mut ask: impl FnMut(&mut Talk) -> Result<T, E>,
) -> (Vec<T>, Option<Failure>) {
    let (mut all, mut lost) = (Vec::new(), None);
    daemons.retain_mut(|daemon| match ask(daemon) {
        Ok(answer) => {
            all.push(answer);
            true
        }
        Err(error) => {
            lost = Some(error.into());
            false
        }
    });
    (all, lost)
}

/// The same for a command to which any daemon's answer is of use: one that is lost beside others is
/// a note.
///
/// # Errors
/// If all are lost.
pub(crate) fn those_that_answer<T, E: Into<Failure>>(
    daemons: &mut Vec<Talk>,
    ask: impl FnMut(&mut Talk) -> Result<T, E>,
) -> Result<Vec<T>, Failure> {
    let (all, lost) = answers(daemons, ask);
    match lost {
        Some(failure) if all.is_empty() => return Err(failure),
        Some(failure) => output::note(&format!("note: {}", failure.message)),
        None => {}
    }
    Ok(all)
}
