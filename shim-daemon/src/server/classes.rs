//! The sockets of classes, and the CDI specification that names them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use super::folder::Folder;
use super::poller::{Poller, Source};
use super::specification::Specification;
use crate::containers::Containers;
use crate::foreign::{Lane, part_with};

/// All sockets of classes that this daemon ever had: their places do not change.
#[derive(Debug, Default)]
pub(super) struct Classes {
    all: Vec<(String, Option<UnixListener>)>,
    /// The last error of each class that has no socket, and that of the CDI specification. It is
    /// tried again every second, and said once.
    said: BTreeMap<String, String>,
    unpublished: Option<String>,
    /// Why hooks may not know whether limits are mandatory, if so.
    untold: Option<String>,
    specification: Specification,
    /// Whether the folders of classes that are no more have been looked at since the last one went.
    are_swept: bool,
    /// No descriptor was left; nothing is polled until [`Classes::open_again`].
    closed: bool,
    /// A socket is not polled that should be: the poller had no place for it. It is tried again.
    deaf: bool,
}

impl Classes {
    /// Opens the sockets of the node's classes that have none, and closes those of classes that
    /// are no more. One that is no more keeps its socket while a container of its runs: the
    /// container's programs may come back to the next daemon there.
    pub(super) fn follow(
        &mut self,
        (containers, in_use): (&Containers, &BTreeSet<&str>),
        folder: &Folder,
        poller: &Poller,
        lane: &Lane,
    ) {
        let are_named = containers.classes.iter().map(|class| class.name.as_str());
        let named: BTreeSet<&str> = are_named.collect();
        let wanted: BTreeSet<&str> = named.union(in_use).copied().collect();
        for (name, listener) in &mut self.all {
            let stays = wanted.contains(name.as_str());
            if let Some(listener) = listener.take_if(|_| !stays) {
                if !self.closed {
                    poller.remove(listener.as_fd());
                }
                part_with(listener, lane);
                self.are_swept = false;
            }
        }
        if !self.are_swept {
            folder.close_other_classes(&containers.classes);
            self.are_swept = true;
        }
        let mut said = BTreeMap::new();
        for name in wanted {
            // Containers of a class that is no more would have no limits without a daemon.
            let allow = containers.allow_without_daemon && named.contains(name);
            let Err(error) = self.open((name, allow), folder, (poller, lane)) else {
                continue;
            };
            let error = error.to_string();
            if self.said.get(name) != Some(&error) {
                tracing::error!(class = name, %error, "the class has no socket");
            }
            said.insert(name.to_owned(), error);
        }
        self.said = said;
        let error = self.specification.follow(containers, folder).err();
        if let Some(error) = &error
            && self.unpublished.as_ref() != Some(error)
        {
            tracing::error!(%error, "the CDI specification is not as the settings say");
        }
        self.unpublished = error;
        let told = folder.tell_hooks(containers);
        let error = told.err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|_| self.untold.is_none()) {
            tracing::error!(error, "hooks are not told whether limits are mandatory");
        }
        self.untold = error;
    }

    fn open(
        &mut self,
        (name, allow_without_daemon): (&str, bool),
        folder: &Folder,
        (poller, lane): (&Poller, &Lane),
    ) -> io::Result<()> {
        let at = self.all.iter().position(|(known, _)| known == name);
        let at = at.unwrap_or_else(|| {
            self.all.push((name.to_owned(), None));
            self.all.len() - 1
        });
        folder.furnish_class(name, allow_without_daemon)?;
        if self.all[at].1.is_some() && folder.has_class(name) {
            return Ok(());
        }
        let listener = folder.listen_class(name)?;
        if !self.closed {
            poller.add(listener.as_fd(), Source::Class(at as u64))?;
        }
        if let Some(old) = self.all[at].1.replace(listener) {
            part_with(old, lane);
        }
        Ok(())
    }

    /// Accepts a connection at the socket of a class. `None`: it has none.
    pub(super) fn accept(&self, at: u64) -> Option<io::Result<UnixStream>> {
        let (_, listener) = self.all.get(usize::try_from(at).ok()?)?;
        Some(listener.as_ref()?.accept().map(|(socket, _)| socket))
    }

    /// No descriptor is left: polls no socket until [`Classes::open_again`].
    pub(super) fn close(&mut self, poller: &Poller) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        for listener in self
            .all
            .iter()
            .filter_map(|(_, listener)| listener.as_ref())
        {
            poller.remove(listener.as_fd());
        }
    }

    /// Once a second: polls the sockets that were closed for lack of descriptors.
    pub(super) fn open_again(&mut self, poller: &Poller) {
        if !std::mem::take(&mut self.closed) && !self.deaf {
            return;
        }
        let was_deaf = std::mem::take(&mut self.deaf);
        for (at, (name, listener)) in self.all.iter().enumerate() {
            let Some(listener) = listener else {
                continue;
            };
            let Err(error) = poller.add_again(listener.as_fd(), Source::Class(at as u64)) else {
                continue;
            };
            if !was_deaf {
                tracing::error!(class = name, %error, "no connection is accepted there until that works");
            }
            self.deaf = true;
        }
    }

    /// The class of this place.
    pub(super) fn name(&self, at: u64) -> Option<&str> {
        let (name, _) = self.all.get(usize::try_from(at).ok()?)?;
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::server::Server;
    use crate::server::furnish::class_folder;
    use crate::server::still::server;

    /// The log, in memory.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What three seconds' looks at the classes say.
    fn said(server: &mut Server) -> Vec<String> {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone());
        tracing::subscriber::with_default(log.finish(), || {
            (0..3).for_each(|_| server.follow_classes());
        });
        let text = lines.0.lock().unwrap().clone();
        let text = String::from_utf8(text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_keeps_a_class_from_its_places_is_said_once_until_it_is_over() {
        let root = tempfile::tempdir().unwrap();
        let way = root.path().join("way");
        let library = root.path().join("lib");
        std::fs::create_dir(&library).unwrap();
        std::fs::write(library.join("libgpushare.so"), "").unwrap();
        let text = format!(
            "[classes.one]\n[containers]\ncdi = \"{}/cdi.json\"\nlibrary = \"{}\"\n",
            way.display(),
            library.display()
        );
        let settings = crate::config::read(&text, crate::node::Settings::default()).unwrap();
        let mut server = server(&root.path().join("run"), settings);
        assert_eq!(said(&mut server), [""; 0], "all is there");
        assert!(way.join("cdi.json").exists());
        let class = class_folder(&root.path().join("run"), "one");
        for _ in 0..2 {
            // A file where a folder has to be.
            for folder in [&way, &class] {
                std::fs::remove_dir_all(folder).unwrap();
                std::fs::write(folder, "").unwrap();
            }
            let lines = said(&mut server);
            let of = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
            assert_eq!(
                of("the CDI specification is not as the settings say"),
                1,
                "{lines:?}"
            );
            assert_eq!(of("the class has no socket"), 1, "{lines:?}");
            assert_eq!(lines.len(), 2, "{lines:?}");
            for folder in [&way, &class] {
                std::fs::remove_file(folder).unwrap();
            }
            assert_eq!(said(&mut server), [""; 0], "all is there again");
        }
    }

    /// A place with a library, and settings with these classes whose specification is at `cdi`.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            std::fs::create_dir(place.at("lib")).unwrap();
            std::fs::write(place.at("lib/libgpushare.so"), "").unwrap();
            place
        }

        fn at(&self, name: &str) -> std::path::PathBuf {
            self.0.path().join(name)
        }

        fn settings(&self, cdi: Option<&str>, classes: &[&str]) -> crate::node::Settings {
            let mut text = format!(
                "[containers]\non_daemon_loss = \"allow\"\nlibrary = \"{}\"\n",
                self.at("lib").display()
            );
            if let Some(cdi) = cdi {
                text += &format!("cdi = \"{}\"\n", self.at(cdi).display());
            }
            text.extend(classes.iter().map(|name| format!("[classes.{name}]\n")));
            crate::config::read(&text, crate::node::Settings::default()).unwrap()
        }

        fn server(&self, cdi: Option<&str>) -> Server {
            server(&self.at("run"), self.settings(cdi, &["half"]))
        }

        fn has(&self, names: [&str; 2]) -> [bool; 2] {
            names.map(|name| self.at(name).exists())
        }
    }

    fn reload(server: &mut Server, settings: &crate::node::Settings) {
        server.follow_settings(settings).unwrap();
    }

    #[test]
    fn a_specification_goes_with_the_setting_that_names_it() {
        let place = Place::new();
        let both = ["cdi/one.json", "cdi/two.json"];
        let mut server = place.server(Some(both[0]));
        assert_eq!(place.has(both), [true, false]);
        reload(&mut server, &place.settings(Some(both[1]), &["half"]));
        assert_eq!(place.has(both), [false, true]);
        reload(&mut server, &place.settings(None, &["half"]));
        assert_eq!(place.has(both), [false, false]);
        // What is written there afterwards is the operator's.
        std::fs::write(place.at(both[1]), "{}").unwrap();
        server.follow_classes();
        assert_eq!(place.has(both), [false, true]);
        // A daemon stays and goes without its specification, and the next one knows of it.
        reload(&mut server, &place.settings(Some(both[0]), &["half"]));
        drop(server);
        assert_eq!(place.has(both), [true, true]);
        drop(place.server(Some(both[0])));
        assert_eq!(place.has(both), [true, true]);
        let _next = place.server(None);
        assert_eq!(place.has(both), [false, true]);
    }

    /// Engines refuse a specification without a device.
    #[test]
    fn a_specification_goes_with_the_last_class_and_comes_with_the_first() {
        let place = Place::new();
        let both = ["cdi/one.json", "run/cdi"];
        let mut server = server(&place.at("run"), place.settings(Some(both[0]), &[]));
        for (classes, is_there) in [(&[][..], false), (&["half"], true), (&[], false)] {
            reload(&mut server, &place.settings(Some(both[0]), classes));
            assert_eq!(place.has(both), [is_there; 2], "{classes:?}");
            assert_eq!(server.classes.unpublished, None);
        }
    }

    #[test]
    fn a_specification_that_could_not_be_written_is_in_no_record() {
        let place = Place::new();
        std::fs::create_dir(place.at("cdi")).unwrap();
        let mut server = place.server(Some("cdi"));
        assert!(server.classes.unpublished.is_some());
        assert_eq!(place.has(["run/cdi", "cdi.new"]), [false, false]);
        reload(
            &mut server,
            &place.settings(Some("cdi/one.json"), &["half"]),
        );
        assert_eq!(server.classes.unpublished, None);
        drop(server);
        // Another version of the daemon may have it in the record.
        std::fs::create_dir(place.at("two")).unwrap();
        let record = format!("{}\n", place.at("two").display());
        std::fs::write(place.at("run/cdi"), record).unwrap();
        let server = place.server(Some("cdi/one.json"));
        assert_eq!(server.classes.unpublished, None);
        let record = std::fs::read_to_string(place.at("run/cdi")).unwrap();
        assert_eq!(record, format!("{}\n", place.at("cdi/one.json").display()));
    }

    #[test]
    fn a_record_that_could_not_be_written_is_written_later() {
        let place = Place::new();
        let ours = ["cdi/one.json", "run/cdi"];
        std::fs::create_dir_all(place.at("run/cdi")).unwrap();
        let mut server = place.server(Some(ours[0]));
        assert_eq!(place.has(ours), [true, true]);
        assert!(server.classes.unpublished.is_some());
        std::fs::remove_dir(place.at("run/cdi")).unwrap();
        server.follow_classes();
        assert_eq!(server.classes.unpublished, None);
        drop(server);
        let _next = place.server(None);
        assert_eq!(place.has(ours), [false, false]);
    }

    #[test]
    fn the_operators_specification_stays_and_one_that_was_written_goes() {
        for is_operators in [true, false] {
            let place = Place::new();
            let names = ["cdi/one.json", "run/cdi"];
            drop(place.server(Some(names[0])));
            // As after a boot.
            std::fs::remove_file(place.at(names[1])).unwrap();
            if is_operators {
                // Nothing can be written beside it.
                std::fs::create_dir(place.at("cdi/one.new")).unwrap();
            }
            let mut server = place.server(Some(names[0]));
            assert_eq!(server.classes.unpublished, None);
            assert_eq!(place.has(names), [true, !is_operators]);
            reload(&mut server, &place.settings(None, &["half"]));
            assert_eq!(place.has(names), [is_operators, false]);
        }
    }

    #[test]
    fn no_program_of_a_class_that_is_no_more_starts_without_limits() {
        let place = Place::new();
        let both = ["half", "full"].map(|name| format!("run/classes/{name}/allow-without-daemon"));
        let both = both.each_ref().map(String::as_str);
        let mut server = server(&place.at("run"), place.settings(None, &["half", "full"]));
        assert_eq!(place.has(both), [true, true]);
        reload(&mut server, &place.settings(None, &["full"]));
        assert_eq!(place.has(both), [false, true]);
        drop(server);
        // One that was taken out while no daemon ran.
        let _next = place.server(None);
        assert_eq!(place.has(both), [true, false]);
    }

    #[test]
    fn a_class_that_is_gone_keeps_its_door_while_a_container_of_it_runs() {
        let place = Place::new();
        let door = || UnixStream::connect(place.at("run/classes/half/gpushare.sock"));
        let allow = ["run/classes/half/allow-without-daemon"; 2];
        let mut server = place.server(None);
        let id = "ab".repeat(32);
        let peer = crate::peer::Peer {
            pid: 1,
            uid: 0,
            pidfd: crate::peer::open(std::process::id().cast_signed()).unwrap(),
            cgroup: String::new(),
            groups: crate::groups::Groups::parse(&format!("0::/docker/{id}\n")),
        };
        let now = crate::server::clock::now();
        server
            .node
            .enter_class(now, ("half", false), &peer)
            .unwrap();
        server.carry_out();
        assert_eq!(place.has(allow), [true; 2]);
        server.follow_settings(&place.settings(None, &[])).unwrap();
        door().unwrap();
        assert_eq!(place.has(allow), [false; 2], "no program starts there");
        drop(server);
        let mut next = crate::server::still::server(&place.at("run"), place.settings(None, &[]));
        door().unwrap();
        assert_eq!(place.has(allow), [false; 2]);
        // It is in no cgroup of this machine's, and so has ended.
        next.node.recovered(now);
        next.carry_out();
        next.follow_classes();
        door().unwrap_err();
    }
}
