//! Debian's Prometheus reads what the exporter serves: it scrapes a node at work, answers queries
//! about it, and understands every alert and every query of the dashboard. In the long tier: the
//! package is downloaded.
#![allow(clippy::cast_precision_loss, reason = "values of queries are floats")]

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpushare_tests::daemon::Daemon;
use gpushare_tests::gpu::Gpu;
use gpushare_tests::runnable::prepared;
use gpushare_tests::web::{Exporter, get};
use gpushare_tests::{GIB, Guest, MIB, Tenant, artefacts};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// A running Prometheus; killed when dropped.
struct Prometheus {
    child: Child,
    at: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(programs: &Path, targets: &[SocketAddr], rules: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let targets: Vec<String> = targets.iter().map(|at| format!("'{at}'")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\n\
             scrape_configs: [{{job_name: gpushare, static_configs: [{{targets: [{}]}}]}}]\n",
            rules.display(),
            targets.join(", ")
        );
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config).expect("the folder is writable");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = free.local_addr().expect("it is bound");
        drop(free);
        let child = Command::new(programs.join("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={at}"))
            .args([
                "--log.level=error",
                "--web.console.templates=/",
                "--web.console.libraries=/",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        Self {
            child,
            at,
            _folder: folder,
        }
    }

    /// Waits until a query has an answer.
    #[track_caller]
    fn until(&self, query: &str, wanted: impl Fn(f64) -> bool) -> f64 {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.ask(query);
            let values = found.iter().flatten().filter_map(value);
            if let Some(value) = values.into_iter().find(|value| wanted(*value)) {
                return value;
            }
            assert!(Instant::now() < end, "{query}: {found:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The answer to a query; the error is Prometheus's.
    fn ask(&self, query: &str) -> Result<Vec<Value>, String> {
        if std::net::TcpStream::connect(self.at).is_err() {
            return Err("it does not listen yet".to_owned());
        }
        let page = get(
            self.at,
            &format!("/api/v1/query?query={}", quoted(query)),
            &[],
        );
        let answer: Value = serde_json::from_str(&page.body).map_err(|error| error.to_string())?;
        if answer["status"] != "success" {
            return Err(answer["error"].to_string());
        }
        let rows = answer["data"]["result"].as_array();
        Ok(rows.cloned().unwrap_or_default())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn value(row: &Value) -> Option<f64> {
    row["value"][1].as_str()?.parse().ok()
}

/// A query as a part of an address.
fn quoted(query: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    query.bytes().map(byte).collect()
}

fn packaging(file: &str) -> PathBuf {
    artefacts::repository().join("packaging").join(file)
}

/// Runs `promtool`; it has to agree.
#[track_caller]
fn promtool(programs: &Path, arguments: &[&str], input: &str) {
    let mut child = Command::new(programs.join("promtool"))
        .args(arguments)
        .current_dir(packaging("prometheus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut pipe = child.stdin.take().expect("piped");
    pipe.write_all(input.as_bytes()).expect("it reads");
    drop(pipe);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// A second node, with a tenant whose memory moves.
struct Moving {
    daemon: Daemon,
    exporter: Exporter,
    _guest: Guest,
    _tenant: Tenant,
    _gpu: Gpu,
}

impl Moving {
    fn start() -> Self {
        let gpu = Gpu::new("mem=106MiB,ctx=2MiB");
        let node = "first_context = \"4MiB\"\n[swap]\nhost = \"1GiB\"\n";
        let daemon = Daemon::configured(&gpu, node);
        let terms = [
            ("GPUSHARE_MEM_LIMIT", "96MiB"),
            ("GPUSHARE_ON_COLLISION", "swap"),
        ];
        let tenant = daemon.tenant("moving", &terms);
        let mut guest = tenant.client("swapped", &[]);
        for (line, answer) in [
            ("init".to_owned(), "init 0"),
            (format!("alloc {}", 64 * MIB), "alloc 0"),
            ("fill 7".to_owned(), "fill 0"),
        ] {
            assert_eq!(guest.ask(&line), answer);
        }
        let folder = daemon.control();
        let exporter = Exporter::start(folder.parent().expect("a folder"));
        Self {
            daemon,
            exporter,
            _guest: guest,
            _tenant: tenant,
            _gpu: gpu,
        }
    }
}

/// The queries of the dashboard, with all of every variable.
fn dashboard() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(packaging("grafana/gpushare.json"));
    let board: Value = serde_json::from_str(&text.expect("it is in the tree")).expect("JSON");
    let plain = |query: &str| {
        let mut query = query.replace("$__rate_interval", "1m");
        for variable in ["$node", "$gpu", "$tenant"] {
            query = query.replace(variable, ".*");
        }
        query
    };
    let panels = board["panels"].as_array().expect("panels").iter();
    let panel = |panel: &Value| {
        let title = panel["title"].as_str().expect("a title").to_owned();
        let targets = panel["targets"].as_array().expect("targets").iter();
        let queries = targets.map(|target| plain(target["expr"].as_str().expect("a query")));
        (title, queries.collect())
    };
    panels.map(panel).collect()
}

#[test]
#[ignore = "long tier: downloads Debian's Prometheus"]
fn promtool_agrees_with_the_texts_the_rules_and_their_tests() {
    let test = "prometheus::promtool_agrees_with_the_texts_the_rules_and_their_tests";
    let Some(programs) = prepared(test, "prometheus.sh", &[]) else {
        return;
    };
    let daemon = Daemon::start(&Gpu::new("mem=16GiB,count=2"));
    let _tenant = daemon.tenant("checked", &[("GPUSHARE_MEM_LIMIT", "2GiB")]);
    let folder = daemon.control();
    let exporter = Exporter::start(folder.parent().expect("a folder"));
    promtool(&programs, &["check", "metrics"], &exporter.metrics());
    let sample = artefacts::repository().join("exporter/tests/data/node.prom");
    let sample = std::fs::read_to_string(sample).expect("it is in the tree");
    promtool(&programs, &["check", "metrics"], &sample);
    promtool(&programs, &["check", "rules", "gpushare.rules.yml"], "");
    promtool(&programs, &["test", "rules", "gpushare.rules.test.yml"], "");
}

#[test]
#[ignore = "long tier: downloads Debian's Prometheus"]
fn prometheus_scrapes_a_node_and_answers_every_query_about_it() {
    let test = "prometheus::prometheus_scrapes_a_node_and_answers_every_query_about_it";
    let Some(programs) = prepared(test, "prometheus.sh", &[]) else {
        return;
    };
    let gpu = Gpu::new("mem=16GiB");
    let mut daemon = Daemon::in_turns(&gpu);
    let limit = [("GPUSHARE_MEM_LIMIT", "1GiB")];
    let (first, second) = (
        daemon.tenant("first", &limit),
        daemon.tenant("second", &limit),
    );
    let folder = daemon.control();
    let exporter = Exporter::start(folder.parent().expect("a folder"));
    let moving = Moving::start();
    let rules = packaging("prometheus/gpushare.rules.yml");
    let targets = [exporter.at(), moving.exporter.at()];
    let prometheus = Prometheus::start(&programs, &targets, &rules);
    prometheus.until("gpushare_daemon_up", |up| up == 1.0);
    // Three questions: a tenant's charged memory, its refusals, and a tenant's share.
    let mut guest = first.client("quota", &[]);
    guest.ask("init");
    guest.ask(&format!("alloc {}", 700 * MIB));
    prometheus.until(
        "sum by (tenant) (gpushare_tenant_memory_charged_bytes{tenant=\"first\"})",
        |bytes| bytes == (700 * MIB) as f64,
    );
    guest.ask(&format!("alloc {GIB}"));
    prometheus.until(
        "sum(gpushare_tenant_allocations_refused_total{tenant=\"first\",reason=\"limit\"})",
        |count| count >= 1.0,
    );
    prometheus.until(
        "count(gpushare_tenant_share_ratio{tenant=\"second\"})",
        |n| n == 1.0,
    );
    drop(second);
    // Memory moves while it is scraped: rates need two looks at growing counts.
    let moved = "sum(rate(gpushare_swap_seconds_count{tenant=\"moving\",direction=\"in\"}[1m]))";
    let end = Instant::now() + PATIENCE;
    while prometheus
        .ask(moved)
        .is_ok_and(|rows| !rows.iter().filter_map(value).any(|n| n > 0.0))
    {
        assert!(Instant::now() < end, "no move is seen");
        moving.daemon.suspend("moving");
        moving.daemon.resume("moving");
    }
    let bytes = (64 * MIB) as f64;
    for way in ["out", "in"] {
        let query = format!("sum(gpushare_swap_{way}_bytes_total{{tenant=\"moving\"}})");
        prometheus.until(&query, |moved| moved >= bytes);
    }
    // Prometheus asks for OpenMetrics by itself; the older format is as welcome.
    let targets = prometheus.ask("up").expect("it answers");
    assert!(!targets.is_empty());
    let mut empty = Vec::new();
    for (title, queries) in dashboard() {
        for query in queries {
            let rows = prometheus.ask(&query);
            let rows = rows.unwrap_or_else(|error| panic!("{title}: {query}: {error}"));
            if rows.is_empty() {
                empty.push(title.clone());
            }
        }
    }
    empty.dedup();
    // dcgm-exporter does not run here, and no tenant has a hard cap.
    let may_be_empty = ["Activity and power (dcgm-exporter)", "Time got"];
    empty.retain(|title| !may_be_empty.contains(&title.as_str()));
    assert!(empty.is_empty(), "without data: {empty:?}");
    daemon.kill();
    let first = format!("gpushare_daemon_up{{instance=\"{}\"}}", exporter.at());
    prometheus.until(&first, |up| up == 0.0);
    prometheus.until("count(ALERTS{alertname=\"GpushareDaemonDown\"})", |n| {
        n == 1.0
    });
}
