//! Which GPU the program gets.

use crate::devices;
use crate::failure::Failure;
use crate::links::Links;
use crate::settings::Environment;
use gpushare_protocol::uuid::Uuid;
use gpushare_sys::devices::Device;
use std::ffi::OsStr;
use std::path::Path;
use std::str::FromStr;

/// The variables that tell a CUDA program which GPUs it sees.
pub(crate) const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// The order in which CUDA counts GPUs.
pub(crate) const ORDER: &str = "CUDA_DEVICE_ORDER";
/// That of `nvidia-smi` and of the daemon. CUDA's own puts the fastest first.
pub(crate) const BY_BUS: &str = "PCI_BUS_ID";
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const SOFT_SPEC: &str = "SOFTGPU";
/// Names the devices of one run that gave no name of its own.
const SOFT_TOKEN: &str = "SOFTGPU_PRIVATE";
/// The driver's answer where `CUDA_VISIBLE_DEVICES` names no device.
const NO_DEVICE: &str = "CUDA_ERROR_NO_DEVICE";
/// How the name of a software GPU begins that a benchmark makes, before the number of its process.
const BENCHMARKS: &str = "bench-";
const HINT: &str = "try `--gpu soft` for a GPU without hardware";

/// The value of `--gpu`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gpu {
    /// Any real GPU of the machine.
    Auto,
    /// One real GPU, as `CUDA_VISIBLE_DEVICES` names it. An index counts as `nvidia-smi` does,
    /// unless the environment sets another order.
    Real(String),
    /// The software GPU, with its specification if one was given.
    Soft(Option<String>),
}

impl FromStr for Gpu {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        match text.split_once(':') {
            Some(("soft", spec)) => Ok(Self::Soft(Some(spec.to_owned()))),
            _ if text == "soft" => Ok(Self::Soft(None)),
            _ if text == "auto" => Ok(Self::Auto),
            _ if Uuid::parse(text, '-').is_some() => Ok(Self::Real(text.to_owned())),
            _ if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(Self::Real(text.to_owned()))
            }
            _ if text.split(',').all(|one| one.parse::<u8>().is_ok()) => {
                Err(Failure::usage(format!(
                    "--gpu={text:?} is refused: it names one GPU; for these set CUDA_VISIBLE_DEVICES={text} \
                     and leave --gpu out"
                )))
            }
            _ => Err(Failure::usage(format!(
                "--gpu={text:?} is refused: there is no such kind; accepted: auto, an index (0), \
                 a UUID (GPU-8932f937-d72c-4106-c12f-20bd9faed9f6), soft, soft:key=value,…"
            ))),
        }
    }
}

impl Gpu {
    /// Writes the choice into `environment`. The links to a software GPU have to live as long as
    /// its programs.
    pub(crate) fn apply(
        &self,
        environment: &mut Environment,
        token: &str,
    ) -> Result<Option<Links>, Failure> {
        match self {
            Self::Auto => {}
            Self::Real(device) => {
                environment.insert(VISIBLE.into(), device.into());
                environment
                    .entry(ORDER.into())
                    .or_insert_with(|| BY_BUS.into());
            }
            Self::Soft(spec) => {
                let runtime_dir = environment.get(OsStr::new("XDG_RUNTIME_DIR"));
                let links = Links::make(runtime_dir.map(Path::new))?;
                search_first(environment, links.path());
                environment.insert(SOFT_TOKEN.into(), token.into());
                if let Some(spec) = spec {
                    environment.insert(SOFT_SPEC.into(), spec.into());
                }
                return Ok(Some(links));
            }
        }
        Ok(None)
    }

    /// Whether it is the machine's own.
    pub(crate) fn is_real(&self) -> bool {
        !matches!(self, Self::Soft(_))
    }

    /// Whether its devices are those of one run alone: a software GPU without a name of its own,
    /// or with that of a benchmark.
    pub(crate) fn is_of_one_run(&self) -> bool {
        let is_benchmarks = |name: &str| {
            let process = name.strip_prefix(BENCHMARKS);
            process.is_some_and(|process| process.parse::<u32>().is_ok())
        };
        matches!(self, Self::Soft(_)) && self.soft_name().is_none_or(is_benchmarks)
    }

    /// The name of a software GPU, if it was given one.
    fn soft_name(&self) -> Option<&str> {
        let Self::Soft(Some(spec)) = self else {
            return None;
        };
        let mut names = spec
            .split(',')
            .filter_map(|pair| pair.strip_prefix("name="));
        names.next_back()
    }

    /// The name of the devices' world: the machine's, a software GPU's own name, or the one its
    /// tenant lends it.
    pub(crate) fn world(&self, tenant: &str) -> String {
        if self.is_real() {
            return "gpu".to_owned();
        }
        self.soft_name()
            .map_or_else(|| format!("soft.{tenant}"), |name| format!("soft-{name}"))
    }

    /// The devices the program will see; at least one.
    pub(crate) fn devices(&self, environment: &Environment) -> Result<Vec<Device>, Failure> {
        match (devices::probe(environment), self) {
            (Ok(devices), _) if !devices.is_empty() => Ok(devices),
            (Ok(_), Self::Auto) => Err(Failure::ours(format!(
                "the NVIDIA driver reports no GPU; {HINT}"
            ))),
            (Ok(_), Self::Real(device)) => Err(no_such(device)),
            (Ok(_), Self::Soft(_)) => Err(Failure::ours(
                "the software GPU has no devices; give count=1 or more",
            )),
            (Err(why), Self::Soft(spec)) => {
                let spec = spec.as_deref().unwrap_or("");
                // softgpu's own words come first, then what the driver's call returned.
                let why = why.lines().next().unwrap_or_default();
                Err(Failure::ours(format!(
                    "the software GPU does not start with {spec:?}: {why}"
                )))
            }
            // The variable is our own doing.
            (Err(why), Self::Real(device)) if why.contains(NO_DEVICE) => Err(no_such(device)),
            (Err(why), _) => Err(Failure::ours(format!("there is no GPU: {why}; {HINT}"))),
        }
    }
}

/// The name of this process's software GPU, if it is a benchmark.
pub(crate) fn of_benchmark() -> String {
    format!("{BENCHMARKS}{}", std::process::id())
}

fn no_such(device: &str) -> Failure {
    Failure::ours(format!(
        "there is no GPU {device}; `gpushare devices` lists those there are; {HINT}"
    ))
}

/// Puts the links where libraries are looked for first.
fn search_first(environment: &mut Environment, folder: &Path) {
    let mut value = folder.as_os_str().to_owned();
    if let Some(old) = environment
        .remove(OsStr::new(LIBRARY_PATH))
        .filter(|old| !old.is_empty())
    {
        value.push(":");
        value.push(old);
    }
    environment.insert(LIBRARY_PATH.into(), value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_software_gpu_is_of_one_run_without_a_name_or_with_a_benchmarks() {
        let name = format!("soft:mem=1GiB,name={}", of_benchmark());
        for (gpu, is_so) in [
            ("soft", true),
            ("soft:mem=1GiB", true),
            (&name, true),
            ("soft:name=mine", false),
            ("soft:name=bench-mine", false),
            ("0", false),
            ("auto", false),
        ] {
            let gpu: Gpu = gpu.parse().unwrap();
            assert_eq!(gpu.is_of_one_run(), is_so, "{gpu:?}");
        }
    }

    #[test]
    fn an_index_counts_as_nvidia_smi_does_unless_told_otherwise() {
        let order = |given: Option<&str>| {
            let given = given.map(|given| (ORDER.into(), given.into()));
            let mut environment: Environment = given.into_iter().collect();
            Gpu::Real("1".into()).apply(&mut environment, "x").unwrap();
            assert_eq!(environment[OsStr::new(VISIBLE)], "1");
            environment[OsStr::new(ORDER)].clone()
        };
        assert_eq!(order(None), BY_BUS);
        assert_eq!(order(Some("FASTEST_FIRST")), "FASTEST_FIRST");
        let mut environment = Environment::new();
        Gpu::Auto.apply(&mut environment, "x").unwrap();
        assert!(environment.is_empty(), "a program keeps its own view");
    }

    #[test]
    fn the_forms_of_a_gpu_are_told_apart() {
        let uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
        for (text, gpu) in [
            ("auto", Gpu::Auto),
            ("0", Gpu::Real("0".into())),
            (uuid, Gpu::Real(uuid.into())),
            ("soft", Gpu::Soft(None)),
            ("soft:", Gpu::Soft(Some(String::new()))),
            (
                "soft:name=a,mem=16GiB",
                Gpu::Soft(Some("name=a,mem=16GiB".into())),
            ),
        ] {
            assert_eq!(text.parse::<Gpu>().unwrap(), gpu);
        }
        for text in ["", "hard", "softly", "-1", "GPU-8932f937", "auto:", "Soft"] {
            assert!(
                text.parse::<Gpu>()
                    .unwrap_err()
                    .message
                    .contains("accepted"),
                "{text}"
            );
        }
        for (text, is_list) in [("0,1", true), ("0,", false), ("a,b", false)] {
            let why = text.parse::<Gpu>().unwrap_err().message;
            assert_eq!(why.contains("CUDA_VISIBLE_DEVICES=0,1"), is_list, "{why}");
        }
    }

    #[test]
    fn the_links_are_searched_first_and_the_rest_is_kept() {
        for (old, new) in [
            (None, "/soft"),
            (Some(""), "/soft"),
            (Some("/my libs:/b"), "/soft:/my libs:/b"),
        ] {
            let mut environment: Environment = old
                .map(|old| (LIBRARY_PATH.into(), old.into()))
                .into_iter()
                .collect();
            search_first(&mut environment, Path::new("/soft"));
            assert_eq!(environment[OsStr::new(LIBRARY_PATH)], new);
        }
    }
}
