//! Experiments of concurrent sharing, and the names of groups. [`super::preset`] finds them.

use super::preset::Row;

/// Name, title, tenants.
pub(crate) const PRESETS: &[Row] = &[
    (
        "curve-1ms",
        "a server of 300 us every 1 ms beside kernels of 1 ms",
        &[
            "name=server,kernel=300us,mode=sync,every=1ms",
            "name=train,kernel=1ms",
        ],
    ),
    (
        "curve-2ms",
        "a server of 300 us every 1 ms beside kernels of 2 ms",
        &[
            "name=server,kernel=300us,mode=sync,every=1ms",
            "name=train,kernel=2ms",
        ],
    ),
    (
        "curve-5ms",
        "a server of 300 us every 1 ms beside kernels of 5 ms",
        &[
            "name=server,kernel=300us,mode=sync,every=1ms",
            "name=train,kernel=5ms",
        ],
    ),
    (
        "curve-20ms",
        "a server of 300 us every 1 ms beside kernels of 20 ms",
        &[
            "name=server,kernel=300us,mode=sync,every=1ms",
            "name=train,kernel=20ms",
        ],
    ),
    (
        "decode-10ms",
        "decode graphs of 10 ms, one at a time, beside a deep queue",
        &[
            "name=decode,kernel=500us,nodes=20,mode=decode",
            "name=train,kernel=500us",
        ],
    ),
    (
        "decode-20ms",
        "decode graphs of 20 ms, one at a time, beside a deep queue",
        &[
            "name=decode,kernel=500us,nodes=40,mode=decode",
            "name=train,kernel=500us",
        ],
    ),
    (
        "decode-paced",
        "decode graphs of 10 ms every 40 ms beside those of 20 ms every 50 ms and a deep queue",
        &[
            "name=short,kernel=500us,nodes=20,mode=decode,every=40ms",
            "name=long,kernel=500us,nodes=40,mode=decode,every=50ms",
            "name=train,kernel=500us",
        ],
    ),
    (
        "copies-trainer",
        "a deep queue with 16 MiB every 10 ms on a second stream beside a server",
        &[
            "name=server,kernel=300us,mode=sync,every=1ms",
            "name=train,kernel=500us,copy=16MiB",
        ],
    ),
    (
        "copies-mover",
        "one that only copies 64 MiB at a time beside a deep queue",
        &["name=mover,mode=copy,copy=64MiB", "name=train,kernel=500us"],
    ),
    (
        "churn",
        "a server whose process comes and goes every 2 s beside a deep queue",
        &[
            "name=server,kernel=300us,mode=sync,every=1ms,churn=2s",
            "name=train,kernel=500us",
        ],
    ),
    (
        "mixed",
        "a deep queue, two servers, a notebook that sleeps and a batch under a cap of 10 %",
        &[
            "name=train,kernel=500us",
            "name=s1,kernel=200us,mode=sync,every=2ms",
            "name=s2,kernel=200us,mode=sync,every=2ms",
            "name=notebook,kernel=500us,mode=burst,depth=40,every=2s",
            "name=batch,kernel=500us,cap=10",
        ],
    ),
    (
        "gang-two",
        "two that run collectives on both GPUs beside a tenant on each",
        &[
            "name=g1,kernel=250us,mode=gang,gpus=0+1",
            "name=g2,kernel=250us,mode=gang,gpus=0+1",
            "name=one,kernel=500us",
            "name=two,kernel=500us,gpus=1",
        ],
    ),
    (
        "gang-pods",
        "a job of two tenants, one on each GPU, whose kernels wait for each other beside a tenant on each",
        &[
            "name=pod1,kernel=250us,mode=gang,job=job",
            "name=pod2,kernel=250us,mode=gang,gpus=1,job=job",
            "name=one,kernel=500us",
            "name=two,kernel=500us,gpus=1",
        ],
    ),
];

/// A group's name and its members: names of presets, or, with a final `-`, a prefix of names.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "together",
        &["gaps-2", "gaps-4", "gaps-sync", "gaps-rare", "serving-1"],
    ),
    ("gaps", &["gaps-"]),
    ("serving", &["serving-"]),
    ("curve", &["curve-"]),
    ("decode", &["decode-"]),
    ("copies", &["copies-"]),
    (
        "shares",
        &["equal", "lengths", "sync", "graphs", "processes", "three"],
    ),
    ("gangs", &["gang", "gang-"]),
];

/// Names of all groups.
pub(crate) fn groups() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().map(|(name, _)| *name)
}

/// Whether the preset `name` belongs to the group `asked`.
pub(crate) fn in_group(name: &str, asked: &str) -> bool {
    let group = GROUPS.iter().find(|(known, _)| *known == asked);
    let mut members = group.into_iter().flat_map(|(_, members)| *members);
    members.any(|member| *member == name || member.ends_with('-') && name.starts_with(member))
}

#[cfg(test)]
mod tests {
    use super::super::preset::find;
    use super::*;

    #[test]
    fn every_group_has_members_and_every_member_is_a_preset() {
        for (group, members) in GROUPS {
            let found = find(group).unwrap();
            assert!(found.len() >= members.len(), "{group}");
            for member in members.iter().filter(|member| !member.ends_with('-')) {
                assert!(in_group(member, group));
                assert_eq!(find(member).unwrap().len(), 1, "{member}");
            }
        }
        assert!(!in_group("gaps-2", "serving") && !in_group("equal", "none"));
        assert_eq!(find("gangs").unwrap().len(), 3);
        assert_eq!(find("gang").unwrap().len(), 1, "a preset by its own name");
        assert_eq!(find("curve").unwrap().len(), 4);
        assert_eq!(find("shares").unwrap().len(), 6);
    }
}
