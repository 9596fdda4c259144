//! Fault injection: `SOFTGPU_FAIL=function:nth:ERROR[,…]` makes the nth call of a function in a
//! process (from 1, `n+` for that and each later one, or `*` for every call) fail before it does
//! anything. `function` is an exported name, or a base name, which means all its versions and
//! suffixes. With `SIGKILL` as its error the process is killed there, and with `SIGSTOP` it is
//! stopped there and makes the call once it is continued: so a process dies, or another one does,
//! at a chosen step of what it does. With `!` behind the error the process's contexts are lost to
//! it, as by a fault of their work; with `!!` the calling thread's current context alone is.
#![allow(unsafe_code, reason = "kill is a C function")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use gpushare_cuda_abi::cuda::CUresult;
use gpushare_cuda_abi::nvml::nvmlReturn_t;

use crate::context;

/// The environment variable that holds the rules.
pub const VARIABLE: &str = "SOFTGPU_FAIL";

#[derive(Debug)]
struct Rule {
    function: String,
    /// The first call and the last one that it is for.
    calls_of: (u64, u64),
    effect: Effect,
    calls: AtomicU64,
}

/// Every call.
const ALL: (u64, u64) = (1, u64::MAX);

/// The effect of a rule at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It returns this.
    Error(u32),
    /// The same, and all contexts are lost to it.
    Fault(u32),
    /// The same, and the current context is.
    FaultHere(u32),
    /// The process gets this signal.
    Signal(i32),
}

/// The error that a rule demands for this call of the exported function `symbol`. Each query counts
/// as one call.
pub fn injected(symbol: &str) -> Option<CUresult> {
    static RULES: OnceLock<Vec<Rule>> = OnceLock::new();
    let rules = RULES.get_or_init(from_env);
    if rules.is_empty() {
        None
    } else {
        match due(rules, symbol)? {
            Effect::Error(error) => Some(CUresult(error)),
            Effect::Fault(error) => {
                let error = CUresult(error);
                let all = context::live().into_iter();
                all.for_each(|context| context.poison(error));
                Some(error)
            }
            Effect::FaultHere(error) => {
                let error = CUresult(error);
                context::current_unchecked()
                    .iter()
                    .for_each(|context| context.poison_alone(error));
                Some(error)
            }
            Effect::Signal(signal) => {
                // SAFETY: no memory is involved.
                unsafe { libc::kill(libc::getpid(), signal) };
                None
            }
        }
    }
}

/// As [`injected`], for functions that do not return a `CUresult` (NVML): the bare number.
pub fn injected_number(symbol: &str) -> Option<u32> {
    injected(symbol).map(|result| result.0)
}

fn due(rules: &[Rule], symbol: &str) -> Option<Effect> {
    let mut answer = None;
    for rule in rules.iter().filter(|rule| is_named(&rule.function, symbol)) {
        let call = rule.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if answer.is_none() && (rule.calls_of.0..=rule.calls_of.1).contains(&call) {
            answer = Some(rule.effect);
        }
    }
    answer
}

/// Whether a rule for `function` is one for the exported function `symbol`.
pub(crate) fn is_named(function: &str, symbol: &str) -> bool {
    function == symbol || function == base(symbol)
}

/// The name without version and default-stream suffix: the base name of `cuMemcpyHtoDAsync_v2_ptsz`
/// is `cuMemcpyHtoDAsync`.
fn base(symbol: &str) -> &str {
    let symbol = symbol
        .strip_suffix("_ptsz")
        .or_else(|| symbol.strip_suffix("_ptds"))
        .unwrap_or(symbol);
    match symbol.rsplit_once("_v") {
        Some((base, version))
            if !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit()) =>
        {
            base
        }
        _ => symbol,
    }
}

fn from_env() -> Vec<Rule> {
    let Ok(text) = std::env::var(VARIABLE) else {
        return Vec::new();
    };
    match parse(&text) {
        Ok(rules) => rules,
        Err(pair) => {
            // A test that requested a fault and got none would pass for the wrong reason: print the
            // error and make every `cuInit` fail.
            eprintln!(
                "softgpu: {VARIABLE}: `{pair}` is not function:nth:ERROR, such as cuMemMap:3:CUDA_ERROR_OUT_OF_MEMORY"
            );
            vec![Rule {
                function: "cuInit".into(),
                calls_of: ALL,
                effect: Effect::Error(CUresult::INVALID_VALUE.0),
                calls: AtomicU64::new(0),
            }]
        }
    }
}

fn parse(text: &str) -> Result<Vec<Rule>, &str> {
    text.split(',')
        .filter(|pair| !pair.trim().is_empty())
        .map(|pair| rule(pair.trim()).ok_or(pair))
        .collect()
}

fn rule(pair: &str) -> Option<Rule> {
    let mut parts = pair.split(':');
    let (function, nth, error) = (parts.next()?, parts.next()?, parts.next()?);
    let number = |nth: &str| nth.parse().ok().filter(|nth| *nth > 0);
    let calls_of = match nth.strip_suffix('+') {
        _ if nth == "*" => ALL,
        Some(from) => (number(from)?, u64::MAX),
        None => (number(nth)?, number(nth)?),
    };
    let signal = match error {
        "SIGKILL" => Some(Effect::Signal(libc::SIGKILL)),
        "SIGSTOP" => Some(Effect::Signal(libc::SIGSTOP)),
        _ => None,
    };
    let name = error.trim_end_matches('!');
    let failing = match error.len() - name.len() {
        0 => Effect::Error,
        1 => Effect::Fault,
        2 => Effect::FaultHere,
        _ => return None,
    };
    let effect = signal.or_else(|| error_of(name).map(failing))?;
    (parts.next().is_none() && !function.is_empty()).then(|| Rule {
        function: function.to_owned(),
        calls_of,
        effect,
        calls: AtomicU64::new(0),
    })
}

/// The number of an error by its name, or as it is written.
pub(crate) fn error_of(name: &str) -> Option<u32> {
    let results = CUresult::NAMES.iter().chain(nvmlReturn_t::NAMES);
    let mut named = results.filter(|(_, known)| known.to_str() == Ok(name));
    let named = named.next().map(|(number, _)| *number);
    named.or_else(|| name.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_nth_call_of_the_named_function_fails() {
        let rules = parse("cuMemMap:2:CUDA_ERROR_OUT_OF_MEMORY").unwrap();
        assert_eq!(due(&rules, "cuMemMap"), None);
        assert_eq!(due(&rules, "cuMemUnmap"), None);
        assert_eq!(due(&rules, "cuMemMap"), Some(Effect::Error(2)));
        assert_eq!(due(&rules, "cuMemMap"), None);
    }

    #[test]
    fn each_call_from_the_nth_on_fails() {
        let rules = parse("cuMemMap:2+:CUDA_ERROR_OUT_OF_MEMORY").unwrap();
        assert_eq!(due(&rules, "cuMemMap"), None);
        for _ in 0..3 {
            assert_eq!(due(&rules, "cuMemMap"), Some(Effect::Error(2)));
        }
        assert!(parse("cuMemMap:+:2").is_err());
    }

    #[test]
    fn errors_of_both_libraries_are_known_by_name() {
        let rules = parse("nvmlDeviceGetMemoryInfo:1:NVML_ERROR_GPU_IS_LOST").unwrap();
        assert_eq!(
            due(&rules, "nvmlDeviceGetMemoryInfo_v2"),
            Some(Effect::Error(15))
        );
    }

    #[test]
    fn a_signal_is_due_at_its_call_alone() {
        let rules = parse("cuMemUnmap:2:SIGKILL,cuMemMap:*:SIGSTOP").unwrap();
        assert_eq!(due(&rules, "cuMemUnmap"), None);
        let killed = Some(Effect::Signal(libc::SIGKILL));
        assert_eq!(due(&rules, "cuMemUnmap"), killed);
        let stopped = Some(Effect::Signal(libc::SIGSTOP));
        assert_eq!(due(&rules, "cuMemMap"), stopped);
        assert!(parse("cuMemMap:1:SIGTERM").is_err());
    }

    #[test]
    fn a_mark_behind_the_error_loses_the_contexts() {
        let rules = parse("cuMemMap:1:700!,cuMemUnmap:1:700").unwrap();
        assert_eq!(due(&rules, "cuMemMap"), Some(Effect::Fault(700)));
        assert_eq!(due(&rules, "cuMemUnmap"), Some(Effect::Error(700)));
        assert!(parse("cuMemMap:1:SIGKILL!").is_err());
        let rules = parse("cuMemMap:1:700!!").unwrap();
        assert_eq!(due(&rules, "cuMemMap"), Some(Effect::FaultHere(700)));
        assert!(parse("cuMemMap:1:700!!!").is_err());
    }

    #[test]
    fn a_base_name_matches_every_version_and_suffix() {
        let rules = parse("cuMemcpyHtoDAsync:*:700").unwrap();
        assert_eq!(
            due(&rules, "cuMemcpyHtoDAsync_v2_ptsz"),
            Some(Effect::Error(700))
        );
        assert_eq!(due(&rules, "cuMemcpyHtoDAsync"), Some(Effect::Error(700)));
        assert_eq!(due(&rules, "cuMemcpyHtoD_v2"), None);
    }

    #[test]
    fn rules_that_do_not_parse_are_refused() {
        for text in [
            "cuMemMap",
            "cuMemMap:0:700",
            "cuMemMap:1:NO_SUCH_ERROR",
            ":1:700",
            "cuMemMap:1:700:x",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("").unwrap().is_empty());
    }
}
