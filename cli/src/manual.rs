//! Completions and manual pages, made from the arguments themselves.

use crate::args::{Args, Completions, Man};
use crate::failure::Failure;
use crate::output;
use clap::{Command, CommandFactory};
use std::fs;
use std::process::ExitCode;

/// The command's name.
const NAME: &str = "gpushare";

/// Prints a shell's completions.
pub(crate) fn completions(arguments: &Completions) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Args::command(), NAME, &mut text);
    output::data(String::from_utf8_lossy(&text).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for the command and one for each command below it.
pub(crate) fn man(arguments: &Man) -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| {
        Failure::ours(format!(
            "cannot write to {}: {error}",
            arguments.folder.display()
        ))
    };
    fs::create_dir_all(&arguments.folder).map_err(failed)?;
    for (name, page) in pages().map_err(failed)? {
        fs::write(arguments.folder.join(name), page).map_err(failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Each page with its file's name.
fn pages() -> std::io::Result<Vec<(String, Vec<u8>)>> {
    // `help` is each command's own way to what the pages say, and has no page.
    let mut command = Args::command().disable_help_subcommand(true);
    // It gives each command its full name: `gpushare-bench-share`, and the words that are typed.
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages)?;
    Ok(pages)
}

/// The page of a command, and the pages of those below it.
fn add_pages(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> std::io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let man = clap_mangen::Man::new(command.clone()).source(format!("{NAME} {version}"));
    let mut page = Vec::new();
    man.render(&mut page)?;
    pages.push((man.get_filename(), page));
    let mut below = command.get_subcommands().filter(|one| !one.is_hide_set());
    below.try_for_each(|one| add_pages(one, pages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_tells_no_defaults_of_the_flags_that_it_leaves_as_they_are() {
        let help = |name: &str| {
            let mut command = Args::command();
            command.build();
            let of = command.find_subcommand_mut(name).unwrap();
            of.render_long_help().to_string()
        };
        let (run, set) = (help("run"), help("set"));
        for told in ["--priority", "0 to 1000", "never, swap, kill"] {
            assert!(run.contains(told) && set.contains(told), "{told} in {set}");
        }
        assert!(run.contains("[default: 500]"), "{run}");
        assert!(!set.contains("[default"), "{set}");
    }

    #[test]
    fn every_visible_command_has_a_page_with_its_flags() {
        let pages = pages().unwrap();
        let page = |name: &str| {
            let found = pages.iter().find(|(known, _)| known == name);
            found.map(|(_, page)| String::from_utf8_lossy(page).replace('\\', ""))
        };
        let run = page("gpushare-run.1").unwrap();
        assert!(
            run.contains("--mem-limit") && run.contains("gpushare run"),
            "{run}"
        );
        for name in [
            "gpushare.1",
            "gpushare-ps.1",
            "gpushare-why.1",
            "gpushare-doctor.1",
        ] {
            assert!(page(name).is_some(), "{name}");
        }
        let share = page("gpushare-bench-share.1").unwrap();
        for text in ["--compare-bare", "gpushare bench share", "--tenant"] {
            assert!(share.contains(text), "{text}: {share}");
        }
        assert!(page("gpushare-bench-swap.1").unwrap().contains("--samples"));
        assert!(page("gpushare-cdi-generate.1").is_some());
        for hidden in ["gpushare-man.1", "gpushare-bench-worker.1"] {
            assert!(page(hidden).is_none(), "{hidden}");
        }
        let mut names: Vec<_> = pages.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), pages.len());
    }

    #[test]
    fn every_page_that_a_page_names_is_written() {
        let pages = pages().unwrap();
        let mut named = 0;
        for (file, page) in &pages {
            let page = String::from_utf8_lossy(page).replace('\\', "");
            let names = page.split_whitespace().filter_map(|word| {
                let name = word.strip_suffix("(1)")?;
                name.starts_with(NAME).then_some(name)
            });
            for name in names {
                let other = format!("{name}.1");
                assert!(
                    pages.iter().any(|(known, _)| *known == other),
                    "{file}: {name}"
                );
                named += 1;
            }
        }
        assert!(named > 15, "{named}");
    }

    #[test]
    fn completions_know_every_visible_command() {
        for shell in [
            clap_complete::Shell::Bash,
            clap_complete::Shell::Zsh,
            clap_complete::Shell::Fish,
        ] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), NAME, &mut text);
            let text = String::from_utf8_lossy(&text);
            for word in ["doctor", "why", "mem-limit", "memory-lost"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn the_help_of_set_offers_nothing_that_cannot_be_changed() {
        let help = |name: &str| {
            let mut command = Args::command();
            let one = command.find_subcommand_mut(name);
            one.unwrap().render_long_help().to_string()
        };
        let (run, set) = (help("run"), help("set"));
        assert!(run.contains("--oversubscribe <HOW>"), "{run}");
        assert!(!set.contains("--oversubscribe <HOW>"), "{set}");
        assert!(set.contains("--preemptible <WORST>"), "{set}");
    }

    #[test]
    fn help_fits_a_hundred_columns() {
        let mut many = 0;
        every(Args::command(), &mut |one| {
            for help in [one.render_long_help(), one.render_help()] {
                for line in help.to_string().lines() {
                    assert!(line.chars().count() <= 100, "{}: {line}", one.get_name());
                }
            }
            many += 1;
        });
        assert!(many > 20, "{many} commands, those of `bench` and `cdi` too");
    }

    /// A command with more flags than this has them under headings.
    const UNGROUPED: usize = 8;

    #[test]
    fn long_help_has_headings() {
        every(Args::command(), &mut |one| {
            let shown = one.get_opts().filter(|flag| !flag.is_hide_set());
            let (with, without): (Vec<_>, Vec<_>) =
                shown.partition(|flag| flag.get_help_heading().is_some());
            assert!(
                without.len() <= UNGROUPED,
                "{}: {} with a heading, {without:?}",
                one.get_name(),
                with.len()
            );
        });
    }

    #[test]
    fn a_negative_value_is_named_as_a_value() {
        // Names of files, tenants and kinds may follow a forgotten flag.
        let names = [
            "name", "gang", "tenant", "kind", "html", "perfetto", "to", "config",
        ];
        let (mut command, mut many) = (Args::command(), 0);
        command.build();
        for one in command
            .get_subcommands()
            .filter(|one| one.get_name() != "bench")
        {
            for flag in one.get_opts().filter(|flag| !flag.is_hide_set()) {
                let long = flag.get_long().unwrap_or_default();
                let takes = flag.get_action().takes_values() && !names.contains(&long);
                let is_named =
                    flag.is_allow_hyphen_values_set() || flag.is_allow_negative_numbers_set();
                let a_word = !flag.get_possible_values().is_empty();
                assert!(!takes || is_named || a_word, "{} --{long}", one.get_name());
                many += u32::from(takes);
            }
        }
        assert!(many > 20, "{many}");
    }

    /// Each command, and each below it, as it is for a wide terminal.
    fn every(command: Command, each: &mut impl FnMut(&mut Command)) {
        let mut command = command.term_width(100);
        command.build();
        each(&mut command);
        for one in command.get_subcommands() {
            every(one.clone(), each);
        }
    }
}
