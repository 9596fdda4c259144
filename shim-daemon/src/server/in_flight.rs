//! Replies to processes, where the kernel lets this daemon pass no descriptors.
//!
//! The kernel counts descriptors that are sent and not received by user. Where there are more than
//! the sender's limit of open files it refuses, unless the sender has `CAP_SYS_RESOURCE`. A program
//! of a container that runs as root has the daemon's user id, and may send itself as many as it
//! likes ([ADR
//! 168](../../../docs/adr/0168-what-another-process-can-make-wait-runs-on-its-lane.md)).

use gpushare_protocol::wire::{ErrorCode, Reply, WireError};

use super::{Server, clock};
use crate::connection::{Closed, Passed};
use crate::node::ConnId;

impl Server {
    /// Sends a process a reply. One that cannot be registered for this reason is told so: it would
    /// take the end of its connection for a daemon that is away, and may go on without limits then.
    pub(super) fn answer(
        &mut self,
        (to, id): (ConnId, u32),
        reply: &Reply,
        descriptors: Vec<Passed>,
    ) {
        let Some(session) = self.sessions.get_mut(&to.0) else {
            return;
        };
        let sent = session.connection.send(id, reply, descriptors);
        if matches!(sent, Err(Closed::InFlight)) {
            self.node.cannot_pass(clock::now());
        }
        let registers = matches!(reply, Reply::Registered(_));
        self.send(to, |session| match sent {
            Err(Closed::InFlight) if registers && !session.connection.wants_to_write() => {
                let text = Closed::InFlight.to_string();
                let error = WireError::retry(ErrorCode::Full, text);
                session.connection.send(id, &Reply::Error(error), vec![])
            }
            sent => sent,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::os::fd::{AsRawFd as _, RawFd};
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use gpushare_core::TenantId;
    use gpushare_protocol::wire::decode;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

    use super::*;
    use crate::connection::Connection;
    use crate::foreign::give_up_disks;
    use crate::node::Settings;
    use crate::server::still::{joins, server, tenant};

    /// Set for a child.
    const CHILD: &str = "GPUTEST_IN_FLIGHT_CHILD";

    /// The answer to a process that registers.
    fn answer(server: &mut Server, tenant: TenantId) -> Reply {
        let ours = joins(server, tenant, &[]);
        let mut ours = Connection::alone(ours).unwrap();
        ours.receive(usize::MAX).unwrap();
        ours.next_frame().unwrap().unwrap();
        let (id, body) = ours.next_frame().unwrap().unwrap();
        decode(id, &body).unwrap()
    }

    #[test]
    fn a_process_is_told_that_no_pages_can_be_passed_to_it() {
        let own = std::env::current_exe().unwrap();
        let child = Command::new(own)
            .args(["--ignored", "--exact"])
            .arg("server::in_flight::tests::a_daemon_that_may_pass_nothing_more")
            .env(CHILD, "")
            .output();
        let child = child.unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{said}");
        assert!(said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "the process another test starts: its limit holds for a whole process"]
    fn a_daemon_that_may_pass_nothing_more() {
        const MOST: u64 = 256;
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut server = server(folder.path(), Settings::default());
        let tenant = tenant(&mut server);
        let (sends, _receives) = UnixStream::pair().unwrap();
        let files = vec![sends.as_raw_fd(); 253];
        let rights = [ControlMessage::ScmRights(&files)];
        let raw: RawFd = sends.as_raw_fd();
        for _ in 0..2 {
            let text = [IoSlice::new(&[0])];
            sendmsg::<()>(raw, &text, &rights, MsgFlags::empty(), None).unwrap();
        }
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, MOST, hard).unwrap();
        if nix::unistd::geteuid().is_root() {
            let told = answer(&mut server, tenant);
            assert!(matches!(told, Reply::Registered(_)), "{told:?}");
        }
        give_up_disks().unwrap();
        let Reply::Error(told) = answer(&mut server, tenant) else {
            panic!("it is registered")
        };
        assert!(told.can_retry && told.message.contains("CAP_SYS_RESOURCE"));
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
        let told = answer(&mut server, tenant);
        assert!(matches!(told, Reply::Registered(_)), "{told:?}");
    }
}
