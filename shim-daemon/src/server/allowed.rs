//! The containers that a rule allows to run without limits, stored for the next daemon ([ADR
//! 246](../../../docs/adr/0246-what-a-rule-allows-is-not-ended-either.md)).

use std::{fs, io};

use super::Server;
use super::folder::{Folder, replace};
use crate::node::Container;

/// The file beside the registrations of tenants. Its name ends otherwise than theirs: older daemons
/// take it for none.
pub(super) const FILE: &str = "registered/allowed";

impl Folder {
    /// Writes these containers down, whole or not at all.
    pub(super) fn keep_allowed(&self, all: &[Container]) -> io::Result<()> {
        let path = self.root.join(FILE);
        if !all.is_empty() {
            return replace(&path, &serde_json::to_vec(all)?);
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Those that the previous daemon left.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn allowed(&self) -> io::Result<Vec<Container>> {
        match fs::read(self.root.join(FILE)) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

impl Server {
    /// Takes over the containers of the previous daemon.
    pub(super) fn restore_allowed(&mut self) {
        match self.folder.allowed() {
            Ok(all) => self.node.restore_allowed(all),
            Err(error) => {
                tracing::error!(%error, file = FILE, "the containers that rules allow are not known");
            }
        }
    }

    pub(super) fn keep_allowed(&mut self, all: &[Container]) {
        let kept = self.folder.keep_allowed(all);
        if let Err(error) = kept.as_ref()
            && !self.unkept
        {
            tracing::error!(%error, "the containers that rules allow would not survive a restart of the daemon");
        }
        self.unkept = kept.is_err();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::groups::Groups;
    use crate::init::{Identity, started};
    use crate::node::Settings;
    use crate::server::still::server;

    /// A process, and the container of which it is the first.
    fn container(id: &str) -> (Child, Container) {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let start = started(pid).unwrap();
        let container = Container {
            id: id.to_owned(),
            init: Some(Identity { pid, start }),
            groups: Groups::parse(&format!("0::/docker/{id}\n")),
            ..Container::default()
        };
        (child, container)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn next_second(server: &mut Server) {
        server.next_tick = gpushare_core::Nanos(0);
        server.pass_time().unwrap();
        server.carry_out();
    }

    #[test]
    fn allowed_containers_are_stored_until_they_end_and_by_no_tenants_name() {
        let root = tempfile::tempdir().unwrap();
        let run = root.path().join("run");
        let ([one, other], all): ([Child; 2], Vec<Container>) = {
            let ((one, first), (other, second)) = (container("a"), container("b"));
            ([one, other], vec![first, second])
        };
        let mut first = server(&run, Settings::default());
        first.keep_allowed(&all);
        assert_eq!(first.folder.allowed().unwrap(), all);
        assert!(first.folder.remembered().unwrap().0.is_empty());
        drop(first);
        end(one);
        let mut second = server(&run, Settings::default());
        assert_eq!(second.folder.allowed().unwrap(), all[1..]);
        end(other);
        next_second(&mut second);
        assert!(!run.join(FILE).exists(), "none is left");
    }

    #[test]
    fn allowed_containers_that_cannot_be_stored_are_tried_again() {
        let root = tempfile::tempdir().unwrap();
        let run = root.path().join("run");
        let (child, one) = container("a");
        let mut server = server(&run, Settings::default());
        server.node.restore_allowed(vec![one.clone()]);
        // A folder where the file has to be.
        fs::create_dir(run.join(FILE)).unwrap();
        server.keep_allowed(std::slice::from_ref(&one));
        next_second(&mut server);
        assert!(server.unkept);
        fs::remove_dir(run.join(FILE)).unwrap();
        next_second(&mut server);
        assert_eq!(server.folder.allowed().unwrap(), [one]);
        assert!(!server.unkept);
        end(child);
    }

    #[test]
    fn a_file_of_allowed_containers_that_cannot_be_read_allows_none() {
        let root = tempfile::tempdir().unwrap();
        let run = root.path().join("run");
        drop(server(&run, Settings::default()));
        fs::write(run.join(FILE), "[{").unwrap();
        let mut server = server(&run, Settings::default());
        server.node.write_down_allowed();
        server.carry_out();
        assert_eq!(server.folder.allowed().unwrap(), []);
    }
}
