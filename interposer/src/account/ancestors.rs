//! The tenant of a process without a name: that of its nearest ancestor in one, or one that it
//! founds.

use gpushare_protocol::paths::{Root, TENANT, TenantName};

use super::file::UsageFile;
use super::process::{self, Identity};

/// Ancestors looked at: more than any sane tree is deep.
const ANCESTORS: usize = 64;

/// The name of a tenant that an unnamed process founds. In another pid namespace than the first
/// one, that is part of it: two containers with one `/dev/shm` may each have begun a process of
/// this pid in one tick.
pub(super) fn founded_by(founder: Identity, namespace: u64) -> TenantName {
    let plain = TenantName::of_process(founder.pid, founder.start);
    if process::is_first(namespace) {
        return plain;
    }
    TenantName::parse(TENANT, &format!("{plain}-{namespace}")).unwrap_or(plain)
}

/// The tenant of the nearest ancestor that lives in one of its own making.
pub(super) fn ancestors_tenant(root: &Root, me: Identity) -> Option<TenantName> {
    let (_, mut parent) = process::look_up(me.pid)?;
    // A process sees no ancestor outside its namespace.
    let namespace = process::namespace();
    for _ in 0..ANCESTORS {
        let (ancestor, next) = process::look_up(parent)?;
        let found = tenant_of(root, ancestor, namespace);
        if found.is_some() {
            return found;
        }
        parent = next;
    }
    None
}

/// The tenant that this process founded, if any process lives in it.
fn tenant_of(root: &Root, founder: Identity, namespace: u64) -> Option<TenantName> {
    let name = founded_by(founder, namespace);
    let file = UsageFile::open(&root.folder(&name), false);
    file.is_ok_and(|file| file.has_company()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::tests::World;
    use super::*;

    const FOUNDER: Identity = Identity { pid: 1, start: 345 };
    const HERE: u64 = 4_026_532_001;
    const ELSEWHERE: u64 = 4_026_532_002;

    #[test]
    fn processes_of_two_namespaces_found_two_tenants() {
        let name = |namespace| founded_by(FOUNDER, namespace).to_string();
        assert_eq!(name(HERE), "p1-345-4026532001");
        assert_eq!(name(ELSEWHERE), "p1-345-4026532002");
        assert_eq!(name(HERE), name(HERE));
        assert_eq!(name(0xEFFF_FFFC), "p1-345", "the machine's own");
        assert_eq!(name(0), "p1-345", "unknown");
        let longest = Identity {
            pid: u32::MAX,
            start: u64::MAX,
        };
        assert!(
            founded_by(longest, u64::MAX)
                .as_str()
                .ends_with("-18446744073709551615")
        );
    }

    /// The tenant of the founder, where a process is in the tenant `name`, and where that is dead.
    fn found(name: &str) -> [Option<String>; 2] {
        let world = World::new();
        let member = world.join_as(Some(name), &[], &[]).unwrap();
        let found = || Some(tenant_of(&world.root, FOUNDER, HERE)?.to_string());
        let while_alive = found();
        drop(member);
        [while_alive, found()]
    }

    #[test]
    fn a_tenant_is_found_under_its_founders_name_while_it_lives() {
        let name = "p1-345-4026532001";
        assert_eq!(found(name), [Some(name.to_owned()), None]);
    }

    #[test]
    fn a_tenant_of_another_namespace_or_of_none_is_not_found() {
        assert_eq!(found("p1-345"), [None, None]);
        assert_eq!(found("p1-345-4026532002"), [None, None]);
    }
}
