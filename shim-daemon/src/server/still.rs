//! A server that no loop runs, for tests of its parts.

use std::path::Path;

use gpushare_protocol::units::{Bytes, GIB};
use nix::sys::eventfd::EventFd;

use super::{Folder, Server, Start};
use crate::devices::{Capabilities, Device, Devices, Look, LookError};
use crate::node::Settings;

/// One device that cannot be looked at.
#[derive(Debug)]
struct One;

impl Devices for One {
    fn list(&mut self) -> Result<Vec<Device>, String> {
        Ok(vec![Device {
            uuid: [7; 16],
            minor: None,
            name: "Fact 1".to_owned(),
            capacity: Bytes(16 * GIB),
            capabilities: Capabilities::default(),
        }])
    }

    fn look(&mut self, _: usize) -> Result<Look, LookError> {
        Err(LookError::Lost)
    }
}

/// With these settings and this folder, ready to run.
pub(super) fn server(folder: &Path, settings: Settings) -> Server {
    let start = Start {
        folder: Folder::open(folder.to_owned(), true).unwrap(),
        settings,
        stop: EventFd::new().unwrap().into(),
        reload: None,
        transient: false,
        starter: None,
        journal: None,
    };
    Server::new(start, Box::new(One)).unwrap()
}
