//! `gpushared`: the node daemon.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gpushare_journal::Readers;
use gpushare_protocol::units::Bytes;
use gpushared::config::file::is_absent;
use gpushared::config::{Flags, given_amount, given_amount_or_nothing};
use gpushared::devices::{MODULE, Nvml, misfit};
use gpushared::guard::Among;
use gpushared::journal::{self, Files, Journal};
use gpushared::log::Log;
use gpushared::log_budget::{LogBudget, Messages};
use gpushared::log_queue::{LogQueue, Rest};
use gpushared::node::Settings;
use gpushared::peer;
use gpushared::server::{Folder, Reload, Server, Start, TICK};
use gpushared::spill::SpillFolder;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::geteuid;

/// Accounts for the node's GPU memory: guarantees requests, lends unused memory, resolves
/// collisions.
#[derive(Debug, Parser)]
#[command(version = gpushare_protocol::build!())]
struct Args {
    /// Settings and defaults; read again on SIGHUP [default: /etc/gpushare/config.toml, if it is
    /// there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the settings, say what is wrong or that all is well, and start nothing
    #[arg(long)]
    check_config: bool,
    /// Whether the driver's library fits the module that the kernel has loaded (else status 69);
    /// start nothing
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = MODULE)]
    check_driver: Option<PathBuf>,
    /// Where sockets and registrations lie [default: /run/gpushare]
    #[arg(long, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// Where the journal of events lies, which outlives the daemon [default: /var/lib/gpushare, or
    /// `state` in the runtime folder where one is given]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// The socket of journald, for the fields of events where standard error leads there
    #[arg(long, value_name = "SOCKET", hide = true, default_value = journal::SOCKET)]
    journald: PathBuf,
    /// Serve one user only: sockets that others cannot reach
    #[arg(long)]
    private: bool,
    /// Leave when the last tenant and command have gone; if none has come yet, when standard
    /// input (a pipe) is hung up
    #[arg(long)]
    transient: bool,
    /// With --private: the devices are this user's alone, as software GPUs are; other users'
    /// daemons have others, whatever their UUIDs
    #[arg(long)]
    own_devices: bool,
    /// With --transient: remove the runtime folder when leaving
    #[arg(long)]
    sweep: bool,
    /// Write the log to this file, and to a new one when it is full; the one before is kept
    /// [default: standard error]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Bytes of each device that are never given out, such as 512MiB
    #[arg(long, value_name = "SIZE", value_parser = given_amount_or_nothing)]
    reserve: Option<Bytes>,
    /// Print the CDI specification of the classes in the configuration, and end
    #[arg(long, hide = true)]
    print_cdi: bool,
    /// Treat every device as if it had at most this much memory
    #[arg(long, value_name = "SIZE", value_parser = given_amount)]
    capacity: Option<Bytes>,
}

impl Args {
    /// Those that take the place of settings of the same names.
    fn flags(&self) -> Flags {
        let Self {
            reserve, capacity, ..
        } = *self;
        Flags { reserve, capacity }
    }
}

/// The exit status for wrong settings, so that the starter can tell them from a machine on which no
/// daemon can run: `EX_CONFIG` of sysexits.h.
const WRONG_SETTINGS: u8 = 78;
/// The exit status where the driver waits for a boot: `EX_UNAVAILABLE`.
const WAITS_FOR_BOOT: u8 = 69;
/// The exit status when another daemon owns the folder: `EX_TEMPFAIL`.
const TAKEN: u8 = 75;

/// How long a daemon that cannot run here waits before it ends, where a service manager starts it
/// again at once. A machine may have no driver for days.
const PAUSE: Duration = Duration::from_secs(10);

/// Why it does not serve.
enum Failed {
    /// The settings are wrong.
    Settings(String),
    /// Another daemon has the folder.
    Taken(String),
    /// It cannot run here.
    Here(String),
    /// It has served, and cannot go on.
    Late(String),
}

impl From<String> for Failed {
    fn from(error: String) -> Self {
        Self::Here(error)
    }
}

/// A panic of a thread other than the first ends that thread alone. A build for tests ends with it,
/// so that no test passes over one.
fn end_with_panics() {
    if cfg!(debug_assertions) {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            told(panic);
            std::process::abort();
        }));
    }
}

fn main() -> ExitCode {
    end_with_panics();
    let args = Args::parse();
    if args.check_config {
        return check_config(&Source {
            flags: args.flags(),
            named: args.config,
            private: args.private,
        });
    }
    if let Some(why) = args.check_driver.as_deref().map(misfit) {
        return why.map_or(ExitCode::SUCCESS, |why| {
            let _ = writeln!(std::io::stderr(), "{why}");
            ExitCode::from(WAITS_FOR_BOOT)
        });
    }
    let is_command = args.print_cdi;
    // A private daemon inherits the socket of the service whose program started it.
    let is_managed = !args.private && std::env::var_os("NOTIFY_SOCKET").is_some();
    // With wrong settings the unit is not started again, and a daemon that served is followed at
    // once.
    let mut rest = None;
    let (status, error, waits) = match run(args, &mut rest) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failed::Here(error)) => (ExitCode::FAILURE, error, is_managed),
        Err(Failed::Taken(error)) => (ExitCode::from(TAKEN), error, is_managed),
        Err(Failed::Settings(error)) => (ExitCode::from(WRONG_SETTINGS), error, false),
        Err(Failed::Late(error)) => (ExitCode::FAILURE, error, false),
    };
    match is_command {
        // A command has no log.
        true => drop(writeln!(std::io::stderr(), "gpushare: {error}")),
        false => tracing::error!("{error}"),
    }
    if waits && !is_command {
        pause();
    }
    status
}

/// Waits before it ends, unless told to stop.
fn pause() {
    let Ok(stop) = stop_signals() else {
        return;
    };
    tracing::info!("ends in {} s, to be started again", PAUSE.as_secs());
    let timeout = PollTimeout::try_from(PAUSE).unwrap_or(PollTimeout::ZERO);
    let _ = poll(&mut [PollFd::new(stop.as_fd(), PollFlags::POLLIN)], timeout);
}

/// `rest` is the log's, to be dropped at the end.
fn run(args: Args, rest: &mut Option<Rest>) -> Result<(), Failed> {
    if args.print_cdi {
        return print_cdi(&args);
    }
    // Before any thread is started.
    let files_end = gpushared::limits::outlive_file_sizes();
    *rest = Some(start_log(args.log.as_deref())?);
    if let Err(error) = files_end {
        tracing::warn!(%error, "a limit on the size of files (ulimit -f) may end this daemon");
    }
    if let Err(error) = gpushared::limits::raise_descriptors() {
        tracing::warn!(%error, "only few clients can connect at once");
    }
    let stop = stop_signals().map_err(|error| format!("cannot take signals: {error}"))?;
    let source = Source {
        flags: args.flags(),
        named: args.config,
        private: args.private,
    };
    let reload = reload(source.clone())?;
    let state = args.state_dir.unwrap_or_else(|| match &args.runtime_dir {
        None => PathBuf::from("/var/lib/gpushare"),
        Some(given) => given.join("state"),
    });
    let file = source.file();
    let base = Settings {
        no_host: match &file {
            Some(file) => gpushared::config::no_host_in(file),
            None => gpushared::config::no_host_without(source.usual()),
        },
        guard: args.private.then_some(match args.own_devices {
            true => Among::OwnOnly,
            false => Among::AllUsers,
        }),
        ..Settings::default()
    };
    let root = args.runtime_dir.unwrap_or_else(|| PathBuf::from(RUNTIME));
    let at = root.display().to_string();
    let mut folder = Folder::open(root, args.private).map_err(|error| {
        let instead = match args.private {
            true => "",
            false => "; run it as root, or give --private and --runtime-dir DIR",
        };
        format!("cannot use the runtime folder: {error}{instead}")
    })?;
    folder.claim().map_err(|error| {
        let text = format!("cannot listen in {at}: {error}");
        match error.kind() {
            ErrorKind::AddrInUse => Failed::Taken(text),
            _ => Failed::Here(text),
        }
    })?;
    if let Some(why) = peer::sees_no_others().filter(|_| !args.private) {
        tracing::error!("clients will be refused: {why}");
    }
    let (control, made) = (folder.control(), folder.made());
    let readers = match args.private {
        true => Readers::Owner,
        false => Readers::Everybody,
    };
    let begin = || -> Result<Server, Failed> {
        let settings = match file {
            Some(file) => {
                let settings = source.settings(&file, base).map_err(Failed::Settings)?;
                tracing::info!(file = %file.display(), "settings are read");
                settings
            }
            None => {
                tracing::info!("no settings are read: {}", source.none());
                source.flags.over(base).map_err(Failed::Settings)?
            }
        };
        if !folder.is_private() {
            let told = folder.tell_hooks(&settings.containers);
            if let Err(error) = told {
                // It is tried again once this daemon serves.
                tracing::error!(%error, "hooks are not told whether limits are mandatory");
            }
        }
        let devices = Nvml::load().map_err(|error| error.to_string())?;
        let files = Files::new(state, settings.journal, readers);
        let journal = Journal::start(vec![Box::new(files), journal::log(&args.journald)])
            .map_err(|error| format!("cannot start the journal's thread: {error}"))?;
        let start = Start {
            folder,
            settings,
            tick: TICK,
            stop,
            reload: Some(reload),
            transient: args.transient,
            starter: starter(args.transient)
                .map_err(|error| format!("cannot use standard input: {error}"))?,
            journal: Some(journal),
        };
        Ok(Server::new(start, Box::new(devices))?)
    };
    let mut server = match begin() {
        Ok(server) => server,
        Err(error) => {
            made.undo();
            return Err(error);
        }
    };
    tracing::info!(socket = %control.display(), "serving");
    server
        .run()
        .map_err(|error| Failed::Late(format!("cannot go on: {error}")))?;
    if args.sweep && args.transient {
        server.sweep();
    }
    Ok(())
}

/// Reads the settings as a start would. Root, who starts the machine's daemon, hears also of a
/// spill folder that is there and that a start would refuse.
fn check_config(source: &Source) -> ExitCode {
    let file = source.file();
    let (status, text) = match &file {
        None => (
            ExitCode::SUCCESS,
            format!("{}: the defaults hold", source.none()),
        ),
        Some(file) => match source.settings(file, Settings::default()) {
            Ok(settings) => {
                let is_machines = !source.private && geteuid().is_root();
                let spill = settings.spill.filter(|_| is_machines);
                match spill.and_then(|path| SpillFolder::refusal(&path)) {
                    None => (ExitCode::SUCCESS, format!("{} is accepted", file.display())),
                    Some(why) => (ExitCode::from(WRONG_SETTINGS), why),
                }
            }
            Err(error) => (ExitCode::from(WRONG_SETTINGS), error),
        },
    };
    // A reader that has gone away has the status.
    let _ = match status == ExitCode::SUCCESS {
        true => writeln!(std::io::stdout(), "{text}"),
        false => writeln!(std::io::stderr(), "{}", text.trim_end()),
    };
    status
}

/// Prints what the daemon would keep current in `[containers] cdi`.
fn print_cdi(args: &Args) -> Result<(), Failed> {
    let config = args.config.clone().unwrap_or_else(|| PathBuf::from(CONFIG));
    if args.config.is_none() && is_absent(&config) {
        return Err(Failed::Settings(format!(
            "there is no {CONFIG}, which would have the classes; name another file with --config FILE \
             (share/doc/gpushare/config.toml of the package is a sample)"
        )));
    }
    let settings =
        settings_of(&config, Settings::default(), args.flags()).map_err(Failed::Settings)?;
    if settings.containers.classes.is_empty() {
        return Err(Failed::Settings(format!(
            "{} has no class ([classes.NAME]), and engines refuse a specification without one",
            config.display()
        )));
    }
    let root = args.runtime_dir.clone();
    let root = root.unwrap_or_else(|| PathBuf::from(RUNTIME));
    let text = gpushared::server::cdi(&settings.containers, &root).map_err(Failed::Here)?;
    let written = writeln!(std::io::stdout(), "{text}");
    written.map_err(|error| Failed::Here(format!("cannot print: {error}")))
}

/// Says what happens from now on where it is to be said.
fn start_log(file: Option<&Path>) -> Result<Rest, String> {
    let told = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO);
    let failed = |error: std::io::Error| format!("cannot start the log: {error}");
    let budget = LogBudget::default();
    let started = |log: Box<dyn Write + Send>, with_priorities| {
        let (queue, rest) =
            LogQueue::start(log, budget.clone(), with_priorities).map_err(failed)?;
        let messages = Messages {
            queue,
            budget: budget.clone(),
            with_priorities,
        };
        Ok::<_, String>((messages, rest))
    };
    let (messages, rest, ansi) = match file {
        None => {
            // Not by the library's handle: its lock would be held while the reader does not read.
            let errors = std::io::stderr().as_fd().try_clone_to_owned();
            let errors = File::from(errors.map_err(failed)?);
            let ansi = errors.is_terminal();
            let (messages, rest) = started(Box::new(errors), journal::is_attached())?;
            (messages, rest, ansi)
        }
        Some(file) => {
            let log = Log::open(file)
                .map_err(|error| format!("cannot open {}: {error}", file.display()))?;
            let (messages, rest) = started(Box::new(log), false)?;
            (messages, rest, false)
        }
    };
    told.with_ansi(ansi).with_writer(messages).init();
    Ok(rest)
}

/// Standard input, if it is a pipe. The starter of a transient daemon holds the other end until its
/// clients have connected.
fn starter(transient: bool) -> std::io::Result<Option<OwnedFd>> {
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    let is_pipe = File::from(input.try_clone()?)
        .metadata()?
        .file_type()
        .is_fifo();
    Ok((transient && is_pipe).then_some(input))
}

/// The runtime folder of a machine's daemon.
const RUNTIME: &str = "/run/gpushare";
/// Where the file of a machine's daemon is.
const CONFIG: &str = "/etc/gpushare/config.toml";

/// Where the settings come from: the file that `--config` names. Where there is none named, that of
/// the machine's daemon is [`CONFIG`], and a private daemon has none.
#[derive(Clone, Debug)]
struct Source {
    flags: Flags,
    named: Option<PathBuf>,
    private: bool,
}

impl Source {
    /// The file to read now. The default one may come and go while the daemon runs.
    fn file(&self) -> Option<PathBuf> {
        let default =
            || Some(PathBuf::from(CONFIG)).filter(|file| !self.private && !is_absent(file));
        self.named.clone().or_else(default)
    }

    /// The settings of the file, with the flags in place of its own.
    fn settings(&self, file: &Path, base: Settings) -> Result<Settings, String> {
        settings_of(file, base, self.flags)
    }

    /// The file that is read where none is named; a private daemon has none.
    fn usual(&self) -> Option<&'static Path> {
        (!self.private).then_some(Path::new(CONFIG))
    }

    /// Why there is no file.
    fn none(&self) -> String {
        match self.private {
            true => "a private daemon reads no file but that of --config".to_owned(),
            false => format!("there is no {CONFIG}"),
        }
    }
}

fn settings_of(file: &Path, base: Settings, flags: Flags) -> Result<Settings, String> {
    let text = gpushared::config::file::text(file)?;
    gpushared::config::read_under(&text, base, flags)
        .map_err(|error| format!("{}: {error}", file.display()))
}

/// Reads the file again at SIGHUP. Without a file the signal is taken too: its default action would
/// end the daemon.
fn reload(source: Source) -> Result<Reload, String> {
    let failed = |error: nix::errno::Errno| format!("cannot take SIGHUP: {error}");
    let hang_up = signals(&[Signal::SIGHUP]).map_err(failed)?;
    let bell = hang_up
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| error.to_string())?;
    let read = move || {
        // Several signals that arrived meanwhile count as one.
        while let Ok(Some(_)) = hang_up.read_signal() {}
        let Some(file) = source.file() else {
            tracing::warn!("{}: the settings stay as they are", source.none());
            return Ok(None);
        };
        let base = Settings {
            no_host: gpushared::config::no_host_in(&file),
            ..Settings::default()
        };
        source.settings(&file, base).map(Some)
    };
    Ok(Reload {
        bell,
        read: Box::new(read),
    })
}

/// A descriptor that tells of these signals instead of their doing anything.
fn signals(which: &[Signal]) -> nix::Result<SignalFd> {
    let set: SigSet = which.iter().copied().collect();
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// A descriptor that tells of SIGTERM and SIGINT.
fn stop_signals() -> nix::Result<OwnedFd> {
    let fd = signals(&[Signal::SIGTERM, Signal::SIGINT])?;
    fd.as_fd()
        .try_clone_to_owned()
        .map_err(|_| nix::errno::Errno::EMFILE)
}
