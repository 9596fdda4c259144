//! Tenants of one job. Each is a tenant with its own GPU; their kernels wait for each other. They
//! map one shared file, which has no name: nothing is left of it, however we end.

use super::tenant::Tenant;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

/// Contents of the file: the page of [`gpushare_sys::cuda::Board`].
const PAGE: [u8; 4096] = [0; 4096];

/// The files of an experiment's jobs, for as long as its tenants run.
#[derive(Debug, Default)]
pub(crate) struct Jobs(BTreeMap<String, (File, usize)>);

impl Jobs {
    /// Makes a file for each job of these tenants.
    pub(crate) fn of(tenants: &[Tenant]) -> Result<Self, Failure> {
        let mut jobs = Self::default();
        for tenant in tenants.iter().filter(|tenant| !tenant.job.is_empty()) {
            if let Some((_, members)) = jobs.0.get_mut(&tenant.job) {
                *members += 1;
                continue;
            }
            let made =
                tempfile::tempfile().and_then(|mut file| file.write_all(&PAGE).map(|()| file));
            let file = made.map_err(|error| {
                Failure::ours(format!(
                    "cannot make a file for job {}: {error}",
                    tenant.job
                ))
            })?;
            jobs.0.insert(tenant.job.clone(), (file, 1));
        }
        Ok(jobs)
    }

    /// The job's description for the worker of the tenant at this place.
    pub(crate) fn arguments(&self, tenants: &[Tenant], at: usize) -> Vec<OsString> {
        let tenant = &tenants[at];
        let Some((file, members)) = self.0.get(&tenant.job) else {
            return Vec::new();
        };
        let before = tenants[..at].iter().filter(|other| other.job == tenant.job);
        let place = format!("{}/{members}", before.count());
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        vec![
            "--board".into(),
            path.into(),
            "--place".into(),
            place.into(),
        ]
    }
}

/// Whether each job has at least two members, each with its own GPU; if not, the reason.
pub(crate) fn check(tenants: &[Tenant]) -> Result<(), String> {
    for tenant in tenants.iter().filter(|tenant| !tenant.job.is_empty()) {
        let peers = || tenants.iter().filter(|other| other.job == tenant.job);
        let others = peers().filter(|other| other.name != tenant.name);
        if others.clone().count() == 0 {
            return Err(format!("job {} has one tenant only", tenant.job));
        }
        if others.into_iter().any(|other| other.gpus == tenant.gpus) {
            return Err(format!(
                "two tenants of job {} are on one GPU, where their kernels cannot wait for each other",
                tenant.job
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants(texts: &[&str]) -> Vec<Tenant> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn members_of_a_job_are_numbered_and_have_one_file() {
        let tenants = tenants(&[
            "name=a,mode=gang,job=j",
            "name=b",
            "name=c,mode=gang,gpus=1,job=j",
        ]);
        let jobs = Jobs::of(&tenants).unwrap();
        let [a, b, c] = [0, 1, 2].map(|at| jobs.arguments(&tenants, at));
        assert!(b.is_empty());
        assert_eq!((&a[1], &a[3]), (&c[1], &OsString::from("0/2")));
        assert_eq!(c[3], "1/2");
        let length = std::fs::metadata(&a[1]).unwrap().len();
        assert_eq!(length, 4096);
        let path = std::fs::read_link(&a[1]).unwrap();
        assert!(!path.exists(), "it has a name: {}", path.display());
        assert!(check(&tenants).is_ok());
    }

    #[test]
    fn a_job_needs_two_tenants_on_different_gpus() {
        let alone = tenants(&["name=a,mode=gang,job=j", "name=b"]);
        assert!(check(&alone).unwrap_err().contains("one tenant only"));
        let together = tenants(&["name=a,mode=gang,job=j", "name=b,mode=gang,job=j"]);
        assert!(check(&together).unwrap_err().contains("on one GPU"));
    }
}
