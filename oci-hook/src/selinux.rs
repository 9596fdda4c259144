//! Whether a container that SELinux confines may read what is mounted into it.
//!
//! Of `/etc/ld.so.preload` the dynamic linker asks with `access()` whether it may read it, and goes
//! on in silence where it may not: the container would have no limits. Denials of that call are
//! mostly not even logged ([ADR 261](../../../docs/adr/0261-selinux-without-labels-is-refused.md)).

use std::fs;
use std::path::Path;

use gpushare_protocol::injection::{RELABEL, SELINUX_ENFORCES, is_containers_type, selinux_type};
use rustix::fs::getxattr;
use serde_json::Value;

use crate::Failure;

/// Domains that may read everything.
const UNCONFINED: [&str; 3] = ["spc_t", "unconfined_t", "unconfined_service_t"];
/// Where the kernel has a file's label, and the longest one that is read.
const LABEL: &str = "security.selinux";
const MOST: usize = 4096;

/// Refuses a container that SELinux confines where it could not read one of these files of the
/// host, by the file's label.
///
/// # Errors
/// Which file, its type, and what to do.
pub fn may_read(config: &Value, files: &[&Path]) -> Result<(), Failure> {
    may_read_by(config, files, Path::new(SELINUX_ENFORCES))
}

fn may_read_by(config: &Value, files: &[&Path], enforces: &Path) -> Result<(), Failure> {
    // A container that its engine leaves unconfined (`label=disable`, privileged) has no label.
    let label = config.pointer("/process/selinuxLabel");
    let label = label.and_then(Value::as_str).unwrap_or("");
    let domain = selinux_type(label).unwrap_or("");
    let is_on = || fs::read(enforces).is_ok_and(|text| text.starts_with(b"1"));
    if domain.is_empty() || UNCONFINED.contains(&domain) || !is_on() {
        return Ok(());
    }
    for file in files {
        let label = label_of(file);
        let kind = selinux_type(&label).unwrap_or("no type");
        if !is_containers_type(kind) {
            return Err(Failure(format!(
                "SELinux: programs of {domain} could not read {} ({kind}) and would run without limits: {RELABEL}",
                file.display()
            )));
        }
    }
    Ok(())
}

/// Empty where there is none.
fn label_of(file: &Path) -> String {
    let mut label = vec![0; MOST];
    let length = getxattr(file, LABEL, &mut label[..]).unwrap_or(0);
    label.truncate(length);
    String::from_utf8_lossy(&label).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rustix::fs::{XattrFlags, setxattr};
    use serde_json::json;

    const CONFINED: &str = "system_u:system_r:container_t:s0:c1,c2";

    /// The refusal for a file with this label, where SELinux enforces or does not.
    fn told(domain: Option<&str>, label: Option<&str>, enforces: &str) -> Option<String> {
        let place = tempfile::tempdir().unwrap();
        let [switch, file] = ["enforce", "ld.so.preload"].map(|name| place.path().join(name));
        fs::write(&switch, enforces).unwrap();
        fs::write(&file, "").unwrap();
        if let Some(label) = label {
            // Only root may, and a kernel without SELinux takes any.
            setxattr(&file, LABEL, label.as_bytes(), XattrFlags::empty()).unwrap();
        }
        let config = match domain {
            Some(domain) => json!({"process": {"selinuxLabel": domain}}),
            None => json!({"process": {}}),
        };
        let told = may_read_by(&config, &[&file], &switch);
        told.err().map(|why| why.to_string())
    }

    #[test]
    fn a_confined_container_that_could_not_read_the_preload_is_refused() {
        let why = told(Some(CONFINED), None, "1").unwrap();
        for word in ["container_t", "ld.so.preload (no type)", "restorecon"] {
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn a_container_that_nothing_confines_is_not_asked_about_labels() {
        for (domain, enforces) in [
            (Some(CONFINED), "0"),
            (Some(CONFINED), ""),
            (Some("system_u:system_r:spc_t:s0"), "1"),
            (Some(""), "1"),
            (None, "1"),
        ] {
            assert_eq!(told(domain, None, enforces), None, "{domain:?} {enforces}");
        }
    }

    #[test]
    fn the_label_of_a_file_decides() {
        if !rustix::process::geteuid().is_root() || Path::new(SELINUX_ENFORCES).exists() {
            return;
        }
        let of = |kind: &str| format!("system_u:object_r:{kind}:s0\0");
        let why = told(Some(CONFINED), Some(&of("var_run_t")), "1").unwrap();
        assert!(why.contains("(var_run_t)"), "{why}");
        for kind in ["container_file_t", "container_ro_file_t"] {
            assert_eq!(told(Some(CONFINED), Some(&of(kind)), "1"), None, "{kind}");
        }
    }
}
