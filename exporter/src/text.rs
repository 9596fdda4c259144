//! The two text formats: Prometheus's 0.0.4 and OpenMetrics 1.0. They differ in the names of
//! counters and information, in the units, and in the end.

use std::borrow::Borrow;
use std::fmt::Write;

use gpushare_protocol::histogram::{BOUNDS, Histogram};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Its media type, as a `Content-Type`.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that a client prefers, by its `Accept` header. A type that is refused (`q=0`)
    /// does not count.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let weight = |media: &str| {
            let (name, parameters) = media.split_once(';').unwrap_or((media, ""));
            let quality = parameters.split(';').find_map(|one| {
                let (key, value) = one.split_once('=')?;
                (key.trim() == "q").then(|| value.trim().parse::<f64>().unwrap_or(0.0))
            });
            (name.trim().to_ascii_lowercase(), quality.unwrap_or(1.0))
        };
        let all: Vec<_> = accept.split(',').map(weight).collect();
        let best = |wanted: &str| {
            let weights = all.iter().filter(|(name, _)| name == wanted);
            weights.map(|(_, quality)| *quality).fold(0.0, f64::max)
        };
        let open = best("application/openmetrics-text");
        if open > 0.0 && open >= best("text/plain") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }
}

/// The type of a family's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that rises and falls.
    Gauge,
    /// A value that only rises, from the daemon's start.
    Counter,
    /// A distribution of times.
    Histogram,
    /// Labels alone.
    Info,
}

/// A sample's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// Nanoseconds, written as seconds.
    Time(u64),
    /// Thousandths, written as a part of one.
    Permille(u64),
    /// Times.
    Times(Histogram),
}

/// A value and its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values of labels; one without a value is left out.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: Value,
}

/// A metric with all its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name without the endings `_total` and `_info`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// The type of its values.
    pub kind: Kind,
    /// Its samples.
    pub samples: Vec<Sample>,
}

/// All families as text. One without samples is left out. Families that are given away are gone by
/// and by while the text grows.
#[must_use]
pub fn encode(families: impl IntoIterator<Item = impl Borrow<Family>>, format: Format) -> String {
    let mut out = String::new();
    for family in families {
        let family = family.borrow();
        if !family.samples.is_empty() {
            family.encode(format, &mut out);
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    // It waits for its reader.
    out.shrink_to_fit();
    out
}

impl Family {
    /// The name that its samples have.
    #[must_use]
    pub fn sample_name(&self) -> String {
        let ending = match self.kind {
            Kind::Gauge | Kind::Histogram => "",
            Kind::Counter => "_total",
            Kind::Info => "_info",
        };
        format!("{}{ending}", self.name)
    }

    fn encode(&self, format: Format, out: &mut String) {
        let sampled = self.sample_name();
        let (name, kind) = match (format, self.kind) {
            (Format::OpenMetrics, Kind::Info) => (self.name, "info"),
            (Format::OpenMetrics, Kind::Counter) => (self.name, "counter"),
            (Format::Prometheus, Kind::Counter) => (sampled.as_str(), "counter"),
            (_, Kind::Histogram) => (self.name, "histogram"),
            (_, Kind::Info | Kind::Gauge) => (sampled.as_str(), "gauge"),
        };
        let help = escaped(self.help, format == Format::OpenMetrics);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        let unit = ["seconds", "bytes", "ratio"];
        let unit = unit
            .iter()
            .find(|unit| self.name.ends_with(&format!("_{unit}")));
        if let (Format::OpenMetrics, Some(unit)) = (format, unit) {
            let _ = writeln!(out, "# UNIT {name} {unit}");
        }
        for sample in &self.samples {
            sample.encode(&sampled, out);
        }
    }
}

impl Sample {
    fn encode(&self, name: &str, out: &mut String) {
        let mut line = |ending: &str, bound: Option<&str>, value: String| {
            let given = self
                .labels
                .iter()
                .map(|(key, value)| (*key, value.as_str()));
            let bound = bound.map(|bound| ("le", bound));
            let labels = labels(given.chain(bound));
            let _ = writeln!(out, "{name}{ending}{labels} {value}");
        };
        match self.value {
            Value::Count(count) => line("", None, count.to_string()),
            Value::Time(ns) => line("", None, decimal(ns, 9)),
            Value::Permille(part) => line("", None, decimal(part, 3)),
            Value::Times(times) => {
                let mut below: u64 = 0;
                let bounds = BOUNDS.iter().map(|bound| le(*bound));
                let bounds = bounds.chain(["+Inf".to_owned()]);
                for (count, bound) in times.counts.iter().zip(bounds) {
                    below = below.saturating_add(*count);
                    line("_bucket", Some(&bound), below.to_string());
                }
                line("_sum", None, decimal(times.sum_ns, 9));
                line("_count", None, below.to_string());
            }
        }
    }
}

fn labels<'a>(given: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let given = given.filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = given
        .map(|(key, value)| format!("{key}=\"{}\"", escaped(value, true)))
        .collect();
    if pairs.is_empty() {
        String::new()
    } else {
        format!("{{{}}}", pairs.join(","))
    }
}

/// Backslashes and ends of lines are escaped, in labels and in OpenMetrics quotes too.
fn escaped(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes {
        text.replace('"', "\\\"")
    } else {
        text
    }
}

/// A number of `10^-places`, as a decimal without trailing zeros.
fn decimal(number: u64, places: u32) -> String {
    let one = 10_u64.pow(places);
    let (whole, rest) = (number / one, number % one);
    if rest == 0 {
        return whole.to_string();
    }
    let width = usize::try_from(places).unwrap_or(0);
    let rest = format!("{rest:0width$}");
    format!("{whole}.{}", rest.trim_end_matches('0'))
}

/// A bucket's bound in seconds. OpenMetrics wants a decimal point in it; written alike in both
/// formats, a series keeps its name.
fn le(ns: u64) -> String {
    let seconds = decimal(ns, 9);
    if seconds.contains('.') {
        seconds
    } else {
        format!("{seconds}.0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &'static str, kind: Kind, value: Value) -> Family {
        let labels = vec![("tenant", "a\"b\\c\nd".to_owned()), ("uid", String::new())];
        Family {
            name,
            help: "Said \"so\".",
            kind,
            samples: vec![Sample { labels, value }],
        }
    }

    #[test]
    fn a_counter_is_named_by_its_samples_in_one_format_only() {
        let all = [family(
            "x_seconds",
            Kind::Counter,
            Value::Time(1_500_000_000),
        )];
        assert_eq!(
            encode(&all, Format::Prometheus),
            "# HELP x_seconds_total Said \"so\".\n# TYPE x_seconds_total counter\n\
             x_seconds_total{tenant=\"a\\\"b\\\\c\\nd\"} 1.5\n"
        );
        assert_eq!(
            encode(&all, Format::OpenMetrics),
            "# HELP x_seconds Said \\\"so\\\".\n# TYPE x_seconds counter\n# UNIT x_seconds seconds\n\
             x_seconds_total{tenant=\"a\\\"b\\\\c\\nd\"} 1.5\n# EOF\n"
        );
    }

    #[test]
    fn an_info_is_a_gauge_in_the_older_format() {
        let all = [family("x", Kind::Info, Value::Count(1))];
        let text = encode(&all, Format::Prometheus);
        assert!(text.contains("# TYPE x_info gauge\nx_info{"), "{text}");
        let text = encode(&all, Format::OpenMetrics);
        assert!(text.contains("# TYPE x info\nx_info{"), "{text}");
    }

    #[test]
    fn buckets_are_cumulative_and_end_with_all() {
        let mut times = Histogram::default();
        for ns in [1, 20_000, 20_000, u64::MAX / 2] {
            times.record(ns);
        }
        let text = encode(
            &[family("x_seconds", Kind::Histogram, Value::Times(times))],
            Format::Prometheus,
        );
        for line in [
            "le=\"0.00001\"} 1",
            "le=\"0.00003\"} 3",
            "le=\"1.0\"} 3",
            "le=\"+Inf\"} 4",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(text.contains("x_seconds_count{"), "{text}");
    }

    #[test]
    fn numbers_are_exact() {
        assert_eq!(decimal(0, 9), "0");
        assert_eq!(decimal(1, 9), "0.000000001");
        assert_eq!(decimal(u64::MAX, 9), "18446744073.709551615");
        assert_eq!(decimal(125, 3), "0.125");
    }

    #[test]
    fn the_header_chooses_the_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            (prometheus, Format::OpenMetrics),
            (
                "application/openmetrics-text; version=1.0.0; q=0.9",
                Format::OpenMetrics,
            ),
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/plain", Format::Prometheus),
            (
                "text/plain, application/openmetrics-text;q=0.2",
                Format::Prometheus,
            ),
            ("application/openmetrics-text;q=0", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }
}
