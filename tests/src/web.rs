//! The exporter as a process, and requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::artefacts;
use crate::guest::clean;
use crate::waiting::PATIENCE;

/// A running `gpushare-exporter`; killed when dropped.
#[derive(Debug)]
pub struct Exporter {
    child: Child,
    at: SocketAddr,
}

/// An HTTP answer.
#[derive(Debug)]
pub struct Page {
    /// The first line.
    pub status: String,
    /// The other lines of the head.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Exporter {
    /// Starts one at a free port for the daemon in this folder.
    pub fn start(folder: &Path) -> Self {
        Self::of(clean(&artefacts::exporter()), folder)
    }

    /// As [`Exporter::start`], by this command.
    pub fn of(mut command: Command, folder: &Path) -> Self {
        command
            .args(["--listen", "127.0.0.1:0", "--runtime-dir"])
            .arg(folder)
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the exporter starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("it writes text");
        let at = line
            .split("http://")
            .nth(1)
            .and_then(|at| at.split('/').next());
        let at = at.and_then(|at| at.parse().ok());
        let at = at.unwrap_or_else(|| panic!("it says where it serves: {line:?}"));
        // The rest is read and dropped, so that it never waits for us.
        std::thread::spawn(move || lines.lines().count());
        Self { child, at }
    }

    /// Where it serves.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// Asks for a path with these header lines.
    pub fn get(&self, path: &str, fields: &[&str]) -> Page {
        get(self.at, path, fields)
    }

    /// The metrics as Prometheus text.
    pub fn metrics(&self) -> String {
        self.get("/metrics", &[]).body
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks any server for a path with these header lines.
pub fn get(at: SocketAddr, path: &str, fields: &[&str]) -> Page {
    let mut socket = TcpStream::connect(at).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let request = format!("GET {path} HTTP/1.0\r\nHost: {at}\r\n{fields}\r\n");
    socket.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let (status, head) = head.split_once("\r\n").unwrap_or((head, ""));
    Page {
        status: status.to_owned(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}
