//! The measurements of `gpushare bench swap` as text, as a Markdown table and as data.

use crate::bench::compare::whole;
use crate::bench::measure::OF_P99;
use crate::output;
use gpushare_protocol::units::Bytes;
use serde::Serialize;
use std::borrow::Cow;

/// Rates of copies without gpushare, in bytes a second: to the host, and to the device.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Link {
    pub(super) out: f64,
    pub(super) back: f64,
}

/// A small allocation and its free, both together: the middle of some means (ns).
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Small {
    bare_ns: u64,
    movable_ns: u64,
}

impl Small {
    /// Of those without gpushare, and of those that may move.
    pub(super) fn new([bare, movable]: &[Vec<u64>; 2]) -> Self {
        Self {
            bare_ns: part(bare, 50),
            movable_ns: part(movable, 50),
        }
    }
}

/// Moves of idle tenants by command. Times in nanoseconds, in the order in which they were taken.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Idle {
    /// A tenant of 2 MiB is sealed, leaves, and a look shows its memory gone.
    seal_ns: Vec<u64>,
    seal_p50_ns: u64,
    seal_p99_ns: u64,
    /// The whole moves of a tenant of the size.
    out_ns: Vec<u64>,
    back_ns: Vec<u64>,
    /// Rates of the middle ones, in bytes a second.
    out: f64,
    back: f64,
    wrong_pages: u64,
}

impl Idle {
    pub(super) fn new(
        size: u64,
        seal_ns: Vec<u64>,
        out_ns: Vec<u64>,
        back_ns: Vec<u64>,
        wrong_pages: u64,
    ) -> Self {
        let rate = |all: &[u64]| size as f64 * 1e9 / part(all, 50).max(1) as f64;
        Self {
            seal_p50_ns: part(&seal_ns, 50),
            seal_p99_ns: part(&seal_ns, 99),
            out: rate(&out_ns),
            back: rate(&back_ns),
            seal_ns,
            out_ns,
            back_ns,
            wrong_pages,
        }
    }
}

/// Two tenants that do not fit together and always have work.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Pair {
    pub(super) seconds: u64,
    /// Whole cycles in that time, and how long they took; all of it where there are none.
    pub(super) cycles: usize,
    pub(super) counted_ns: u64,
    /// Device time of each in the counted time.
    pub(super) worked_ns: [u64; 2],
    /// How often they left the device, and the bytes that moved, both ways.
    pub(super) left: u64,
    pub(super) moved: u64,
    /// How long one of them moved, and how long one left while the other came back.
    pub(super) moving_ns: u64,
    pub(super) both_ns: u64,
    pub(super) wrong_pages: u64,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) device: String,
    pub(super) host: String,
    pub(super) software: bool,
    /// The memory of each tenant, in bytes.
    pub(super) size: u64,
    pub(super) link: Link,
    pub(super) small: Small,
    pub(super) idle: Idle,
    pub(super) pair: Pair,
}

/// One figure: its name, what was measured, and the goal.
type Row = (Cow<'static, str>, String, &'static str);

impl Outcome {
    /// Pages that were otherwise than they were written.
    pub(super) fn wrong(&self) -> u64 {
        self.idle.wrong_pages + self.pair.wrong_pages
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = self.of_idle();
        rows.extend(self.of_pair());
        rows.push(row("pages lost", self.wrong().to_string(), "0"));
        rows
    }

    fn of_idle(&self) -> Vec<Row> {
        let (link, idle) = (&self.link, &self.idle);
        let of = |rate: f64, link: f64| format!("{} of {}", percent(rate / link), gigabytes(link));
        let longest = match idle.seal_ns.len() {
            few if few < OF_P99 => format!("seal of it, the longest of {few}"),
            _ => "seal of an idle tenant, p99".to_owned(),
        };
        vec![
            row("out, part of the link", of(idle.out, link.out), "≥ 85 %"),
            row("back, part of the link", of(idle.back, link.back), "≥ 85 %"),
            row(
                "seal of an idle tenant, p50",
                whole(idle.seal_p50_ns as f64),
                "",
            ),
            row(longest, whole(idle.seal_p99_ns as f64), "≤ 50 ms"),
            row(
                "small allocation and its free",
                format!("{} of {} ns", self.small.movable_ns, self.small.bare_ns),
                "≤ without gpushare",
            ),
        ]
    }

    fn of_pair(&self) -> Vec<Row> {
        let (link, pair) = (&self.link, &self.pair);
        let half = pair.counted_ns as f64 / 2.0;
        let halves = match pair.cycles {
            0 => "no whole cycle".to_owned(),
            _ => pair
                .worked_ns
                .map(|ns| percent(ns as f64 / half))
                .join(", "),
        };
        let useful = pair.worked_ns.iter().sum::<u64>() as f64 / (half * 2.0);
        let one_way = (link.out + link.back) / 2.0;
        let moving = pair.moving_ns.max(1) as f64;
        vec![
            row(
                "pair: whole cycles counted",
                format!("{} in {:.1} s", pair.cycles, pair.counted_ns as f64 / 1e9),
                "",
            ),
            row("pair: each of its ideal half", halves, "≥ 90 %"),
            row(
                "pair: device time not worked",
                percent(1.0 - useful),
                "≤ 10 %",
            ),
            row("pair: times that one left", pair.left.to_string(), ""),
            row(
                "pair: bytes moved, both ways",
                Bytes(pair.moved).human(),
                "",
            ),
            row(
                "pair: moves, both at a time",
                percent(pair.both_ns as f64 / moving),
                "",
            ),
            row(
                "pair: moves, parts of one way",
                percent(pair.moved as f64 * 1e9 / moving / one_way),
                "> 100 %",
            ),
        ]
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![self.head(), String::new()];
        lines.extend(self.rows().iter().map(|(name, value, goal)| {
            let goal = match goal.is_empty() {
                true => String::new(),
                false => format!("  (goal {goal})"),
            };
            format!("  {name:<30}{value:>22}{goal}")
        }));
        lines.push(String::new());
        lines.extend(output::wrapped(self.note(), 100));
        lines.join("\n")
    }

    pub(super) fn markdown(&self) -> String {
        let rows = self.rows();
        let rows = rows.iter();
        let rows: String = rows
            .map(|(name, value, goal)| format!("| {name} | {value} | {goal} |\n"))
            .collect();
        format!(
            "{}.\n\n| what | measured | goal |\n|---|---|---|\n{rows}",
            self.head()
        )
    }

    fn head(&self) -> String {
        format!(
            "on {}, {}; tenants of {}, one moved {} times, the pair for {} s",
            self.device,
            self.host,
            Bytes(self.size).human(),
            self.idle.out_ns.len(),
            self.pair.seconds
        )
    }

    /// How to read it.
    fn note(&self) -> &'static str {
        if self.software {
            "On the software GPU a copy takes its bytes over `link`, and the host's own copy where that is \
             slower: give it a link that this host can keep up with (link=1GiB/s). The seal's time includes a \
             move of 2 MiB and the look that shows it gone."
        } else {
            "The seal's time includes a move of 2 MiB and the look that shows it gone."
        }
    }
}

fn row(name: impl Into<Cow<'static, str>>, value: String, goal: &'static str) -> Row {
    (name.into(), value, goal)
}

/// So many percent of all are at most this.
fn part(all: &[u64], percent: usize) -> u64 {
    let mut sorted = all.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(0)
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn gigabytes(rate: f64) -> String {
    format!("{:.2} GB/s", rate / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let ms = |count: u64| count * 1_000_000;
        let seals = (1..=100).map(ms).collect();
        Outcome {
            device: "D".to_owned(),
            host: "H".to_owned(),
            software: true,
            size: 1 << 30,
            link: Link {
                out: (1_u64 << 30) as f64,
                back: (2_u64 << 30) as f64,
            },
            small: Small::new(&[vec![500, 400, 600], vec![80]]),
            idle: Idle::new(
                1 << 30,
                seals,
                vec![ms(1000), ms(1250), ms(9000)],
                vec![ms(500)],
                0,
            ),
            pair: Pair {
                seconds: 12,
                cycles: 2,
                counted_ns: ms(10_000),
                worked_ns: [ms(4500), ms(4600)],
                left: 4,
                moved: 8 << 30,
                moving_ns: ms(5000),
                both_ns: ms(1500),
                wrong_pages: 2,
            },
        }
    }

    #[test]
    fn the_figures_are_parts_of_the_link_and_of_halves() {
        let text = outcome().text();
        for said in [
            "80.0 % of 1.07 GB/s",
            "100.0 % of 2.15 GB/s",
            "80 of 500 ns",
            "2 in 10.0 s",
            "90.0 %, 92.0 %",
            "9.0 %",
            "8 GiB",
            "30.0 %",
            "106.7 %",
            "50.00ms",
            "99.00ms",
        ] {
            assert!(text.contains(said), "{said} in {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
        assert_eq!(outcome().wrong(), 2);
    }

    #[test]
    fn a_p99_of_few_seals_is_said_to_be_the_longest_one() {
        let of = |count: usize| {
            let mut few = outcome();
            few.idle.seal_ns.truncate(count);
            (few.text(), few.markdown())
        };
        for text in <[String; 2]>::from(of(10)) {
            let said = text.contains("the longest of 10") && !text.contains("p99");
            assert!(said, "{text}");
        }
        for text in <[String; 2]>::from(of(100)) {
            assert!(text.contains("p99") && !text.contains("longest"), "{text}");
        }
    }

    #[test]
    fn without_a_whole_cycle_there_are_no_halves() {
        let mut none = outcome();
        assert!(!none.text().contains("no whole cycle"));
        none.pair.cycles = 0;
        let text = none.text();
        assert!(text.contains("no whole cycle"), "{text}");
        assert!(!text.contains("90.0 %, 92.0 %"), "{text}");
    }

    #[test]
    fn the_table_has_a_row_for_each_figure_and_its_goal() {
        let table = outcome().markdown();
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(rows.len(), 2 + outcome().rows().len());
        assert!(
            rows.iter().all(|row| row.matches('|').count() == 4),
            "{table}"
        );
    }

    #[test]
    fn a_part_of_few_samples_is_one_of_them() {
        assert_eq!(part(&[], 99), 0);
        assert_eq!(part(&[7], 50), 7);
        assert_eq!(part(&[3, 1, 2], 50), 2);
        assert_eq!(part(&[3, 1, 2], 99), 3);
    }
}
