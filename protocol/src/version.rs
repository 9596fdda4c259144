//! Which build a program is.

/// The version, and behind a plus the commit that was packaged (`scripts/package.sh` says it). It
/// is a macro so that another commit compiles the programs anew, and nothing below them.
#[macro_export]
macro_rules! build {
    () => {
        match option_env!("GPUSHARE_BUILD") {
            Some(build) if !build.is_empty() => build,
            _ => env!("CARGO_PKG_VERSION"),
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_build_is_the_version_and_of_a_package_its_commit() {
        let version = env!("CARGO_PKG_VERSION");
        let commit = build!().strip_prefix(version).unwrap();
        assert!(commit.is_empty() || commit.starts_with('+'), "{commit}");
        assert_eq!(
            commit.is_empty(),
            option_env!("GPUSHARE_BUILD").is_none_or(str::is_empty)
        );
    }
}
