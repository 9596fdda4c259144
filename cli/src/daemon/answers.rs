//! A question to several daemons, one of which may leave before it answers.

use super::Talk;
use crate::failure::Failure;
use crate::output;

/// Asks each daemon. Returns the answers, and the failure of the last daemon that did not answer.
/// Daemons that did not answer are taken off the list.
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
    let mut notes = Vec::new();
    let all = those_that_answer_with(daemons, ask, &mut notes)?;
    notes.iter().for_each(|note| output::note(note));
    Ok(all)
}

/// The same; the note is added to `notes`.
///
/// # Errors
/// If all are lost.
pub(crate) fn those_that_answer_with<T, E: Into<Failure>>(
    daemons: &mut Vec<Talk>,
    ask: impl FnMut(&mut Talk) -> Result<T, E>,
    notes: &mut Vec<String>,
) -> Result<Vec<T>, Failure> {
    let (all, lost) = answers(daemons, ask);
    match lost {
        Some(failure) if all.is_empty() => return Err(failure),
        Some(failure) => notes.push(format!("note: {}", failure.message)),
        None => {}
    }
    Ok(all)
}
