//! The model on a screen.

mod devices;

use super::amounts::{bytes, span};
use super::model::{Model, Typing};
use super::rows::Row;
use devices::devices;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

/// Colours are the terminal's sixteen.
const PLAIN: Style = Style::new();
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const HEAD: Style = Style::new().add_modifier(Modifier::REVERSED);
const ALARM: Style = Style::new().fg(Color::Yellow);
const HELP: [&str; 10] = [
    "up, down, page up, page down, home, end   choose a tenant",
    "o        order by memory, time, wait, refusals, name",
    "f or /   show only tenants whose name, pod or user contains what is typed",
    "Enter    the chosen tenant's processes, and its memory that moves; again: none",
    "e        events",
    "s        suspend the chosen tenant: its memory moves to the host; again: back",
    "L        change the chosen tenant's limits, with the flags of `gpushare set`",
    "K        ask the chosen tenant to end (SIGTERM), after a y",
    "X        end the chosen tenant at once (SIGKILL), after a y",
    "q        leave; any key leaves this help",
];

/// A column: its title, its width, and what is in it.
type Column = (&'static str, usize, fn(&Row) -> &str);

const COLUMNS: [Column; 9] = [
    ("USER", 8, |row| &row.user),
    ("GPU", 3, |row| &row.gpu),
    ("MEM/LIM", 10, |row| &row.memory),
    ("REQ", 5, |row| &row.request),
    ("PEAK", 5, |row| &row.peak),
    ("got/due/cap", 13, |row| &row.time),
    ("WAITp99", 7, |row| &row.wait),
    ("REF", 4, |row| &row.refused),
    ("STATE", 0, |row| &row.state),
];
/// The order in which columns are left out where the screen is narrow.
const DROPPED: [&str; 4] = ["PEAK", "REQ", "USER", "REF"];
/// How many of these give way to names that are longer than the least width of theirs, up to a
/// width: those of pods.
const GIVING: usize = 2;
const NAMES: [usize; 2] = [12, 24];
/// The least width of the last column.
const STATE: usize = 24;

/// Writes lines from top to bottom.
struct Pen<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    y: u16,
}

impl Pen<'_> {
    fn line(&mut self, text: &str, style: Style) {
        self.line_at(self.y, text, style);
        self.y += 1;
    }

    fn line_at(&mut self, y: u16, text: &str, style: Style) {
        if y < self.area.bottom() {
            let width = usize::from(self.area.width);
            if style == HEAD {
                self.buffer
                    .set_style(Rect::new(self.area.x, y, self.area.width, 1), style);
            }
            self.buffer.set_stringn(self.area.x, y, text, width, style);
        }
    }

    fn left(&self) -> usize {
        usize::from(self.area.bottom().saturating_sub(self.y))
    }
}

/// Draws everything. Returns how many rows of tenants fit.
pub(super) fn draw(model: &mut Model, buffer: &mut Buffer) -> usize {
    let area = buffer.area;
    let mut pen = Pen { buffer, area, y: 0 };
    let width = usize::from(pen.area.width);
    let whole = title(model, true);
    let title = match whole.chars().count() <= width {
        true => whole,
        false => title(model, false),
    };
    let style = match model.stale {
        Some(_) => ALARM.add_modifier(Modifier::BOLD),
        None => BOLD,
    };
    pen.line(&title, style);
    devices(&mut pen, model);
    let below = 2 + if model.shows_events {
        usize::from(area.height) / 3
    } else {
        1
    };
    let fit = pen.left().saturating_sub(1 + below);
    tenants(&mut pen, model, fit);
    pen.y = area
        .bottom()
        .saturating_sub(u16::try_from(below).unwrap_or(0));
    notes(&mut pen, model, below);
    foot(&mut pen, model);
    if model.help {
        pen.y = 1;
        for line in HELP {
            pen.line_at(pen.y, &" ".repeat(usize::from(area.width)), PLAIN);
            pen.line(line, PLAIN);
        }
    }
    fit
}

/// The first line. Where it is too long, it says nothing `more` than what tenants there are.
fn title(model: &Model, more: bool) -> String {
    let daemon = model
        .snapshot
        .node
        .as_ref()
        .filter(|_| more)
        .map_or_else(String::new, |node| {
            format!("daemon {} up {}  ", node.version, span(node.up_ms))
        });
    let count = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    let queued = model.snapshot.queued.len();
    let old = model.stale.as_ref().map_or_else(String::new, |stale| {
        format!("  OLD: as it was {} ago", span(stale.for_ms))
    });
    let left = format!(
        "gpushare top  {}{old}  {daemon}{}  {}  {queued} queued",
        model.host,
        count(model.snapshot.devices.len(), "GPU"),
        count(model.snapshot.identities.len(), "tenant"),
    );
    match more {
        true => format!("{left}  every {}", model.every),
        false => left,
    }
}

/// The columns that fit, and the width of names of which the longest is so long.
fn columns(width: usize, longest: usize) -> (Vec<Column>, usize) {
    let mut shown = COLUMNS.to_vec();
    let wide = |shown: &[Column]| shown.iter().map(|(_, width, _)| width + 1).sum::<usize>();
    let [least, most] = NAMES;
    for (at, dropped) in DROPPED.into_iter().enumerate() {
        let names = match at < GIVING {
            true => longest.clamp(least, most),
            false => least,
        };
        if names + wide(&shown) + STATE > width {
            shown.retain(|(title, ..)| *title != dropped);
        }
    }
    let spare = width.saturating_sub(wide(&shown) + STATE);
    (shown, spare.clamp(8, 48))
}

/// A name that fits. Of a pod first its namespace is left out, then its container; of what is
/// longer the middle, because pods differ in their ends.
fn shortened(name: &str, width: usize) -> String {
    let of_pod = name.split_once('/').map_or(name, |(_, rest)| rest);
    let pod = of_pod.split_once('/').map_or(of_pod, |(pod, _)| pod);
    let fits = |text: &&str| text.chars().count() <= width;
    if let Some(whole) = [name, of_pod, pod].into_iter().find(fits) {
        return whole.to_owned();
    }
    let many = pod.chars().count();
    let tail = width.saturating_sub(1) * 2 / 3;
    let head = width.saturating_sub(1 + tail);
    let begin: String = pod.chars().take(head).collect();
    let end: String = pod.chars().skip(many - tail).collect();
    format!("{begin}…{end}")
}

fn tenants(pen: &mut Pen<'_>, model: &mut Model, fit: usize) {
    let (rows, at) = model.rows();
    let longest = rows.iter().map(|row| row.name.chars().count()).max();
    let (shown, names) = columns(usize::from(pen.area.width), longest.unwrap_or(0));
    let line = |first: &str, cell: &dyn Fn(&Column) -> String| {
        let cells = shown.iter().map(cell).collect::<Vec<_>>().join(" ");
        let first = shortened(first, names);
        format!("{first:<names$} {cells}")
    };
    let pad = |text: &str, width: usize, title: &str| {
        let text: String = match width {
            0 => text.to_owned(),
            width => text.chars().take(width).collect(),
        };
        match title {
            "USER" | "STATE" => format!("{text:<width$}"),
            _ => format!("{text:>width$}"),
        }
    };
    pen.line(
        &line("TENANT", &|(title, width, _)| pad(title, *width, title)),
        HEAD,
    );
    let more = at
        .filter(|_| model.details)
        .and_then(|at| Some(rows.get(at)?.details.len()));
    let more = more.map_or(0, |lines| lines.min(fit / 2));
    // Without a choice the screen stays where it is.
    let least = at.map_or(0, |at| (at + more + 1).saturating_sub(fit));
    let most = at.unwrap_or_else(|| rows.len().saturating_sub(fit));
    model.first = model.first.min(most).max(least);
    let end = pen.y + u16::try_from(fit).unwrap_or(0);
    for (place, row) in rows.iter().enumerate().skip(model.first) {
        if pen.y >= end {
            break;
        }
        let is_chosen = Some(place) == at;
        let style = match (is_chosen, row.alarms) {
            (true, _) => BOLD.add_modifier(Modifier::UNDERLINED),
            (false, true) => ALARM,
            (false, false) => PLAIN,
        };
        let text = line(&row.name, &|(title, width, cell)| {
            pad(cell(row), *width, title)
        });
        pen.line(text.trim_end(), style);
        if is_chosen && model.details {
            for line in row.details.iter().take(more) {
                pen.line(line, DIM);
            }
        }
    }
    if rows.is_empty() {
        let text = match model.filter.is_empty() {
            true => "no tenants",
            false => "no tenant fits the filter",
        };
        pen.line(text, DIM);
    }
}

/// Processes of no tenant, in one line for all devices, and the last events.
fn notes(pen: &mut Pen<'_>, model: &Model, below: usize) {
    let unmanaged = unmanaged(model).map(|text| (text, ALARM));
    let mut lines: Vec<_> = unmanaged.into_iter().collect();
    let room = (below - 1).saturating_sub(lines.len());
    let events: Vec<_> = model.events.iter().rev().take(room).collect();
    for event in events.into_iter().rev() {
        let ago = span(model.now_ms.saturating_sub(event.at_ms));
        let tenant = model.names.shown(event.tenant.as_deref().unwrap_or(""));
        let said = model.names.in_text(&event.text);
        let text = format!("{ago:>5} ago {} {tenant} {said}", event.kind);
        lines.push((text, DIM));
    }
    for (text, style) in lines.into_iter().take(below - 1) {
        pen.line(&text, style);
    }
}

/// How many processes of no tenant compute, and what all of these hold there, the desktop too.
fn unmanaged(model: &Model) -> Option<String> {
    let devices = model.snapshot.devices.iter().enumerate();
    let found = devices.filter_map(|(at, row)| {
        let mut counted = model.snapshot.counted.iter();
        let counted = counted.find(|one| one.device == row.uuid)?;
        (counted.unmanaged > 0).then_some((at, counted.unmanaged, row.unmanaged))
    });
    let found: Vec<(usize, u32, u64)> = found.collect();
    let places: Vec<String> = found.iter().map(|(at, ..)| at.to_string()).collect();
    let many: u32 = found.iter().map(|(_, many, _)| many).sum();
    let held: u64 = found.iter().map(|(.., held)| held).sum();
    let gpus = match places.len() {
        0 => return None,
        1 => "GPU",
        _ => "GPUs",
    };
    let compute = match many {
        1 => "1 process computes".to_owned(),
        many => format!("{many} processes compute"),
    };
    let held = bytes(held);
    let places = places.join(", ");
    Some(format!(
        "!unmanaged on {gpus} {places}: {compute}; {held} held by processes of no tenant"
    ))
}

fn foot(pen: &mut Pen<'_>, model: &Model) {
    let y = pen.area.bottom().saturating_sub(1);
    let shown = |tenant: &str| model.names.shown(tenant).to_owned();
    let text = match (&model.typing, &model.ending, &model.message) {
        (Some((Typing::Filter, text)), ..) => format!("filter: {text}_"),
        (Some((Typing::Limits(tenant), text)), ..) => format!("set {} {text}_", shown(tenant)),
        (None, Some((tenant, false)), _) => {
            format!(
                "ask tenant {} to end? y: yes, other keys: no",
                shown(tenant)
            )
        }
        (None, Some((tenant, true)), _) => {
            format!(
                "end tenant {} at once? y: yes, other keys: no",
                shown(tenant)
            )
        }
        (None, None, Some(message)) => model.names.in_text(message),
        (None, None, None) => match &model.stale {
            Some(stale) => format!("what is shown is old: {}", stale.why),
            None => keys(model),
        },
    };
    pen.line_at(y, &text, HEAD);
}

/// The keys, the order and the filter.
fn keys(model: &Model) -> String {
    let filter = match model.filter.as_str() {
        "" => String::new(),
        filter => format!("  filtered by {filter}"),
    };
    let sort = model.sort.name();
    format!(
        "o order ({sort})  f filter  Enter detail  s suspend  L limits  K end  e events  ? help  q quit{filter}"
    )
}
