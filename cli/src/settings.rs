//! From flags and the inherited environment to the program's limits.
//!
//! A flag wins over the inherited variable it stands for: one for every device clears all inherited
//! values of its kind, one for a single device only that device's.

use crate::args::{Amounts, Share, Terms};
use crate::failure::Failure;
use gpushare_protocol::limits::{self, Kind, LimitError, Limits, flag};
use gpushare_protocol::mps::ACTIVE_THREADS;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// A whole environment on its way to the program.
pub(crate) type Environment = BTreeMap<OsString, OsString>;

/// A flag that may be given for each device: its name, the variable it stands for, the kind of its
/// amount.
#[derive(Clone, Copy)]
struct Amount(&'static str, &'static str, Kind);

const MEM_LIMIT: Amount = Amount("--mem-limit", "GPUSHARE_MEM_LIMIT", Kind::Memory);
const MEM_REQUEST: Amount = Amount("--mem-request", "GPUSHARE_MEM_REQUEST", Kind::Request);
const SM_LIMIT: Amount = Amount("--sm-limit", "GPUSHARE_SM_LIMIT", Kind::Time);
const SM_REQUEST: Amount = Amount("--sm-request", "GPUSHARE_SM_REQUEST", Kind::Time);
const VIEW: (&str, &str) = ("--mem-view", "GPUSHARE_MEM_VIEW");

/// The variables that flags were written into, each with its flag and what that was given.
#[derive(Debug, Default)]
pub(crate) struct Origins(BTreeMap<String, (&'static str, String)>);

impl Origins {
    /// Whether a flag stands behind the variable.
    pub(crate) fn have(&self, variable: &str) -> bool {
        self.0.contains_key(variable)
    }

    /// Blames the flag where the variable came from one.
    pub(crate) fn blame(&self, mut error: LimitError) -> LimitError {
        if let Some((flag, given)) = self.0.get(&error.variable) {
            (*flag).clone_into(&mut error.variable);
            error.value.clone_from(given);
        }
        // Another amount that it contradicts is told as it was given, too.
        for (variable, (flag, given)) in &self.0 {
            let value = given.rsplit_once('=').map_or(&**given, |(_, value)| value);
            let told = format!(" {variable}={value}");
            if error.problem.ends_with(&told) {
                let at = error.problem.len() - told.len();
                error
                    .problem
                    .replace_range(at.., &format!(" {flag} {given}"));
            }
        }
        error
    }
}

/// Writes the flags into `environment`, which then holds limits that are understood.
pub(crate) fn apply(share: &Share, environment: &mut Environment) -> Result<Origins, Failure> {
    let mut origins = BTreeMap::new();
    let chosen = chosen(&share.amounts)?;
    environment.retain(|known, _| {
        let replaces = |known: &str| {
            let mut chosen = chosen.iter();
            chosen.any(|set| limits::replaces(&set.variable, known, &[]))
        };
        !known.to_str().is_some_and(replaces)
    });
    for Chosen {
        flag,
        given,
        variable,
        value,
    } in chosen
    {
        origins.insert(variable.clone(), (flag, given));
        environment.insert(variable.into(), value.into());
    }
    if let Some(view) = &share.mem_view {
        origins.insert(VIEW.1.to_owned(), (VIEW.0, view.clone()));
        environment.insert(VIEW.1.into(), view.into());
    }
    for (flag, variable, value) in share.terms.given() {
        origins.insert(variable.to_owned(), (flag, value.to_owned()));
        environment.insert(variable.into(), value.into());
    }
    let origins = Origins(origins);
    let limits = Limits::from_env(environment.clone()).map_err(|error| origins.blame(error))?;
    if limits.disabled() && !origins.0.is_empty() {
        return Err(Failure::ours(
            "GPUSHARE_DISABLE=1 is set, so the limits asked for would not be kept; unset it, or give no limits",
        ));
    }
    Ok(origins)
}

/// The limits of the program that sees these `devices`: of one device the flag counts, also where
/// the inherited variable names the device in another way. By a flag it is named once.
pub(crate) fn on_devices(
    share: &Share,
    environment: &mut Environment,
    origins: &Origins,
    devices: &[[u8; 16]],
) -> Result<Limits, Failure> {
    let chosen = chosen(&share.amounts)?;
    let takes_place = |set: &Chosen, known: &str| limits::replaces(&set.variable, known, devices);
    for (at, one) in chosen.iter().enumerate() {
        let is_same = |other: &&Chosen| {
            takes_place(one, &other.variable) && takes_place(other, &one.variable)
        };
        if let Some(other) = chosen.iter().take(at).find(is_same) {
            return Err(Failure::usage(format!(
                "{} is given twice for the same device ({} and {}); give it once",
                one.flag, other.given, one.given
            )));
        }
    }
    environment.retain(|known, _| {
        let is_replaced =
            |known: &str| !origins.have(known) && chosen.iter().any(|set| takes_place(set, known));
        !known.to_str().is_some_and(is_replaced)
    });
    Ok(Limits::from_env(environment.clone()).map_err(|error| origins.blame(error))?)
}

/// The variables of a tenant's limits: the part of an environment that is sent to a daemon.
pub(crate) fn of_limits(environment: &Environment) -> Vec<(String, String)> {
    let texts = environment
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    texts
        .filter(|(name, _)| Limits::reads(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Removes the variables that say limits.
pub(crate) fn forget_limits(environment: &mut Environment) {
    // The driver reads its own again, where it is an MPS client's.
    environment
        .retain(|name, _| name == ACTIVE_THREADS || !name.to_str().is_some_and(Limits::reads));
}

/// The flags of amounts, each with its values.
fn amounts(given: &Amounts) -> impl Iterator<Item = (Amount, &[String])> {
    [
        (MEM_LIMIT, &*given.mem_limit),
        (MEM_REQUEST, &*given.mem_request),
        (SM_LIMIT, &*given.sm_limit),
        (SM_REQUEST, &*given.sm_request),
    ]
    .into_iter()
}

/// The flags of amounts that were given, as (flag, variable), the variable without its device.
pub(crate) fn given(amounts: &Amounts) -> impl Iterator<Item = (&'static str, &'static str)> {
    self::amounts(amounts)
        .filter(|(_, values)| !values.is_empty())
        .map(|(Amount(name, variable, _), _)| (name, variable))
}

/// The flags of amounts as the variables they stand for, with their values.
pub(crate) fn variables(given: &Amounts) -> Result<Vec<(String, String)>, Failure> {
    let chosen = chosen(given)?.into_iter();
    Ok(chosen.map(|set| (set.variable, set.value)).collect())
}

/// The flags of terms as the variables they stand for, each with a value that is understood.
pub(crate) fn terms(given: &Terms) -> Result<Vec<(String, String)>, Failure> {
    let read = |(flag, variable, value): (&str, &str, &str)| {
        Limits::from_env([(variable.into(), value.into())]).map_err(|mut error| {
            flag.clone_into(&mut error.variable);
            error
        })?;
        Ok::<_, Failure>((variable.to_owned(), value.to_owned()))
    };
    given.given().map(read).collect()
}

/// A flag of an amount, what it was given, and the variable it stands for with its value.
pub(crate) struct Chosen {
    pub(crate) flag: &'static str,
    pub(crate) given: String,
    pub(crate) variable: String,
    pub(crate) value: String,
}

/// The flags of amounts, each with its variable.
pub(crate) fn chosen(given: &Amounts) -> Result<Vec<Chosen>, Failure> {
    let mut chosen: Vec<Chosen> = Vec::new();
    for (Amount(name, base, kind), values) in amounts(given) {
        for value in values {
            let (device, text) = flag(kind, name, value)?;
            let variable = device.variable(base);
            if chosen.iter().any(|set| set.variable == variable) {
                return Err(Failure::usage(format!(
                    "{name} is given twice for the same device ({device}); give it once"
                )));
            }
            chosen.push(Chosen {
                flag: name,
                given: value.clone(),
                variable,
                value: text.to_owned(),
            });
        }
    }
    Ok(chosen)
}

/// Names the flag of the view in a `message` that begins with its variable, if it was given.
pub(crate) fn blame_view(share: &Share, message: &mut String) {
    if share.mem_view.is_some() && message.starts_with(VIEW.1) {
        message.replace_range(..VIEW.1.len(), VIEW.0);
    }
}

/// Names the flag in a `message` that begins with the variable which came from it.
pub(crate) fn blame_flags(amounts: &Amounts, terms: &Terms, message: &mut String) {
    for set in chosen(amounts).unwrap_or_default() {
        let blamed = format!("{}={:?} ", set.variable, set.value);
        if message.starts_with(&blamed) {
            let flag = format!("{}={:?} ", set.flag, set.given);
            return message.replace_range(..blamed.len(), &flag);
        }
    }
    let terms = terms.given().map(|(flag, variable, _)| (flag, variable));
    let mut given = given(amounts).chain(terms);
    if let Some((flag, variable)) = given.find(|(_, variable)| message.starts_with(variable)) {
        message.replace_range(..variable.len(), flag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        pairs
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    fn after(share: &Share, inherited: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let mut environment = environment(inherited);
        apply(share, &mut environment).map_err(|failure| failure.message)?;
        let show =
            |(name, value): (OsString, OsString)| format!("{}={}", name.display(), value.display());
        Ok(environment.into_iter().map(show).collect())
    }

    fn share(limits: &[&str], requests: &[&str]) -> Share {
        let own = |values: &[&str]| values.iter().map(ToString::to_string).collect();
        Share {
            amounts: Amounts {
                mem_limit: own(limits),
                mem_request: own(requests),
                ..Amounts::default()
            },
            ..Share::default()
        }
    }

    #[test]
    fn a_flag_for_every_device_clears_all_inherited_values_of_its_kind() {
        let inherited = [
            ("GPUSHARE_MEM_LIMIT", "1GiB"),
            ("GPUSHARE_MEM_LIMIT_0", "2GiB"),
            ("GPUSHARE_MEM_REQUEST_1", "3GiB"),
            ("PATH", "/bin"),
        ];
        let expected = [
            "GPUSHARE_MEM_LIMIT=4GiB",
            "GPUSHARE_MEM_REQUEST_1=3GiB",
            "PATH=/bin",
        ];
        assert_eq!(after(&share(&["4GiB"], &[]), &inherited).unwrap(), expected);
    }

    #[test]
    fn a_flag_for_one_device_replaces_only_that_device() {
        let inherited = [
            ("GPUSHARE_MEM_LIMIT", "1GiB"),
            ("GPUSHARE_MEM_LIMIT_0", "2GiB"),
            ("GPUSHARE_MEM_LIMIT_1", "3GiB"),
        ];
        let expected = [
            "GPUSHARE_MEM_LIMIT=1GiB",
            "GPUSHARE_MEM_LIMIT_0=4GiB",
            "GPUSHARE_MEM_LIMIT_1=3GiB",
        ];
        assert_eq!(
            after(&share(&["0=4GiB"], &[]), &inherited).unwrap(),
            expected
        );
        let uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
        let by_uuid = after(&share(&[&format!("{uuid}=50%")], &[]), &[]).unwrap();
        assert_eq!(
            by_uuid,
            ["GPUSHARE_MEM_LIMIT_GPU_8932f937_d72c_4106_c12f_20bd9faed9f6=50%"]
        );
    }

    #[test]
    fn a_share_of_time_is_a_flag_like_one_of_memory() {
        let amounts = Amounts {
            sm_limit: vec!["30%".to_owned(), "1=12.5".to_owned()],
            sm_request: vec!["10".to_owned()],
            ..Amounts::default()
        };
        let share = Share {
            amounts: amounts.clone(),
            ..Share::default()
        };
        let inherited = [("GPUSHARE_SM_LIMIT_0", "90")];
        let expected = [
            "GPUSHARE_SM_LIMIT=30%",
            "GPUSHARE_SM_LIMIT_1=12.5",
            "GPUSHARE_SM_REQUEST=10",
        ];
        assert_eq!(after(&share, &inherited).unwrap(), expected);
        let pairs = variables(&amounts).unwrap();
        let show = |(name, value): (String, String)| format!("{name}={value}");
        assert_eq!(pairs.into_iter().map(show).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_change_given_twice_for_one_device_is_refused() {
        let twice = Amounts {
            mem_limit: vec!["1=1GiB".to_owned(), "1=2GiB".to_owned()],
            ..Amounts::default()
        };
        let message = variables(&twice).unwrap_err().message;
        assert!(
            message.starts_with("--mem-limit is given twice"),
            "{message}"
        );
        let once = Amounts {
            mem_limit: vec!["1=1GiB".to_owned(), "2GiB".to_owned()],
            ..Amounts::default()
        };
        assert_eq!(variables(&once).unwrap().len(), 2);
    }

    #[test]
    fn without_flags_the_environment_is_inherited_as_it_is() {
        let inherited = ["GPUSHARE_MEM_LIMIT=1GiB", "GPUSHARE_MEM_LIMIT_0=2GiB"];
        let pairs = inherited.map(|pair| pair.split_once('=').unwrap());
        assert_eq!(after(&Share::default(), &pairs).unwrap(), inherited);
    }

    #[test]
    fn a_refused_flag_is_blamed_by_its_own_name() {
        for (share, name) in [
            (share(&["4gb"], &[]), "--mem-limit=\"4gb\""),
            (share(&["16=4GiB"], &[]), "--mem-limit=\"16=4GiB\""),
            (share(&["1GiB"], &["2GiB"]), "--mem-request=\"2GiB\""),
            (share(&["1GiB", "2GiB"], &[]), "--mem-limit is given twice"),
            (
                Share {
                    amounts: Amounts {
                        sm_limit: vec!["30".into()],
                        sm_request: vec!["40".into()],
                        ..Amounts::default()
                    },
                    ..Share::default()
                },
                "--sm-request=\"40\"",
            ),
            (
                Share {
                    mem_view: Some("all".into()),
                    ..Share::default()
                },
                "--mem-view=\"all\"",
            ),
        ] {
            let message = after(&share, &[]).unwrap_err();
            assert!(message.starts_with(name), "{message}");
        }
        let both = after(&share(&["1GiB"], &["2GiB"]), &[]).unwrap_err();
        assert!(both.contains("above the limit, --mem-limit 1GiB"), "{both}");
        let one = after(&share(&[], &["2GiB"]), &[("GPUSHARE_MEM_LIMIT", "1GiB")]).unwrap_err();
        assert!(one.contains("limit, GPUSHARE_MEM_LIMIT=1GiB"), "{one}");
    }

    #[test]
    fn an_inherited_bad_value_is_blamed_by_its_variable() {
        let message =
            after(&share(&["1GiB"], &[]), &[("GPUSHARE_MEM_REQUEST", "2GiB")]).unwrap_err();
        assert!(
            message.starts_with("GPUSHARE_MEM_REQUEST=\"2GiB\""),
            "{message}"
        );
    }

    #[test]
    fn limits_are_not_asked_of_a_library_told_to_stay_out() {
        let disabled = [("GPUSHARE_DISABLE", "1")];
        assert!(
            after(&share(&["1GiB"], &[]), &disabled)
                .unwrap_err()
                .contains("GPUSHARE_DISABLE")
        );
        assert!(after(&Share::default(), &disabled).is_ok());
    }

    #[test]
    fn a_refusal_names_the_flag_only_where_one_was_given() {
        let mut given = share(&[], &["0=9GiB"]);
        given.terms.priority = Some("600".to_owned());
        let said = |of: &Share, message: &str| {
            let mut message = message.to_owned();
            blame_flags(&of.amounts, &of.terms, &mut message);
            message
        };
        let request = "GPUSHARE_MEM_REQUEST_0=\"9GiB\" is refused";
        let flag = "--mem-request=\"0=9GiB\" is refused";
        assert_eq!(said(&given, request), flag);
        let priority = "GPUSHARE_PRIORITY=600: above 500";
        assert_eq!(said(&given, priority), "--priority=600: above 500");
        for message in [request, priority] {
            assert_eq!(said(&Share::default(), message), message);
        }
    }
}
