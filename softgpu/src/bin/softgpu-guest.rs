//! `softgpu-guest`: a process on the simulated machine that executes commands from stdin, for tests
//! of memory shared between processes.
//!
//! One command a line, one answer a line, `ok …` or `err CODE`: `take PAGES`, `give` (the pages
//! taken last), `note DELTA`, `free`, `put BYTE`, `get` (all pages taken last: `ok same BYTE` or
//! `ok mixed`), `share`, `join ID`, `drop` (the last share), `fork` (a child that lives until stdin
//! closes), `spin` (takes and gives pages for ever).

use std::io::{BufRead, Write};
use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;
use softgpu::world::{Share, init, process};
use softgpu::{Device, Kind, PageRun, Result, va};

/// The pages and shares of a guest.
struct Guest {
    device: Arc<Device>,
    taken: Vec<Vec<PageRun>>,
    shares: Vec<Share>,
}

fn main() {
    let stdin = std::io::stdin();
    let mut guest = match init().and_then(|()| Ok(Arc::clone(process()?.device(0)?))) {
        Ok(device) => {
            say("ok");
            Guest {
                device,
                taken: Vec::new(),
                shares: Vec::new(),
            }
        }
        Err(error) => return say(&format!("err {}", error.0)),
    };
    for line in stdin.lock().lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split_whitespace().collect();
        match guest.obey(&words) {
            Ok(answer) => say(format!("ok {answer}").trim_end()),
            Err(error) => say(&format!("err {}", error.0)),
        }
    }
}

fn say(answer: &str) {
    let mut out = std::io::stdout();
    // An error means that the test no longer reads: it has ended.
    let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
}

impl Guest {
    fn obey(&mut self, words: &[&str]) -> Result<String> {
        let number = || {
            words
                .get(1)
                .and_then(|word| word.parse::<i64>().ok())
                .ok_or(CUresult::INVALID_VALUE)
        };
        match words.first().copied().unwrap_or_default() {
            "take" => {
                let runs = self.device.take(Kind::Linear, number()?.cast_unsigned())?;
                self.taken.push(runs);
            }
            "give" => self
                .device
                .give(&self.taken.pop().ok_or(CUresult::INVALID_VALUE)?),
            "note" => self.device.note(Kind::Linear, number()?),
            "free" => return Ok(self.device.free_bytes()?.to_string()),
            "put" => {
                let byte = u8::try_from(number()?).map_err(|_| CUresult::INVALID_VALUE)?;
                self.with_bytes(|bytes| bytes.fill(byte))?;
            }
            "get" => {
                return self.with_bytes(|bytes| {
                    let first = bytes[0];
                    if bytes.iter().all(|byte| *byte == first) {
                        format!("same {first}")
                    } else {
                        "mixed".to_owned()
                    }
                });
            }
            "share" => {
                let runs = self.taken.pop().ok_or(CUresult::INVALID_VALUE)?;
                self.shares.push(self.device.share(&runs, b"tag")?);
                return Ok(self.shares.last().map_or(0, Share::id).to_string());
            }
            "join" => self
                .shares
                .push(self.device.join(number()?.cast_unsigned())?),
            "drop" => drop(self.shares.pop()),
            "fork" => return Ok(fork_child().to_string()),
            "spin" => self.spin(),
            _ => return Err(CUresult::INVALID_VALUE),
        }
        Ok(String::new())
    }

    /// Maps the pages taken last and passes their bytes to `act`.
    #[allow(unsafe_code, reason = "looks at device memory through its mapping")]
    fn with_bytes<T>(&self, act: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        let runs = self.taken.last().ok_or(CUresult::INVALID_VALUE)?;
        let len: u64 = runs.iter().map(PageRun::bytes).sum();
        let at = va::reserve(len, 0)?;
        va::map(at, len, va::Backing::Pages(&self.device, runs), false)?;
        va::publish(at, va::Range::on_device(0, len))?;
        let bytes = va::bytes(at, len)?;
        let len = usize::try_from(len).map_err(|_| CUresult::INVALID_VALUE)?;
        // SAFETY: mapped and published above for this length, retracted below; no other code has
        // the address.
        let answer = act(unsafe { std::slice::from_raw_parts_mut(bytes, len) });
        va::retract(at);
        va::release(at, len as u64)?;
        Ok(answer)
    }

    /// Takes and gives pages, and counts requests and frees, until it is killed.
    fn spin(&self) -> ! {
        let mut round: u64 = 1;
        loop {
            let pages = round % 7 + 1;
            self.device.note(Kind::Linear, (pages << 21).cast_signed());
            if let Ok(runs) = self.device.take(Kind::Linear, pages) {
                if round.is_multiple_of(3) {
                    drop(self.device.share(&runs, b""));
                } else {
                    self.device.give(&runs);
                }
            }
            self.device.note(Kind::Linear, -(pages << 21).cast_signed());
            round += 1;
        }
    }
}

/// Forks a child that holds the inherited descriptors until its stdin closes or it is killed.
#[allow(unsafe_code, reason = "forks on purpose")]
fn fork_child() -> i32 {
    // SAFETY: this program has one thread; the child only reads and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let mut byte = 0_u8;
        // SAFETY: reads into a local. The end of the file, or an error, ends the child without
        // running exit handlers.
        unsafe {
            while libc::read(0, (&raw mut byte).cast(), 1) > 0 {}
            libc::_exit(0);
        }
    }
    pid
}
