//! Whether a program runs under a daemon: under the machine's daemon, else under a private one that
//! is started for it.
//!
//! Two kinds of accounts must never be kept under one name, because each would grant the whole
//! limit. So a tenant whose usage page is a file is joined there, and a program inside one stays in
//! it. A mark in the environment says that it is inside one; a tenant's name alone does not. A name
//! that a daemon has is refused where its books would be files, and so is any where a daemon is
//! there and does not answer ([ADR
//! 234](../../../docs/adr/0234-a-tenant-of-a-daemon-gets-no-books-in-files.md)).

use super::having::check_apart;
use super::start::{CONFIG, Without, for_program};
use super::{Patience, Talk};
use crate::args::UseDaemon;
use crate::failure::Failure;
use crate::output;
use crate::plan::Plan;
use crate::settings::Environment;
use gpushare_protocol::limits::Limits;
use std::ffi::OsStr;

/// Connects the plan's program to its daemon; `None` if it is to run without.
pub(crate) fn for_plan(
    plan: &Plan,
    when: UseDaemon,
    patience: Patience,
) -> Result<Option<Talk>, Failure> {
    let needed = is_needed(&plan.limits);
    if when == UseDaemon::Off {
        plan.limits.clone().without_daemon()?;
        check_apart(plan, "leave --daemon off out to join it")?;
        return Ok(None);
    }
    let in_files = plan.tenant.lives_in_files(&plan.environment);
    if in_files && (needed || when == UseDaemon::On) {
        return Err(Failure::ours(format!(
            "tenant {} runs without a daemon, and two kinds of books would each grant its whole limit; \
             join it with --daemon off and no limits that need a daemon, or give another --name",
            plan.tenant.name
        )));
    }
    let stays = in_files || plan.tenant.is_marked(&plan.environment) || plan.limits.disabled();
    if when == UseDaemon::Auto && stays && !needed {
        if !in_files {
            check_apart(plan, "join it with --daemon on")?;
        }
        return Ok(None);
    }
    match for_program(
        &plan.gpu,
        &plan.environment,
        plan.tenant.name.as_str(),
        patience,
    ) {
        Ok(talk) => Ok(Some(talk)),
        Err(Without::Impossible(why)) if may_go_without(when, needed, &plan.environment) => {
            let mended = format!("mend why no daemon starts ({})", why.message);
            check_apart(plan, &mended)?;
            output::note(&format!(
                "note: no daemon can be had here, so nothing is guaranteed; its limits are kept by the library alone (--daemon off says that this is meant): {}",
                why.message
            ));
            Ok(None)
        }
        Err(Without::Impossible(why) | Without::WrongSettings(why) | Without::NotNow(why)) => {
            Err(why)
        }
    }
}

/// Whether a program starts though no daemon can be had. The limits of a file of settings are kept
/// by the daemon alone, so one that is named is not passed over.
fn may_go_without(when: UseDaemon, needed: bool, environment: &Environment) -> bool {
    when == UseDaemon::Auto && !needed && !environment.contains_key(OsStr::new(CONFIG))
}

/// Whether the limits ask for what only a daemon can do.
fn is_needed(limits: &Limits) -> bool {
    limits.clone().without_daemon().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_daemon_no_program_starts_whose_limits_a_file_names() {
        let plain = Environment::new();
        let named: Environment = [(CONFIG.into(), "/srv/limits.toml".into())].into();
        assert!(may_go_without(UseDaemon::Auto, false, &plain));
        assert!(!may_go_without(UseDaemon::Auto, false, &named));
        assert!(!may_go_without(UseDaemon::Auto, true, &plain));
        assert!(!may_go_without(UseDaemon::On, false, &plain));
    }
}
