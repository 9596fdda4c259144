//! Lines over the last hour, or as much of it as there is, as SVG.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::escaped;

/// The picture's size, without its legend.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 180.0;
/// Left of the lines, for the scale.
const LEFT: f64 = 60.0;
/// Lines with a colour of their own; the rest is added up.
const MOST: usize = 12;
/// Colours that are told apart also by people who see few (Tol's muted and bright schemes).
const COLOURS: [&str; 12] = [
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#882255", "#44aa99",
    "#999933", "#332288", "#cc6677", "#117733",
];
/// By how much values may be above the most and are cut off there: bills may add up to a little
/// more than the time.
const SLACK: f64 = 1.05;
const OTHERS: &str = "#999999";

/// A tenant's values, the newest last.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) step_ms: u64,
    /// How old the newest value is.
    pub(crate) age_ms: u64,
    pub(crate) values: Vec<f64>,
}

/// How far back pictures reach: the last 5 or 15 minutes where all values are as new, else an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach(usize);

impl Reach {
    /// For values of which the oldest is that old.
    pub(crate) fn of(oldest_ms: u64) -> Self {
        let minutes = [5, 15]
            .into_iter()
            .find(|least| oldest_ms <= least * 60_000);
        Self(usize::try_from(minutes.unwrap_or(60) * 60_000 / STEP_MS).unwrap_or(STEPS))
    }

    /// Minutes at which the axis has a label.
    fn labels(self) -> &'static [usize] {
        match self.0 {
            30 => &[5, 4, 3, 2, 1, 0],
            90 => &[15, 10, 5, 0],
            _ => &[60, 45, 30, 15, 0],
        }
    }

    fn x(self, back: usize) -> f64 {
        LEFT + WIDTH * (1.0 - back as f64 / (self.0 - 1) as f64)
    }
}

/// A line's values at the picture's steps, oldest first; `None` where it has none.
#[derive(Default)]
struct Drawn {
    name: String,
    values: Vec<Option<f64>>,
}

/// A picture of lines up to `most`, on top of each other or not, with a legend. Where they reach
/// above it, up to their highest value, with a mark at `most`. Lines of one name are one line: a
/// job that is started again and again.
pub(crate) fn picture(
    title: &str,
    (most, unit): (f64, &str),
    stacked: bool,
    reach: Reach,
    lines: &[Line],
) -> String {
    let mut lines = by_name(lines);
    lines.retain(|line| sum(line) > 0.0);
    lines.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
    let rest = lines.split_off(lines.len().min(MOST));
    if !rest.is_empty() {
        let name = format!("{} others", rest.len());
        lines.push(added(name, &rest));
    }
    let mut out = format!(
        "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(title),
        LEFT + WIDTH + 10.0,
        HEIGHT + 30.0,
        escaped(title)
    );
    let highest = match stacked {
        true => highest(&added(String::new(), &lines)),
        false => lines.iter().map(highest).fold(0.0, f64::max),
    };
    let all = match highest > most * SLACK {
        true => highest,
        false => most,
    };
    axes(&mut out, all, unit, reach);
    if all > most && most > 0.0 {
        mark(&mut out, y(most, all), &format!("{most:.1} {unit}"));
    }
    let mut below = vec![0.0; STEPS];
    for (at, line) in lines.iter().enumerate() {
        let colour = if at == MOST {
            OTHERS
        } else {
            COLOURS[at % COLOURS.len()]
        };
        let own = &line.values;
        let top: Vec<f64> = if stacked {
            below
                .iter()
                .zip(own)
                .map(|(below, own)| below + own.unwrap_or(0.0))
                .collect()
        } else {
            own.iter().map(|own| own.unwrap_or(0.0)).collect()
        };
        let bottom: Vec<f64> = if stacked {
            below.clone()
        } else {
            vec![0.0; STEPS]
        };
        let there: Vec<bool> = own.iter().map(Option::is_some).collect();
        let values = (&bottom[..], &top[..], &there[..]);
        shape(&mut out, values, (all, reach), (colour, stacked));
        if stacked {
            below = top;
        }
    }
    out.push_str("</svg>\n");
    legend(&mut out, &lines);
    out.push_str("</figure>\n");
    out
}

fn sum(line: &Drawn) -> f64 {
    line.values.iter().flatten().sum()
}

fn highest(line: &Drawn) -> f64 {
    line.values.iter().flatten().copied().fold(0.0, f64::max)
}

/// Values across the picture, an hour, and the time between two.
const STEPS: usize = 360;
const STEP_MS: u64 = 10_000;

/// A line's values at the picture's steps, oldest first; `None` where it has none. Until a step
/// after its last look the last value counts.
fn resampled(line: &Line) -> Vec<Option<f64>> {
    let step = line.step_ms.max(1);
    let value = |age: u64| {
        let before = (age + step / 2).checked_sub(line.age_ms);
        let before = before.or_else(|| (age + step >= line.age_ms).then_some(0))?;
        let back = usize::try_from(before / step).ok()?;
        let last = line.values.len().checked_sub(1)?;
        line.values.get(last.checked_sub(back)?).copied()
    };
    let ages = (0..STEPS as u64).rev().map(|at| at * STEP_MS);
    ages.map(value).collect()
}

/// One line for each name, in the order in which the names come.
fn by_name(lines: &[Line]) -> Vec<Drawn> {
    let mut all: Vec<Drawn> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines {
        let own = Drawn {
            name: line.name.clone(),
            values: resampled(line),
        };
        let place = *places.entry(&line.name).or_insert(all.len());
        match all.get_mut(place) {
            Some(known) => *known = added(own.name.clone(), &[std::mem::take(known), own]),
            None => all.push(own),
        }
    }
    all
}

/// The sum of lines, where one of them has a value.
fn added(name: String, lines: &[Drawn]) -> Drawn {
    let mut values = vec![None; STEPS];
    for line in lines {
        for (sum, value) in values.iter_mut().zip(&line.values) {
            if let Some(value) = value {
                *sum = Some(sum.unwrap_or(0.0) + value);
            }
        }
    }
    Drawn { name, values }
}

fn y(value: f64, most: f64) -> f64 {
    10.0 + HEIGHT * (1.0 - (value / most.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0))
}

/// The parts in which a line has values: filled if it is stacked.
fn shape(
    out: &mut String,
    (bottom, top, there): (&[f64], &[f64], &[bool]),
    (most, reach): (f64, Reach),
    (colour, filled): (&str, bool),
) {
    let mut at = STEPS - reach.0;
    while at < STEPS {
        if !there[at] {
            at += 1;
            continue;
        }
        let end = (at..STEPS).find(|step| !there[*step]).unwrap_or(STEPS);
        let point = |step: usize, value: f64| {
            format!("{:.1},{:.1}", reach.x(STEPS - 1 - step), y(value, most))
        };
        let mut points: Vec<String> = (at..end).map(|step| point(step, top[step])).collect();
        if filled {
            points.extend((at..end).rev().map(|step| point(step, bottom[step])));
            let _ = writeln!(
                out,
                "<polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"0.75\"/>",
                points.join(" ")
            );
        } else {
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
                points.join(" ")
            );
        }
        at = end;
    }
}

fn axes(out: &mut String, most: f64, unit: &str, reach: Reach) {
    for part in [0.0, 0.5, 1.0] {
        let (value, at) = (most * part, y(most * part, most));
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#888\" stroke-width=\"0.5\"/>\
             <text x=\"{}\" y=\"{:.1}\" font-size=\"11\" text-anchor=\"end\">{} {unit}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            at + 4.0,
            (value * 10.0).round() / 10.0
        );
    }
    for minutes in reach.labels() {
        let all = reach.labels().first().copied().unwrap_or(1);
        let at = LEFT + WIDTH * (1.0 - *minutes as f64 / all as f64);
        let text = if *minutes == 0 {
            "now".to_owned()
        } else {
            format!("-{minutes} min")
        };
        let _ = writeln!(
            out,
            "<text x=\"{at:.1}\" y=\"{}\" font-size=\"11\" text-anchor=\"middle\">{text}</text>",
            HEIGHT + 26.0
        );
    }
}

/// A dashed line across the picture, with a label.
fn mark(out: &mut String, at: f64, label: &str) {
    let _ = writeln!(
        out,
        "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#c00\" stroke-dasharray=\"6 4\"/>\
         <text x=\"{}\" y=\"{:.1}\" font-size=\"11\" fill=\"#c00\">{label}</text>",
        LEFT + WIDTH,
        LEFT + 4.0,
        at - 3.0
    );
}

fn legend(out: &mut String, lines: &[Drawn]) {
    let entry = |(at, line): (usize, &Drawn)| {
        let colour = if at == MOST {
            OTHERS
        } else {
            COLOURS[at % COLOURS.len()]
        };
        let mark = format!("<span style=\"color:{colour}\">&#9632;</span>");
        format!("{mark} {}", escaped(&line.name))
    };
    let entries: Vec<String> = lines.iter().enumerate().map(entry).collect();
    let text = match entries.is_empty() {
        true => "nothing in the last hour".to_owned(),
        false => entries.join(" &nbsp; "),
    };
    let _ = writeln!(out, "<p class=\"note\">{text}</p>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(age_ms: u64, values: &[f64]) -> Line {
        Line {
            name: "a<b".to_owned(),
            step_ms: 10_000,
            age_ms,
            values: values.to_vec(),
        }
    }

    #[test]
    fn values_lie_at_their_age_and_nowhere_else() {
        let now = resampled(&line(3_000, &[1.0, 2.0]));
        assert_eq!(now[STEPS - 3..], [None, Some(1.0), Some(2.0)]);
        let ended = resampled(&line(30_000, &[1.0, 2.0]));
        assert_eq!(
            ended[STEPS - 5..STEPS - 2],
            [Some(1.0), Some(2.0), Some(2.0)]
        );
        assert_eq!(ended[STEPS - 2..], [None, None]);
        assert_eq!(resampled(&line(0, &[])), vec![None; STEPS]);
    }

    #[test]
    fn a_young_node_fills_the_width_and_an_old_one_shows_an_hour() {
        let minute = 60_000;
        let labels = [(4, "-5 min"), (6, "-15 min"), (16, "-60 min")];
        for (minutes, label) in labels {
            let values = vec![1.0; minutes * 6];
            let reach = Reach::of(minutes as u64 * minute);
            let text = picture("m", (80.0, "GiB"), false, reach, &[line(0, &values)]);
            assert!(text.contains(&format!(">{label}<")), "{text}");
            let first = text
                .split("points=\"")
                .nth(1)
                .and_then(|points| points.split(',').next());
            let first: f64 = first.and_then(|x| x.parse().ok()).expect("a place");
            let part = minutes as f64 / reach.labels()[0] as f64;
            let wanted = LEFT + WIDTH * (1.0 - part);
            assert!((first - wanted).abs() < 40.0, "{minutes}: {first} {wanted}");
        }
        assert_eq!(Reach::of(0).x(0), LEFT + WIDTH);
    }

    #[test]
    fn many_tenants_are_the_largest_and_the_rest() {
        let all: Vec<Line> = (1..=20)
            .map(|at| Line {
                name: format!("t{at:02}"),
                ..line(0, &[f64::from(at)])
            })
            .collect();
        let text = picture("m", (80.0, "GiB"), true, Reach::of(0), &all);
        assert!(text.contains("t20") && text.contains("8 others"), "{text}");
        assert!(!text.contains("t08"), "{text}");
        assert_eq!(text.matches("<polygon").count(), MOST + 1);
    }

    #[test]
    fn a_job_that_starts_again_and_again_is_one_line() {
        // Each of its lives lasts a step.
        let lives: Vec<Line> = (0..20)
            .map(|back| line(2 * back * STEP_MS, &[f64::from(4_u32)]))
            .collect();
        let text = picture("m", (80.0, "GiB"), true, Reach::of(0), &lives);
        assert_eq!(text.matches("&#9632;").count(), 1, "{text}");
        assert!(!text.contains("others"), "{text}");
        let other = Line {
            name: "b".to_owned(),
            ..line(0, &[1.0])
        };
        let both = picture(
            "m",
            (80.0, "GiB"),
            true,
            Reach::of(0),
            &[line(0, &[1.0]), other],
        );
        assert_eq!(both.matches("&#9632;").count(), 2, "{both}");
    }

    #[test]
    fn what_reaches_above_the_most_is_drawn_with_a_mark_at_the_most() {
        let of = |each: f64| {
            let lines: Vec<Line> = ["a", "b", "c"]
                .map(|name| Line {
                    name: name.to_owned(),
                    ..line(0, &[each; 3])
                })
                .to_vec();
            picture("m", (80.0, "GiB"), true, Reach::of(0), &lines)
        };
        let text = of(60.0);
        assert!(
            text.contains(">180 GiB<") && text.contains(">80.0 GiB<"),
            "{text}"
        );
        // Each has a height of its own.
        let shapes = text.split("<polygon points=\"").skip(1);
        for points in shapes.map(|rest| rest.split('"').next().unwrap_or_default()) {
            let heights = points.split([' ', ',']).skip(1).step_by(2);
            let heights: std::collections::BTreeSet<&str> = heights.collect();
            assert_eq!(heights.len(), 2, "{points}");
        }
        assert!(!of(20.0).contains("dasharray"));
    }

    #[test]
    fn a_name_is_text_and_no_line_is_said() {
        let text = picture("m", (80.0, "GiB"), false, Reach::of(0), &[line(0, &[1.0])]);
        assert!(text.contains("a&lt;b") && !text.contains("a<b"), "{text}");
        let text = picture("m", (80.0, "GiB"), false, Reach::of(0), &[line(0, &[0.0])]);
        assert!(text.contains("nothing in the last hour"), "{text}");
    }
}
