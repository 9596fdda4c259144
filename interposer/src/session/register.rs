//! Becoming known to the daemon: greeting, registration, the pages.

use std::io;
use std::time::Instant;

use gpushare_protocol::wire::{Hello, Register, Registered, Reply, Request, decode, encode};

use super::socket::{self, Connection};
use crate::guest::clock;
use crate::guest::descriptor::Descriptor;

/// The result of a registration.
#[derive(Debug)]
pub(super) struct Welcome {
    pub(super) registered: Registered,
    /// The daemon's instance.
    pub(super) instance: u64,
    /// The control page.
    pub(super) control: Descriptor,
    /// The usage page.
    pub(super) usage: Descriptor,
}

/// Why there is none.
#[derive(Debug)]
pub(super) enum Failed {
    /// No daemon answers, or not yet: worth trying again.
    Away(io::Error),
    /// The daemon says no.
    Refused(String),
}

impl Failed {
    fn unclear() -> Self {
        Self::Refused("the daemon's answer makes no sense to this version".to_owned())
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Away(error)
    }
}

/// Greets the daemon, until `end` at most. Returns its greeting.
///
/// # Errors
/// [`Failed::Refused`] if its major version differs.
pub(super) fn greet(
    connection: &mut Connection,
    capabilities: u64,
    end: Instant,
) -> Result<Hello, Failed> {
    // A process that was restored from a checkpoint is in another namespace than before, and has
    // lost its connection.
    clock::find_namespace();
    let mut frame = Vec::new();
    let ours = Hello {
        capabilities,
        ..Hello::of_this_build(0)
    };
    encode(0, &ours, &mut frame).map_err(io::Error::other)?;
    socket::send(connection.socket(), &frame, None)?;
    let hello: Hello = decode(0, &hear(connection, 0, end)?).map_err(|_| Failed::unclear())?;
    hello.check("this library").map_err(Failed::Refused)?;
    Ok(hello)
}

/// Registers this process, with the page and the slot it has if it was registered before.
///
/// # Errors
/// [`Failed`].
pub(super) fn register(
    connection: &mut Connection,
    hello: &Hello,
    held: Option<(&Descriptor, usize)>,
    end: Instant,
) -> Result<Welcome, Failed> {
    const ID: u32 = 1;
    let request = Request::Register(Register {
        pid: std::process::id(),
        presents_page: held.is_some(),
        slot: held.and_then(|(_, slot)| u16::try_from(slot).ok()),
    });
    let mut frame = Vec::new();
    encode(ID, &request, &mut frame).map_err(io::Error::other)?;
    socket::send(connection.socket(), &frame, held.map(|(page, _)| page))?;
    let reply = decode(ID, &hear(connection, ID, end)?).map_err(|_| Failed::unclear())?;
    let registered = match reply {
        Reply::Registered(registered) => registered,
        Reply::Error(error) if error.can_retry => {
            return Err(Failed::Away(io::Error::other(error.message)));
        }
        Reply::Error(error) => return Err(Failed::Refused(error.message)),
        _ => return Err(Failed::unclear()),
    };
    let mut page = || {
        connection
            .take_descriptor()
            .ok_or_else(|| Failed::Refused("the daemon sent no pages".to_owned()))
    };
    let (control, usage) = (page()?, page()?);
    Ok(Welcome {
        registered,
        instance: hello.instance,
        control,
        usage,
    })
}

/// The body of the answer to `id`.
fn hear(connection: &mut Connection, id: u32, end: Instant) -> Result<Vec<u8>, Failed> {
    loop {
        while let Some((of, body)) = connection.next_frame()? {
            if of == id {
                return Ok(body);
            }
        }
        connection.wait(end)?;
        connection.receive()?;
    }
}
