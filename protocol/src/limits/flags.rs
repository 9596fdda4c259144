//! The flags of `run` and the variables of limits that they stand for.

use super::error::LimitError;
use super::layer::Selector;
use super::{compute, table};
use crate::size::{self, Size};

/// The flags of `run` that say the same, ready to be pasted, also where they say what is so by
/// default: a node's default may be another. An alias has none and is told as a variable.
pub fn as_flags(environment: &[(String, String)]) -> String {
    let flags = environment
        .iter()
        .filter_map(|(name, value)| word(name, value));
    flags.collect::<Vec<_>>().join(" ")
}

fn word(name: &str, value: &str) -> Option<String> {
    let (row, device) = table::place(name)?;
    let Some(flag) = table::base(row).strip_prefix("GPUSHARE_") else {
        return Some(format!("{name}={value}"));
    };
    let flag = flag.to_ascii_lowercase().replace('_', "-");
    Some(match device {
        Selector::All => format!("--{flag} {value}"),
        device => format!("--{flag} {device}={value}"),
    })
}

/// The kind of amount in a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory: a size.
    Memory,
    /// Guaranteed memory: a size, or 0.
    Request,
    /// A device's time: a percentage.
    Time,
}

/// Reads the value of `--mem-limit` and its like: `AMOUNT`, `<n>=AMOUNT` or `<UUID>=AMOUNT`.
/// Returns the device and the amount as text, which a `GPUSHARE_*` variable takes unchanged.
///
/// # Errors
/// As for the variables, naming `flag`.
pub fn flag<'a>(kind: Kind, flag: &str, value: &'a str) -> Result<(Selector, &'a str), LimitError> {
    let (device, amount) = value
        .split_once('=')
        .map_or((None, value), |(device, amount)| (Some(device), amount));
    let device = device.map_or(Some(Selector::All), |device| Selector::parse(device, '-'));
    let accepted = || match kind {
        Kind::Memory => format!(
            "SIZE, <0 to 15>=SIZE or <GPU UUID>=SIZE; a SIZE is {}",
            size::ACCEPTED
        ),
        Kind::Request => format!(
            "SIZE, <0 to 15>=SIZE or <GPU UUID>=SIZE; a SIZE is {}",
            size::REQUESTED
        ),
        Kind::Time => format!(
            "PERCENT, <0 to 15>=PERCENT or <GPU UUID>=PERCENT; a PERCENT is {}",
            compute::ACCEPTED
        ),
    };
    let refuse = |problem| LimitError::new(flag, value, problem, accepted());
    let device = device.ok_or_else(|| refuse("there is no such device".to_owned()))?;
    let wrong = |bad| table::problem(bad, amount);
    match kind {
        Kind::Memory => Size::parse(amount).map(drop).map_err(wrong),
        Kind::Request => Size::parse_request(amount).map(drop).map_err(wrong),
        Kind::Time => compute::parse(amount)
            .map(drop)
            .ok_or_else(|| compute::wrong(amount).to_owned()),
    }
    .map_err(refuse)?;
    Ok((device, amount))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";

    #[test]
    fn limits_are_told_as_the_flags_that_give_them() {
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let environment = [
            ("GPUSHARE_MEM_LIMIT", "12GiB"),
            ("GPUSHARE_MEM_REQUEST_1", "4GiB"),
            ("GPUSHARE_WAIT_TIMEOUT", "5m"),
            ("CUDA_DEVICE_SM_LIMIT", "30"),
            ("GPUSHARE_OVERSUBSCRIBE", "off"),
            ("PATH", "/bin"),
        ]
        .map(pair);
        let flags = "--mem-limit 12GiB --mem-request 1=4GiB --wait-timeout 5m \
                     CUDA_DEVICE_SM_LIMIT=30 --oversubscribe off";
        assert_eq!(as_flags(&environment), flags);
        assert_eq!(as_flags(&[]), "");
    }

    #[test]
    fn a_flag_is_a_size_or_a_device_and_a_size() {
        let zero = Selector::Ordinal(0);
        assert_eq!(
            flag(Kind::Memory, "--mem-limit", "4GiB"),
            Ok((Selector::All, "4GiB"))
        );
        assert_eq!(
            flag(Kind::Memory, "--mem-limit", "0=50%"),
            Ok((zero, "50%"))
        );
        assert_eq!(
            flag(Kind::Memory, "--mem-limit", &format!("{UUID}=1G"))
                .unwrap()
                .0,
            Selector::parse(UUID, '-').unwrap()
        );
        for value in [
            "", "0", "=4GiB", "16=4GiB", "0=", "0=4gb", "x=4GiB", "0=0", "0=1=2",
        ] {
            let error = flag(Kind::Memory, "--mem-limit", value).unwrap_err();
            assert_eq!(
                (error.variable.as_str(), error.value.as_str()),
                ("--mem-limit", value)
            );
        }
    }
}
