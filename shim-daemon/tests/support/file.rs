//! A settings file that a daemon reads again when a test says so.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::{Daemon, FakeDevices};
use gpushared::config;
use gpushared::node::Settings;
use gpushared::server::Reload;
use nix::sys::eventfd::EventFd;

/// The settings of a file with this text.
pub fn settings(file: &str) -> Settings {
    config::read(file, Settings::default()).unwrap()
}

/// A daemon with these settings.
pub fn daemon_of(folder: &Path, file: &str) -> Daemon {
    Daemon::with_settings(folder, FakeDevices::default(), settings(file))
}

/// The file, and the bell by which the daemon reads it again.
pub struct SettingsFile {
    text: Arc<Mutex<String>>,
    bell: Arc<EventFd>,
}

impl SettingsFile {
    /// One with this text.
    pub fn new(text: &str) -> Self {
        Self {
            text: Arc::new(Mutex::new(text.to_owned())),
            bell: Arc::new(EventFd::new().unwrap()),
        }
    }

    /// What a daemon needs to follow it.
    pub fn reload(&self) -> Reload {
        let (text, bell) = (Arc::clone(&self.text), Arc::clone(&self.bell));
        Reload {
            bell: self.bell.as_fd().try_clone_to_owned().unwrap(),
            read: Box::new(move || {
                bell.read().unwrap();
                config::read(&text.lock().unwrap(), Settings::default()).map(Some)
            }),
        }
    }

    /// The daemon reads this text from now on.
    pub fn becomes(&self, text: &str) {
        text.clone_into(&mut self.text.lock().unwrap());
        self.bell.write(1).unwrap();
    }
}
