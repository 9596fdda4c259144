//! Variables of limits as the flags of `run` that stand for them.

use super::layer::Selector;
use super::table;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
