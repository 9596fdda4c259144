//! Limits that others outrank, where not all of them are one author's: in a container the image has
//! variables, too ([ADR 257](../../../docs/adr/0257-an-images-annotations-are-no-operators.md)).

use super::error::LimitError;
use super::layer::{Layer, Selector};
use super::table;
use crate::size::Size;

/// Part of a device that is all of it: no limit is above it.
const WHOLE: Size = Size::Percent(100_000_000);
/// The beginnings of our variables, memory's and time's.
const KINDS: [&str; 2] = ["GPUSHARE_MEM_", "GPUSHARE_SM_"];
/// The beginning of the variables that programs have for MPS, and that nobody limits them by where
/// there is another limit.
const OF_MPS: &str = "CUDA_MPS_";

/// What one variable says of one device, or of all.
struct Word<'a> {
    /// The place in [`KINDS`].
    kind: usize,
    group: usize,
    /// The owner of the variable, the first one having precedence.
    owner: usize,
    device: Selector,
    /// `None`: a request, or what is neither.
    limit: Option<Size>,
    variable: &'a (String, String),
}

/// The refusal of the first variable that outranks a lower limit, or one that cannot be compared,
/// of the same device. A group hides all later ones about the kinds (memory, time) that it names.
/// Variables that are not understood are passed over.
pub(super) fn outranked(groups: &[&[(String, String)]]) -> Option<LimitError> {
    let groups = groups.iter().enumerate();
    let words = groups.flat_map(|(group, all)| all.iter().flat_map(move |one| words(group, one)));
    let words: Vec<Word<'_>> = words.collect();
    let limits = || words.iter().filter(|word| word.limit.is_some());
    let outranks = |higher: &Word<'_>, lower: &Word<'_>| {
        higher.kind == lower.kind
            && may_be_one(higher.device, lower.device)
            && match higher.limit {
                Some(_) if precedes(higher, lower) && !at_most(higher, lower) => true,
                // A group is all that counts.
                _ if higher.group < lower.group => !limits().any(|word| {
                    (word.kind, word.group) == (higher.kind, higher.group)
                        && covers(word.device, lower.device)
                }),
                // An owner's request counts without another owner's limit.
                None if higher.group == lower.group && higher.owner < lower.owner => {
                    !limits().any(|word| {
                        (word.kind, word.group, word.owner)
                            == (higher.kind, higher.group, higher.owner)
                            && covers(word.device, higher.device)
                    })
                }
                _ => false,
            }
    };
    let lower = limits().filter(|word| !word.variable.0.starts_with(OF_MPS));
    let pairs = lower.flat_map(|lower| words.iter().map(move |higher| (higher, lower)));
    let (higher, lower) = pairs
        .into_iter()
        .find(|(higher, lower)| outranks(higher, lower))?;
    let (name, value) = higher.variable;
    let (below, limit) = lower.variable;
    Some(LimitError::new(
        name,
        value.as_str(),
        format!(
            "it counts in place of {below}={limit:?}, is not surely as low, and either of them may be what the image says"
        ),
        format!("{name} as low as {below}, in the same unit; or one of the two alone"),
    ))
}

fn words(group: usize, variable: &(String, String)) -> Vec<Word<'_>> {
    let (name, value) = variable;
    let pair = (name.into(), value.into());
    let Ok(read) = table::read([pair], []) else {
        return Vec::new();
    };
    let word = |kind, owner, device, limit| Word {
        kind,
        group,
        owner,
        device,
        limit,
        variable,
    };
    let of = |(kind, owner, layer): (usize, usize, &Layer)| {
        let limits = layer.limit.iter();
        let limits = limits.map(|(device, entry)| word(kind, owner, *device, Some(entry.size)));
        let requests = layer.request.keys();
        let requests = requests.map(|device| word(kind, owner, *device, None));
        limits.chain(requests).collect::<Vec<_>>()
    };
    let memory = read.memory.layers().enumerate();
    let memory = memory.map(|(owner, layer)| (0, owner, layer));
    let time = read.time.layers().enumerate();
    let time = time.map(|(owner, layer)| (1, owner, layer));
    let mut all: Vec<Word<'_>> = memory.chain(time).flat_map(of).collect();
    // Of the kind, but no amount.
    let kind = KINDS.iter().position(|start| name.starts_with(start));
    if let (true, Some(kind)) = (all.is_empty(), kind) {
        all.push(word(kind, usize::MAX, Selector::All, None));
    }
    all
}

/// Whether both may be said of one device: which ordinal has a UUID is not known.
fn may_be_one(one: Selector, other: Selector) -> bool {
    let is_all = one == Selector::All || other == Selector::All;
    let differ = std::mem::discriminant(&one) != std::mem::discriminant(&other);
    is_all || differ || one == other
}

/// Whether a value for the first is surely one for the second.
fn covers(one: Selector, other: Selector) -> bool {
    one == Selector::All || one == other
}

fn precedes(higher: &Word<'_>, lower: &Word<'_>) -> bool {
    let of = |word: &Word<'_>| (word.group, word.owner, std::cmp::Reverse(word.device));
    of(higher) < of(lower)
}

/// Whether a limit is surely no higher than another one.
fn at_most(one: &Word<'_>, other: &Word<'_>) -> bool {
    match (one.limit, other.limit) {
        (_, Some(WHOLE)) => true,
        (Some(Size::Bytes(one)), Some(Size::Bytes(other)))
        | (Some(Size::Percent(one)), Some(Size::Percent(other))) => one <= other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        all.iter().map(pair).collect()
    }

    fn refused(groups: &[&[(&str, &str)]]) -> Option<String> {
        let groups: Vec<_> = groups.iter().map(|group| pairs(group)).collect();
        let groups: Vec<&[(String, String)]> = groups.iter().map(Vec::as_slice).collect();
        outranked(&groups).map(|error| error.to_string())
    }

    const UUID: &str = "GPUSHARE_MEM_LIMIT_GPU_8932f937_d72c_4106_c12f_20bd9faed9f6";

    #[test]
    fn a_variable_that_outranks_a_lower_limit_is_refused_by_name() {
        for (higher, lower) in [
            (
                ("GPUSHARE_MEM_LIMIT_0", "100%"),
                ("GPUSHARE_MEM_LIMIT", "4GiB"),
            ),
            (
                ("GPUSHARE_MEM_LIMIT_1", "8GiB"),
                ("GPUSHARE_MEM_LIMIT", "4GiB"),
            ),
            (
                ("GPUSHARE_MEM_LIMIT_0", "50%"),
                ("GPUSHARE_MEM_LIMIT", "25%"),
            ),
            ((UUID, "8GiB"), ("GPUSHARE_MEM_LIMIT_0", "4GiB")),
            ((UUID, "8GiB"), ("GPUSHARE_MEM_LIMIT", "4GiB")),
            (
                ("GPUSHARE_MEM_LIMIT", "8GiB"),
                ("CUDA_DEVICE_MEMORY_LIMIT_0", "4g"),
            ),
            (
                ("GPUSHARE_MEM_REQUEST", "1GiB"),
                ("CUDA_DEVICE_MEMORY_LIMIT_0", "4g"),
            ),
            (
                ("CUDA_DEVICE_MEMORY_LIMIT", "8g"),
                ("NVIDIA_GPU_MEMORY_LIMIT", "4096"),
            ),
            (("GPUSHARE_SM_LIMIT_0", "100"), ("GPUSHARE_SM_LIMIT", "30")),
            (("GPUSHARE_SM_LIMIT", "50"), ("CUDA_DEVICE_SM_LIMIT", "30")),
            (
                ("GPUSHARE_SM_REQUEST_0", "10"),
                ("CUDA_DEVICE_SM_LIMIT", "30"),
            ),
        ] {
            for both in [[higher, lower], [lower, higher]] {
                let told = refused(&[&both]).unwrap_or_default();
                for (name, value) in both {
                    assert!(
                        told.contains(&format!("{name}={value:?}")),
                        "{both:?}: {told}"
                    );
                }
                assert!(told.starts_with(higher.0), "{told}");
            }
        }
    }

    #[test]
    fn a_variable_that_lowers_a_limit_or_is_anothers_devices_is_taken() {
        for all in [
            &[
                ("GPUSHARE_MEM_LIMIT_0", "2GiB"),
                ("GPUSHARE_MEM_LIMIT", "4GiB"),
            ][..],
            &[
                ("GPUSHARE_MEM_LIMIT_0", "4GiB"),
                ("GPUSHARE_MEM_LIMIT", "4GiB"),
            ],
            &[
                ("GPUSHARE_MEM_LIMIT_0", "4GiB"),
                ("GPUSHARE_MEM_LIMIT", "100%"),
            ],
            &[
                ("GPUSHARE_MEM_LIMIT_0", "4GiB"),
                ("GPUSHARE_MEM_LIMIT_1", "8GiB"),
            ],
            &[(UUID, "2GiB"), ("GPUSHARE_MEM_LIMIT_0", "4GiB")],
            &[
                ("GPUSHARE_MEM_LIMIT", "2GiB"),
                ("CUDA_DEVICE_MEMORY_LIMIT", "4g"),
            ],
            &[
                ("GPUSHARE_MEM_LIMIT_1", "9GiB"),
                ("CUDA_DEVICE_MEMORY_LIMIT_0", "4g"),
            ],
            &[
                ("CUDA_DEVICE_MEMORY_LIMIT_0", "0"),
                ("CUDA_DEVICE_MEMORY_LIMIT", "4g"),
            ],
            &[
                ("GPUSHARE_MEM_REQUEST", "1GiB"),
                ("GPUSHARE_MEM_LIMIT", "4GiB"),
            ],
            &[
                ("GPUSHARE_MEM_REQUEST_0", "1GiB"),
                ("GPUSHARE_MEM_LIMIT", "4GiB"),
            ],
            &[
                ("GPUSHARE_MEM_REQUEST_0", "1GiB"),
                ("GPUSHARE_MEM_LIMIT", "2GiB"),
                ("CUDA_DEVICE_MEMORY_LIMIT", "4g"),
            ],
            &[
                ("GPUSHARE_MEM_VIEW", "request"),
                ("CUDA_DEVICE_MEMORY_LIMIT", "4g"),
            ],
            &[
                ("GPUSHARE_SM_LIMIT", "30"),
                ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10"),
            ],
            &[("GPUSHARE_SM_LIMIT", "90"), ("GPUSHARE_MEM_LIMIT", "25%")],
            &[("GPUSHARE_PRIORITY", "400"), ("GPUSHARE_MEM_LIMIT", "4GiB")],
            &[
                ("GPUSHARE_MEM_LIMIT_0", "plenty"),
                ("GPUSHARE_MEM_LIMIT", "4GiB"),
            ],
        ] {
            assert_eq!(refused(&[all]), None, "{all:?}");
        }
    }

    #[test]
    fn a_group_that_hides_a_later_ones_limit_has_one_as_low() {
        let limit: &[(&str, &str)] = &[("GPUSHARE_MEM_LIMIT", "4GiB")];
        for hides in [
            ("GPUSHARE_MEM_LIMIT", "100%"),
            ("GPUSHARE_MEM_LIMIT_0", "1GiB"),
            ("GPUSHARE_MEM_REQUEST", "1GiB"),
            ("GPUSHARE_MEM_VIEW", "request"),
        ] {
            let told = refused(&[&[hides], limit]).unwrap_or_default();
            assert!(told.starts_with(hides.0), "{hides:?}: {told}");
            // The group that counts may say whatever it likes.
            assert_eq!(refused(&[&[], &[hides]]), None);
        }
        for taken in [
            &[("GPUSHARE_MEM_LIMIT", "4GiB")][..],
            &[
                ("GPUSHARE_MEM_LIMIT", "1GiB"),
                ("GPUSHARE_MEM_VIEW", "request"),
            ],
            &[("GPUSHARE_SM_LIMIT", "100")],
            &[("GPUSHARE_PRIORITY", "400")],
        ] {
            assert_eq!(refused(&[taken, limit]), None, "{taken:?}");
        }
        assert_eq!(refused(&[limit, &[("GPUSHARE_MEM_LIMIT_0", "9GiB")]]), None);
    }
}
