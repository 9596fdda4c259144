//! The text of docs/HOOKS.md.

use std::collections::BTreeMap;
use std::fmt::Debug;

use gpushare_cuda_abi::symbols::{
    CUDA, Charge, Class, CudaSymbol, Gate, NVML, NvmlClass, NvmlSymbol, PerThread, REASONS, View,
};

const INTRODUCTION: &str = include_str!("introduction.md");

/// The whole page.
pub(crate) fn hooks() -> String {
    let counts = [
        ("FUNCTIONS", CUDA.len()),
        ("HOOKED", CUDA.iter().filter(|row| row.hooked()).count()),
        (
            "TWINS",
            CUDA.iter()
                .filter(|row| row.thread == PerThread::IsTwin)
                .count(),
        ),
        ("NVML_FUNCTIONS", NVML.len()),
        (
            "NVML_HOOKED",
            NVML.iter().filter(|row| row.hooked()).count(),
        ),
    ];
    let mut page = INTRODUCTION.to_owned();
    for (name, count) in counts {
        page = page.replace(&format!("{{{name}}}"), &count.to_string());
    }
    page + &reasons() + &cuda() + &nvml()
}

fn reasons() -> String {
    let mut out =
        "## Why a function is left alone\n\n| code | column | why |\n|---|---|---|\n".to_owned();
    for reason in REASONS {
        out += &format!(
            "| `{}` | {} | {} |\n",
            reason.code, reason.column, reason.sentence
        );
    }
    out
}

/// One section a class, one row a function with all its variants: they are answered alike.
fn cuda() -> String {
    let mut out = "\n## The driver\n".to_owned();
    let mut classes: BTreeMap<Class, Vec<&CudaSymbol>> = BTreeMap::new();
    for row in CUDA {
        classes.entry(row.class).or_default().push(row);
    }
    for (class, rows) in classes {
        out += &format!("\n### {}\n\n{}\n\n", class_title(class), dashes(&rows));
        out += "| function | charge | gate | view |\n|---|---|---|---|\n";
        let mut functions: BTreeMap<&str, Vec<&CudaSymbol>> = BTreeMap::new();
        for row in rows {
            functions.entry(row.base).or_default().push(row);
        }
        for variants in functions.values() {
            let names: Vec<String> = variants
                .iter()
                .filter(|row| row.thread != PerThread::IsTwin)
                .map(|row| spelled(row))
                .collect();
            let row = variants[0];
            out += &format!(
                "| {} | {} | {} | {} |\n",
                names.join(", "),
                charge(row.charge),
                gate(row.gate),
                view(row.view)
            );
        }
    }
    out
}

/// The meaning of a dash in the table of one class: all dashes in a column have the same reason.
fn dashes(rows: &[&CudaSymbol]) -> String {
    let charge = rows.iter().find_map(|row| {
        if let Charge::No(code) = row.charge {
            Some(("charge", code))
        } else {
            None
        }
    });
    let gate = rows.iter().find_map(|row| {
        if let Gate::No(code) = row.gate {
            Some(("gate", code))
        } else {
            None
        }
    });
    let view = rows.iter().find_map(|row| {
        if let View::No(code) = row.view {
            Some(("view", code))
        } else {
            None
        }
    });
    let codes = [charge, gate, view]
        .into_iter()
        .flatten()
        .map(|(column, code)| format!("{column} `{code}`"));
    format!("– stands for {}.", codes.collect::<Vec<_>>().join(", "))
}

/// `name`, with a mark where a per-thread twin stands beside it.
fn spelled(row: &CudaSymbol) -> String {
    let twin = if matches!(row.thread, PerThread::Twin(_)) {
        " ⁺"
    } else {
        ""
    };
    format!("`{}`{twin}", row.name)
}

fn nvml() -> String {
    let mut out = "\n## NVML\n".to_owned();
    let mut classes: BTreeMap<NvmlClass, Vec<&NvmlSymbol>> = BTreeMap::new();
    for row in NVML {
        classes.entry(row.class).or_default().push(row);
    }
    for (class, rows) in classes {
        out += &format!("\n### {}\n\n", nvml_title(class));
        let hooked: Vec<_> = rows.iter().filter(|row| row.hooked()).collect();
        if !hooked.is_empty() {
            out += "| function | view |\n|---|---|\n";
            for row in hooked {
                out += &format!("| `{}` | {} |\n", row.name, view(row.view));
            }
            out += "\n";
        }
        let mut left: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for row in rows {
            if let View::No(code) = row.view {
                left.entry(code)
                    .or_default()
                    .push(format!("`{}`", row.name));
            }
        }
        for (code, names) in left {
            out += &filled(&format!("Left alone (`{code}`): {}.", names.join(", ")));
        }
    }
    out
}

/// A paragraph in lines of at most 100 columns.
fn filled(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        if let Some(line) = lines.last_mut()
            && (line.is_empty() || line.chars().count() + 1 + word.chars().count() <= 100)
        {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

/// A column's word, or a dash where the function is left alone.
fn word(answer: impl Debug, left_alone: bool) -> String {
    if left_alone {
        "–".to_owned()
    } else {
        format!("{answer:?}").to_lowercase()
    }
}

fn charge(answer: Charge) -> String {
    bold(word(answer, matches!(answer, Charge::No(_))))
}

/// Bold where it is done today; the rest is a plan.
fn gate(answer: Gate) -> String {
    let word = word(answer, matches!(answer, Gate::No(_)));
    if answer.acts() { bold(word) } else { word }
}

fn view(answer: View) -> String {
    bold(word(answer, matches!(answer, View::No(_))))
}

fn bold(word: String) -> String {
    if word == "–" {
        word
    } else {
        format!("**{word}**")
    }
}

fn class_title(class: Class) -> &'static str {
    match class {
        Class::Alloc => "Making memory",
        Class::Free => "Giving memory back",
        Class::Import => "Memory and semaphores of other processes and other APIs",
        Class::Map => "Address space, mappings, access",
        Class::Copy => "Copies, memsets, prefetches",
        Class::Launch => "Work for the device",
        Class::Graph => "Graphs",
        Class::Stream => "Streams",
        Class::Event => "Events",
        Class::Ctx => "Contexts",
        Class::Module => "Modules, libraries, functions, the linker",
        Class::Info => "Questions, start-up, symbol lookup",
        Class::Checkpoint => "Saving and restoring processes",
        Class::Profiler => "The profiler switch (cudaProfiler.h)",
        Class::Other => "Everything else",
    }
}

fn nvml_title(class: NvmlClass) -> &'static str {
    match class {
        NvmlClass::Memory => "Memory of a device",
        NvmlClass::Processes => "Processes on a device",
        NvmlClass::Utilisation => "How busy a device is",
        NvmlClass::Identity => "Which devices there are",
        NvmlClass::System => "The library and the node",
        NvmlClass::Vgpu => "Virtual GPUs",
        NvmlClass::Other => "Everything else of NVML",
    }
}
