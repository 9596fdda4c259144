//! The matrix as an SVG picture: a cell for each pair, darker where a neighbour costs more.

use super::{MANY, Matrix};
use crate::output::wrapped;
use std::fmt::Write;

const CELL: usize = 90;
const LEFT: usize = 130;
const TOP: usize = 80;

/// The picture.
pub(super) fn svg(matrix: &Matrix) -> String {
    let notes = wrapped(matrix.note(), 70);
    let (width, below) = (LEFT + MANY * CELL + 20, TOP + MANY * CELL);
    let height = below + 40 + notes.len() * 18;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let mut text = |x: usize, y: usize, anchor: &str, said: &str| {
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(said)
        );
    };
    text(
        10,
        22,
        "start",
        &format!("Interference on {}", matrix.device),
    );
    text(
        10,
        42,
        "start",
        "rate of a tenant (row) beside a neighbour (column), alone = 1",
    );
    for (at, name) in matrix.tenants.iter().enumerate() {
        let middle = at * CELL + CELL / 2;
        text(LEFT + middle, TOP - 10, "middle", name);
        text(LEFT - 10, TOP + middle + 4, "end", name);
    }
    for (at, note) in notes.iter().enumerate() {
        text(10, below + 30 + at * 18, "start", note);
    }
    for (row, cells) in matrix.beside.iter().enumerate() {
        for (column, part) in cells.iter().enumerate() {
            let (x, y) = (LEFT + column * CELL, TOP + row * CELL);
            // From white (no cost) to a dark red (nothing left).
            let lost = (1.0 - part).clamp(0.0, 1.0);
            let light = |least: f64| (255.0 - (255.0 - least) * lost).round();
            let fill = format!("rgb({},{},{})", light(178.0), light(24.0), light(43.0));
            let ink = if lost > 0.6 { "#fff" } else { "#000" };
            let _ = writeln!(
                out,
                "<rect class=\"cell\" x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"{fill}\" stroke=\"#888\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{ink}\">{part:.2}</text>",
                x + CELL / 2,
                y + CELL / 2 + 4
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
