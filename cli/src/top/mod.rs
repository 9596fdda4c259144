//! `gpushare top`: GPUs and tenants, as they are now, again and again; with keys to change and end
//! tenants.
//!
//! `model` and `rows` are what is shown, `draw` is how, `screen` the terminal. This file asks the
//! daemon and carries out what keys order.

mod amounts;
mod draw;
mod following;
mod keys;
mod model;
mod moving;
mod rows;
mod screen;
#[cfg(test)]
mod tests;

use crate::args::{Args, Command, Top};
use crate::failure::Failure;
use crate::metrics::the_daemon;
use crate::{output, when};
use clap::Parser;
use following::{Told, follow};
use gpushare_client::{Talk, TalkError};
use gpushare_exporter::{Snapshot, host};
use gpushare_protocol::wire::Control;
use model::{Action, Model, Stale};
use moving::Moving;
use nix::unistd::{Uid, User};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::terminal::Terminal;
use screen::{Came, Input, Screen};
use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Longest to wait for an answer: keys are read in between. A daemon that works answers within
/// milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same for all lists of a look together, and for all that an order asks. A look has about
/// twenty.
const LOOK: Duration = Duration::from_secs(8);

/// Shows the daemon's state until a key says to leave.
pub(crate) fn top(arguments: &Top) -> Result<ExitCode, Failure> {
    let talk = the_daemon()?;
    let mut talk = Talk::connect_within(talk.folder(), Some(PATIENCE)).map_err(Failure::ours)?;
    let every = format!("{}s", arguments.every.as_secs_f64());
    let mut model = Model::new(host(), every);
    if arguments.once {
        model.once = true;
        talk.past()?
            .into_iter()
            .for_each(|event| model.happened(event));
        look(&mut model, &mut talk)?;
        output::data(&page(&mut model))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(Failure::ours(
            "top needs a terminal; `gpushare top --once` prints one screen, `gpushare ps --json` the same as data",
        ));
    }
    let failed = |error: std::io::Error| Failure::ours(format!("the terminal: {error}"));
    let mut input = Input::open().map_err(failed)?;
    let events = follow(&talk)?;
    let screen = Screen::open().map_err(failed)?;
    let mut terminal = Terminal::new(screen).map_err(failed)?;
    let mut due = Instant::now();
    let mut moving: Vec<Moving> = Vec::new();
    loop {
        if Instant::now() >= due {
            for told in events.try_iter() {
                match told {
                    Told::Event(event) => model.happened(event),
                    Told::Refused(why) => model.message = Some(why),
                }
            }
            moving.retain(|order| {
                let said = order.said(Duration::ZERO);
                let goes_on = said.is_none();
                model.message = said.or_else(|| model.message.take());
                goes_on
            });
            refresh(&mut model, &mut talk);
            due = Instant::now() + arguments.every;
        }
        let mut fit = 0;
        let drawn = terminal.draw(|frame| fit = draw::draw(&mut model, frame.buffer_mut()));
        drawn.map_err(failed)?;
        let left = due.saturating_duration_since(Instant::now());
        let pressed = match input.wait(left).map_err(failed)? {
            Came::Leave => return Ok(ExitCode::SUCCESS),
            Came::Keys(keys) => keys,
            Came::Resized | Came::Nothing => Vec::new(),
        };
        for key in pressed {
            match model.press(key, fit) {
                Some(Action::Quit) => return Ok(ExitCode::SUCCESS),
                Some(action) => {
                    let (said, more) = carried_out(&mut talk, &action);
                    model.message = Some(said);
                    moving.extend(more);
                    due = Instant::now();
                }
                None => {}
            }
        }
    }
}

/// One screen as text, as wide as `COLUMNS` says.
fn page(model: &mut Model) -> String {
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let width = columns
        .filter(|width| (40..=500).contains(width))
        .unwrap_or(100);
    let rows = model.rows().0.len();
    let height = rows + 3 * model.snapshot.devices.len() + 8;
    // A third of the height must do for the devices.
    let height = height.max(9 * model.snapshot.devices.len());
    let height = u16::try_from(height).unwrap_or(u16::MAX);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw::draw(model, &mut buffer);
    let lines = lines(&buffer);
    let full = lines
        .iter()
        .take(lines.len() - 1)
        .filter(|line| !line.is_empty());
    full.cloned().collect::<Vec<_>>().join("\n")
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width).max(1);
    let line = |cells: &[ratatui_core::buffer::Cell]| {
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned()
    };
    buffer.content.chunks(width).map(line).collect()
}

/// A look that may fail: the daemon may have gone, and another may come.
fn refresh(model: &mut Model, talk: &mut Talk) {
    talk.end_within(LOOK);
    let lost = look(model, talk).err();
    if lost.is_some()
        && let Ok(next) = talk.again()
    {
        *talk = next;
    }
    model.stale = lost.map(|lost| Stale {
        for_ms: when::now_ms().saturating_sub(model.now_ms),
        why: lost.message,
    });
}

fn look(model: &mut Model, talk: &mut Talk) -> Result<(), TalkError> {
    let snapshot = Snapshot::read(talk)?;
    for owner in snapshot.identities.iter().filter_map(|row| row.owner) {
        model.users.entry(owner).or_insert_with(|| {
            let known = User::from_uid(Uid::from_raw(owner)).ok().flatten();
            known.map_or_else(|| owner.to_string(), |user| user.name)
        });
    }
    if model.details {
        let processes = snapshot.tenants.iter().flat_map(|row| &row.processes);
        model.commands = processes
            .filter_map(|process| Some((process.pid, command(process.pid)?)))
            .collect();
    }
    model.take(snapshot, when::now_ms());
    Ok(())
}

/// A process's command line, if it can be seen from here.
fn command(pid: u32) -> Option<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&words).replace('\0', " ");
    Some(
        text.chars()
            .filter(|one| !one.is_control())
            .take(200)
            .collect(),
    )
}

/// Carries out an order, and returns its outcome in a line; and the order, if more of it is still
/// to come.
fn carried_out(talk: &mut Talk, action: &Action) -> (String, Option<Moving>) {
    talk.end_within(LOOK);
    let outcome = match action {
        Action::Quit => return (String::new(), None),
        Action::Set(tenant, words) => set(talk, tenant, words),
        Action::End(tenant, kill) => end(talk, tenant, *kill),
        Action::Suspend(tenant, resume) => match Moving::order(talk, tenant, *resume) {
            Ok(order) => return order.first(),
            Err(failure) => Err(failure),
        },
    };
    (outcome.unwrap_or_else(|failure| failure.message), None)
}

fn set(talk: &mut Talk, tenant: &str, words: &[String]) -> Result<String, Failure> {
    let given = ["gpushare", "set", tenant].map(ToOwned::to_owned);
    let parsed = Args::try_parse_from(given.into_iter().chain(words.iter().cloned()));
    let parsed = parsed.map_err(|error| {
        let text = error.to_string();
        Failure::ours(text.lines().next().unwrap_or_default())
    })?;
    let Command::Set(set) = parsed.command else {
        return Err(Failure::ours("these are no flags of `gpushare set`"));
    };
    let changes = set.changes()?;
    talk.call(&Control::Set {
        tenant: tenant.to_owned(),
        changes,
    })?;
    Ok(format!("{tenant}: {}", words.join(" ")))
}

fn end(talk: &mut Talk, tenant: &str, kill: bool) -> Result<String, Failure> {
    talk.call(&Control::End {
        tenant: tenant.to_owned(),
        kill,
    })?;
    let how = if kill {
        "was ended"
    } else {
        "was asked to end"
    };
    Ok(format!("{tenant} {how}"))
}
