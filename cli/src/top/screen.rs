//! The terminal: raw, on its second screen, and as it was before when this is dropped.

use super::keys::{Key, parse};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use std::fmt::Write as _;
use std::io::{self, Read, Stdin, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::time::Duration;
use terminal_size::terminal_size_of;

/// See the module's page.
pub(super) struct Screen {
    before: Termios,
    /// Colours are left out with `NO_COLOR`.
    colours: bool,
    text: String,
}

impl Screen {
    /// Takes the terminal. An error if standard input is none.
    pub(super) fn open() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(stdin(), SetArg::TCSAFLUSH, &raw)?;
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let mut screen = Self {
            before,
            colours: !no_colour,
            text: "\x1b[?1049h\x1b[2J\x1b[?25l".to_owned(),
        };
        screen.flush()?;
        Ok(screen)
    }

    /// The escape sequence that sets a cell's style.
    fn style(&self, cell: &Cell) -> String {
        let mut text = "\x1b[0".to_owned();
        let known = [
            (Modifier::BOLD, ";1"),
            (Modifier::DIM, ";2"),
            (Modifier::UNDERLINED, ";4"),
            (Modifier::REVERSED, ";7"),
        ];
        let set = known
            .iter()
            .filter(|(modifier, _)| cell.modifier.contains(*modifier));
        text.extend(set.map(|(_, code)| *code));
        if self.colours && cell.fg == Color::Yellow {
            text.push_str(";33");
        }
        text.push('m');
        text
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may have gone.
        self.text = "\x1b[0m\x1b[?25h\x1b[?1049l".to_owned();
        let _ = self.flush();
        let _ = tcsetattr(stdin(), SetArg::TCSAFLUSH, &self.before);
    }
}

impl Backend for Screen {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let (mut next, mut style) = (None, String::new());
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                let _ = write!(self.text, "\x1b[{};{}H", y + 1, x + 1);
            }
            let own = self.style(cell);
            if own != style {
                self.text.push_str(&own);
                style = own;
            }
            self.text.push_str(cell.symbol());
            next = Some((x + 1, y));
        }
        self.text.push_str("\x1b[0m");
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.text.push_str("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.text.push_str("\x1b[?25h");
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        // It is hidden, and nothing is inserted at it.
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        let _ = write!(self.text, "\x1b[{};{}H", y + 1, x + 1);
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.text.push_str("\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.text.push_str(match region {
            ClearType::All => "\x1b[2J",
            ClearType::AfterCursor => "\x1b[J",
            ClearType::BeforeCursor => "\x1b[1J",
            ClearType::CurrentLine => "\x1b[2K",
            ClearType::UntilNewLine => "\x1b[K",
        });
        Ok(())
    }

    fn size(&self) -> io::Result<Size> {
        // A terminal may not say, as a pseudo terminal that nobody has sized.
        let size = terminal_size_of(stdout());
        Ok(size.map_or(Size::new(80, 24), |(width, height)| {
            Size::new(width.0, height.0)
        }))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        let columns_rows = self.size()?;
        let pixels = Size::ZERO;
        Ok(WindowSize {
            columns_rows,
            pixels,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut out = stdout().lock();
        out.write_all(self.text.as_bytes())?;
        self.text.clear();
        out.flush()
    }
}

/// Keys, and the signals by which a terminal is taken away or resized.
pub(super) struct Input {
    stdin: Stdin,
    signals: SignalFd,
}

/// An input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    Keys(Vec<Key>),
    /// The terminal has another size.
    Resized,
    /// It is time to leave.
    Leave,
    Nothing,
}

impl Input {
    /// From now on; before any other thread starts.
    pub(super) fn open() -> io::Result<Self> {
        let mut set = SigSet::empty();
        for signal in [
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGINT,
            Signal::SIGWINCH,
        ] {
            set.add(signal);
        }
        set.thread_block()?;
        Ok(Self {
            stdin: stdin(),
            signals: SignalFd::new(&set)?,
        })
    }

    /// Waits for what comes, for a time at most.
    pub(super) fn wait(&mut self, time: Duration) -> io::Result<Came> {
        let ready = {
            let mut both = [
                PollFd::new(self.stdin.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            ];
            let millis = u16::try_from(time.as_millis()).unwrap_or(u16::MAX);
            match poll(&mut both, PollTimeout::from(millis)) {
                Err(nix::errno::Errno::EINTR) | Ok(0) => return Ok(Came::Nothing),
                Err(error) => return Err(error.into()),
                Ok(_) => both.map(|one| one.any().unwrap_or(true)),
            }
        };
        if ready[1] {
            let signal = self.signals.read_signal()?.map(|info| info.ssi_signo);
            return Ok(match signal.and_then(|number| i32::try_from(number).ok()) {
                Some(number) if number == Signal::SIGWINCH as i32 => Came::Resized,
                Some(_) => Came::Leave,
                None => Came::Nothing,
            });
        }
        let mut bytes = [0; 256];
        match self.stdin.read(&mut bytes)? {
            0 => Ok(Came::Leave),
            read => Ok(Came::Keys(parse(&bytes[..read]))),
        }
    }
}
