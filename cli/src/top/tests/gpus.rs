//! The lines of the GPUs, of many and of lost ones.

use super::*;
use gpushare_protocol::wire::{ProcessState, Regime, SharingRow};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Color;

/// The sample's tenants on the first of so many GPUs.
fn of_gpus(many: u8) -> Snapshot {
    let mut node = sample::node();
    let row = node.devices[0].clone();
    node.devices = (0..many)
        .map(|at| {
            let mut row = row.clone();
            (row.uuid, row.name) = ([at + 1; 16], "NVIDIA H100 80GB HBM3".to_owned());
            (row.limbo, row.unmanaged) = (0, 0);
            row
        })
        .collect();
    node.excess.clear();
    node
}

fn shows(node: Snapshot) -> Model {
    let mut all = model();
    all.take(node, NOW);
    all
}

/// The lines of the screen and the colour of the first letter of each.
fn coloured(model: &mut Model, (width, height): (u16, u16)) -> Vec<(String, Color)> {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw::draw(model, &mut buffer);
    let lines = lines(&buffer).into_iter();
    let at = |y: usize| u16::try_from(y).expect("a line of the screen");
    let line = |(y, text): (usize, String)| (text, buffer[(0, at(y))].fg);
    lines.enumerate().map(line).collect()
}

/// The line of this GPU.
fn line_of(lines: &[(String, Color)], gpu: usize) -> (String, Color) {
    let begin = format!("GPU {gpu} ");
    let mut found = lines.iter().filter(|(text, _)| text.starts_with(&begin));
    found.next().cloned().expect("it has a line")
}

#[test]
fn a_lost_gpu_is_told_from_a_free_one_at_any_width() {
    for (many, width) in [(8, 60), (8, 80), (8, 100), (8, 200), (1, 60), (1, 100)] {
        let mut node = of_gpus(many);
        let last = usize::from(many) - 1;
        node.devices[last].capabilities.push("lost".to_owned());
        let mut all = shows(node);
        let lines = coloured(&mut all, (width, 50));
        let (text, colour) = line_of(&lines, last);
        assert!(text.contains("  lost"), "{width}: {text}");
        assert_eq!(colour, Color::Yellow, "{text}");
        for other in 0..last {
            let (text, colour) = line_of(&lines, other);
            assert!(!text.contains("lost"), "{text}");
            assert_eq!(colour, Color::Reset, "{text}");
        }
    }
}

#[test]
fn the_state_of_one_of_many_gpus_comes_before_its_bar() {
    let mut node = of_gpus(8);
    node.sharing.push(SharingRow {
        device: node.devices[0].uuid,
        regime: Regime::Together,
        changes: 0,
        lately: 0,
        off: None,
    });
    let mut all = shows(node);
    let text = |all: &mut Model, width| line_of(&coloured(all, (width, 50)), 0).0;
    // At 80 columns the end of the state is cut.
    let narrow = text(&mut all, 80);
    assert!(narrow.ends_with("of 80G  together"), "{narrow}");
    let fits = text(&mut all, 104);
    assert!(fits.ends_with("  together  util 93%  412W  61C"), "{fits}");
    let wide = text(&mut all, 160);
    let (state, bar) = wide.split_once("61C  [").expect("a bar");
    assert!(state.contains("together") && bar.ends_with(']'), "{wide}");
    assert_eq!(bar.len(), 41, "{wide}");
    // Where there is room for a short bar, it is whole.
    let short = text(&mut all, 120);
    assert!(
        short.ends_with(']') && short.chars().count() == 120,
        "{short}"
    );
}

#[test]
fn many_gpus_leave_room_for_the_tenants() {
    for (many, height) in [(56, 50), (19, 24), (56, 12)] {
        let mut node = of_gpus(many);
        let last = usize::from(many) - 1;
        // Of the tenants one is on the last GPU, and one GPU is lost.
        node.tenants[1].device = node.devices[last].uuid;
        node.devices[last - 2].capabilities.push("lost".to_owned());
        let mut all = shows(node);
        let lines = coloured(&mut all, (100, height));
        let gpus = lines.iter().filter(|(text, _)| text.starts_with("GPU "));
        let gpus = gpus.count();
        assert!(gpus < usize::from(height) / 3, "{gpus} of {height}");
        let more = format!("{} more GPUs", usize::from(many) - gpus);
        assert!(lines.iter().any(|(text, _)| *text == more), "{lines:?}");
        let is_row = |(text, _): &(String, Color)| text.starts_with("serve ");
        assert!(lines.iter().any(is_row), "{lines:?}");
        for gpu in [0, last - 2, last] {
            line_of(&lines, gpu);
        }
    }
    // Those that fit are all there.
    let lines = coloured(&mut shows(of_gpus(8)), (100, 24));
    line_of(&lines, 7);
    assert!(!lines.iter().any(|(text, _)| text.contains("more GPU")));
    // A lost GPU is told also where there is no line for it.
    let mut node = of_gpus(9);
    for row in &mut node.devices {
        row.capabilities.push("lost".to_owned());
    }
    let lines = coloured(&mut shows(node), (100, 24));
    let told = "2 more GPUs, 2 lost";
    assert!(lines.iter().any(|(text, _)| text == told), "{lines:?}");
}

#[test]
fn a_tenant_alone_is_named_as_at_work_only_while_it_works() {
    let now = |change: fn(&mut Snapshot)| {
        let mut node = sample::node();
        node.shares[0].state = ShareState::Free;
        change(&mut node);
        screen(&mut shows(node), (100, 24)).contains("now serve")
    };
    assert!(now(|_| {}));
    let idle = |node: &mut Snapshot| {
        node.tenants[0].processes[0].state = ProcessState::Idle { for_ms: 60_000 };
    };
    assert!(!now(idle));
    assert!(now(|node| {
        let mut next = node.tenants[0].processes[0].clone();
        next.pid += 1;
        node.tenants[0].processes.push(next);
        node.tenants[0].processes[0].state = ProcessState::Idle { for_ms: 60_000 };
    }));
    // Its memory is off the GPU.
    assert!(!now(|node| node.residency[0].place = Place::Out));
    assert!(!now(|node| node.tenants.clear()));
}
