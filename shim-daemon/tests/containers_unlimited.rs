//! Containers that have a GPU and ask for nothing: what the node's settings make of them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::container_node::*;
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::{ControlReply, ErrorCode};
use gpushared::config;
use gpushared::groups::Groups;
use gpushared::node::{Settings, Silent};

fn label(kind: &str, value: &str) -> (String, String) {
    (kind.to_owned(), value.to_owned())
}

/// Whether a container with these labels takes the maxima; else it may run as it is.
fn takes_maxima(machine: &mut Machine, labels: &[(String, String)]) -> Result<bool, String> {
    judged(machine, "GPU-1", labels)
}

/// The same of a container with this device.
fn judged(
    machine: &mut Machine,
    device: &str,
    labels: &[(String, String)],
) -> Result<bool, String> {
    let from = machine.connection();
    let silent = Silent {
        id: "a".to_owned(),
        devices: vec![device.to_owned()],
        labels: labels.to_vec(),
    };
    let none = (None, Groups::default());
    machine.node.judge_container(NOW, (from, 1), silent, none);
    match machine.drain().0.unwrap() {
        ControlReply::Unlimited { takes_maxima } => Ok(takes_maxima),
        ControlReply::Error(error) => {
            assert_eq!(error.code, ErrorCode::Forbidden);
            Err(error.message)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_node_says_what_becomes_of_a_container_without_limits() {
    for (text, answer) in [
        ("", Ok(false)),
        ("[containers]\nunlimited = \"allow\"\n", Ok(false)),
        (
            "[containers]\nunlimited = \"maxima\"\n[maxima]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n",
            Ok(true),
        ),
        ("[containers]\nunlimited = \"deny\"\n", Err(())),
    ] {
        let told = takes_maxima(&mut Machine::configured(text), &[]);
        assert_eq!(told.map_err(|_| ()), answer, "{text}");
    }
    for text in [
        "[containers]\nunlimited = \"no\"\n",
        "[[containers.rules]]\nuser = \"0\"\nunlimited = \"x\"\n",
    ] {
        assert!(config::read(text, Settings::default()).is_err(), "{text}");
    }
}

#[test]
fn maxima_without_a_limit_of_memory_are_no_limits_and_are_refused() {
    let node = "[containers]\nunlimited = \"maxima\"\n";
    let rule = "[[containers.rules]]\nuser = \"0\"\nunlimited = \"maxima\"\n";
    let inherits = "[[containers.rules]]\nuser = \"0\"\n";
    let memory = "[maxima]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n";
    let of_device = "[maxima]\n\
        GPUSHARE_MEM_LIMIT_GPU_a932f937_d72c_4106_c12f_20bd9faed9f6 = \"8GiB\"\n";
    let time = "[maxima]\nGPUSHARE_SM_LIMIT = \"50%\"\n";
    let default = "[defaults]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n";
    let alias = "[defaults]\nCUDA_DEVICE_MEMORY_LIMIT = \"8g\"\n";
    let toolkit = "[defaults]\nNVIDIA_GPU_MEMORY_LIMIT = \"8192\"\n";
    let none = "[defaults]\nCUDA_DEVICE_MEMORY_LIMIT = \"0\"\n";
    let request = "[defaults]\nGPUSHARE_MEM_REQUEST = \"8GiB\"\n";
    let own = "maxima = { GPUSHARE_MEM_LIMIT = \"8GiB\" }\n";
    let number = "[[containers.rules]] number 1";
    for (parts, refused) in [
        (vec![node], Some("[containers]")),
        (vec![node, time], Some("[containers]")),
        (vec![node, rule, own], Some("[containers]")),
        (vec![rule], Some(number)),
        (vec![rule, time], Some(number)),
        (vec![node, memory], None),
        (vec![node, inherits, memory], None),
        (vec![node, of_device], None),
        (vec![node, default], None),
        (vec![node, alias], None),
        (vec![node, toolkit], None),
        (vec![node, none], Some("[containers]")),
        (vec![node, request], Some("[containers]")),
        (vec![rule, own], None),
        (vec![rule, memory], None),
    ] {
        let text = parts.concat();
        let told = config::read(&text, Settings::default()).err();
        let is_said = |word: &str| {
            let told = told.as_deref().unwrap_or_default();
            told.starts_with(word) && told.contains("GPUSHARE_MEM_LIMIT") && !told.contains('\n')
        };
        match refused {
            Some(word) => assert!(is_said(word), "{text}{told:?}"),
            None => assert_eq!(told, None, "{text}"),
        }
    }
}

#[test]
fn a_refusal_names_the_gpu_the_setting_and_the_way_out() {
    let mut machine = Machine::configured("[containers]\nunlimited = \"deny\"\n");
    let told = takes_maxima(&mut machine, &[]).unwrap_err();
    for word in ["container a", "GPU-1", "unlimited", "gpushare.io/mem-limit"] {
        assert!(told.contains(word), "{word} in {told}");
    }
    assert!(!told.contains("scheduler"), "{told}");
    let fraction = label("scheduler", "gpu-fraction=0.5");
    let told = takes_maxima(&mut machine, &[fraction]).unwrap_err();
    assert!(told.contains("annotation gpu-fraction=0.5"), "{told}");
}

#[test]
fn a_privileged_container_is_not_told_of_a_variable_that_does_not_help_it() {
    let mut machine = Machine::configured(DENY);
    let system = [label("namespace", "calico-system")];
    let mut told = |device: &str| judged(&mut machine, device, &system).unwrap_err();
    assert!(told("GPU-1").contains("NVIDIA_VISIBLE_DEVICES=void"));
    let told = told("/dev/nvidia0");
    assert!(!told.contains("NVIDIA_VISIBLE_DEVICES"), "{told}");
    for word in ["privileged", "namespace = \"calico-system\"", "\"allow\""] {
        assert!(told.contains(word), "{word} in {told}");
    }
}

#[test]
fn a_rule_says_otherwise_for_the_containers_that_it_is_about() {
    let text = "[containers]\nunlimited = \"deny\"\n\
        [[containers.rules]]\nnamespace = \"kube-*\"\nunlimited = \"allow\"\n\
        [[containers.rules]]\nnamespace = \"team\"\nunlimited = \"maxima\"\n\
        [containers.rules.maxima]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n\
        [[containers.rules]]\nnamespace = \"silent\"\n";
    let mut machine = Machine::configured(text);
    let mut of = |namespace: &str| takes_maxima(&mut machine, &[label("namespace", namespace)]);
    assert_eq!(of("kube-system"), Ok(false));
    assert_eq!(of("team"), Ok(true));
    of("silent").unwrap_err();
    of("other").unwrap_err();
}

#[test]
fn a_container_that_takes_the_maxima_has_those_of_its_rule() {
    let text = "[maxima]\nGPUSHARE_MEM_LIMIT = \"16GiB\"\n\
        [[containers.rules]]\nnamespace = \"students\"\n\
        [containers.rules.maxima]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n";
    for (namespace, limit) in [("students", 8 * GIB), ("other", 16 * GIB)] {
        let mut machine = Machine::configured(text);
        let first = First::start(&group("a"));
        let mut injection = asks("a", "1GiB");
        injection.environment.clear();
        injection.labels = vec![label("namespace", namespace)];
        machine.inject(&injection, &first).unwrap();
        assert_eq!(machine.tenants()[0].limit, limit, "{namespace}");
    }
}

/// By a variable of its author's, as it asks for nothing.
#[test]
fn a_pod_that_takes_the_maxima_names_no_gpu_that_it_was_not_given() {
    let text = "[containers]\nunlimited = \"maxima\"\n[defaults]\nGPUSHARE_MEM_LIMIT = \"25%\"\n";
    for (device, is_taken) in [("all", false), ("1", false), ("0", true)] {
        let mut machine = Machine::configured(text);
        let mut injection = asks("a", "1GiB");
        injection.environment.clear();
        injection.devices = vec![device.to_owned()];
        injection.labels = vec![label("namespace", "team"), label("given", "0")];
        let told = machine.inject(&injection, &First::start(&group("a")));
        assert_eq!(told.is_ok(), is_taken, "{device}: {told:?}");
        let Err(refused) = told else { continue };
        for word in ["not given", "DOCKER_RESOURCE_GPU"] {
            assert!(refused.message.contains(word), "{word} in {refused}");
        }
    }
}

const DENY: &str = "[containers]\nunlimited = \"deny\"\n";

/// What becomes of a container that says this of `devices`, on a node with these settings.
fn injected(text: &str, said: &[(&str, &str)], devices: &[&str]) -> Result<(), String> {
    let mut injection = asks("a", "1GiB");
    let said = said.iter().map(|(name, value)| label(name, value));
    injection.environment = said.collect();
    injection.devices = devices.iter().map(|name| (*name).to_owned()).collect();
    injection.labels = vec![label("namespace", "team")];
    let told = Machine::configured(text).inject(&injection, &First::start(&group("a")));
    told.map(drop).map_err(|error| {
        assert_eq!(error.code, ErrorCode::Forbidden, "{error}");
        error.message
    })
}

#[test]
fn what_limits_no_memory_is_not_enough_where_limits_are_mandatory() {
    let rule = "[[containers.rules]]\nnamespace = \"team\"\nunlimited = \"deny\"\n";
    let time = "[defaults]\nGPUSHARE_SM_LIMIT = \"50%\"\n";
    for said in [
        &[][..],
        &[("GPUSHARE_PRIORITY", "400")],
        &[("GPUSHARE_SM_LIMIT", "50%")],
        &[("GPUSHARE_MEM_REQUEST", "1GiB")],
        &[("CUDA_DEVICE_MEMORY_LIMIT", "0")],
        &[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")],
        &[("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "")],
    ] {
        for text in [DENY, rule, &format!("{DENY}{time}")] {
            let told = injected(text, said, &["0"]).unwrap_err();
            for word in [
                "container a",
                "unlimited = \"deny\"",
                "GPUSHARE_MEM_LIMIT",
                "gpushare.io/mem-limit",
                "100%",
            ] {
                assert!(told.contains(word), "{said:?}: {word} in {told}");
            }
        }
        // Where they are not, it is a tenant with all of the device, as it asks.
        injected("", said, &["0"]).unwrap();
    }
}

#[test]
fn a_limit_of_memory_counts_where_limits_are_mandatory_also_all_of_it() {
    for said in [
        ("GPUSHARE_MEM_LIMIT", "100%"),
        ("GPUSHARE_MEM_LIMIT", "1GiB"),
        ("GPUSHARE_MEM_LIMIT_0", "1GiB"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "1g"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "1024"),
    ] {
        injected(DENY, &[said], &["0"]).unwrap();
    }
}

#[test]
fn the_nodes_own_limits_of_memory_count_where_limits_are_mandatory() {
    let rule = "[[containers.rules]]\nnamespace = \"NAME\"\n\
        [containers.rules.maxima]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n";
    let priority = [("GPUSHARE_PRIORITY", "400")];
    for (own, is_enough) in [
        ("[defaults]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n", true),
        ("[maxima]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n", true),
        (&*rule.replace("NAME", "team"), true),
        (&rule.replace("NAME", "other"), false),
        ("[maxima]\nGPUSHARE_MEM_REQUEST = \"8GiB\"\n", false),
    ] {
        let told = injected(&format!("{DENY}{own}"), &priority, &["0"]);
        assert_eq!(told.is_ok(), is_enough, "{own}: {told:?}");
    }
}

#[test]
fn a_rule_that_allows_or_takes_maxima_lets_such_a_container_through() {
    let priority = [("GPUSHARE_PRIORITY", "400")];
    for word in ["allow", "maxima"] {
        let rule = |namespace: &str| {
            format!(
                "{DENY}[[containers.rules]]\nnamespace = \"{namespace}\"\nunlimited = \"{word}\"\n\
                 maxima = {{ GPUSHARE_MEM_LIMIT = \"100%\" }}\n"
            )
        };
        injected(&rule("team"), &priority, &["0"]).unwrap();
        injected(&rule("other"), &priority, &["0"]).unwrap_err();
    }
    let open = "[[containers.rules]]\nnamespace = \"team\"\nunlimited = \"allow\"\n";
    injected(&format!("{DENY}{open}"), &priority, &["0"]).unwrap();
}

#[test]
fn each_device_of_the_container_takes_a_limit_where_limits_are_mandatory() {
    let first = ("GPUSHARE_MEM_LIMIT_0", "1GiB");
    let second = ("GPUSHARE_MEM_LIMIT_1", "100%");
    injected(DENY, &[first], &["0"]).unwrap();
    let told = injected(DENY, &[first], &["0", "1"]).unwrap_err();
    let device = injected(DENY, &[], &["1"]).unwrap_err();
    let uuid = |text: &str| text.split(['(', ')']).nth(1).map(str::to_owned);
    assert_eq!(uuid(&told), uuid(&device), "{told}");
    injected(DENY, &[first, second], &["0", "1"]).unwrap();
    injected(DENY, &[("GPUSHARE_MEM_LIMIT", "100%")], &["0", "1"]).unwrap();
}

#[test]
fn a_maximum_of_one_gpu_leaves_no_container_on_another_without_limits() {
    let word = "[containers]\nunlimited = \"maxima\"\n[maxima]\n";
    let limit = |device: &str| format!("GPUSHARE_MEM_LIMIT{device} = \"8GiB\"\n");
    let first = {
        let told = injected(DENY, &[], &["0"]).unwrap_err();
        let uuid = told.split(['(', ')']).nth(1).unwrap();
        format!("_{}", uuid.replace('-', "_"))
    };
    let of_first = format!("{word}{}", limit(&first));
    let priority = [("GPUSHARE_PRIORITY", "400")];
    for said in [&[][..], &priority] {
        injected(&of_first, said, &["0"]).unwrap();
        let told = injected(&of_first, said, &["1"]).unwrap_err();
        for word in ["unlimited = \"maxima\"", "GPUSHARE_MEM_LIMIT", "[maxima]"] {
            assert!(told.contains(word), "{word} in {told}");
        }
        injected(&of_first, said, &["0", "1"]).unwrap_err();
        injected(&format!("{word}{}", limit("")), said, &["1"]).unwrap();
    }
    injected(&of_first, &[("GPUSHARE_MEM_LIMIT", "100%")], &["1"]).unwrap();
    // A rule's word counts as the node's.
    let rule = format!(
        "[[containers.rules]]\nnamespace = \"team\"\nunlimited = \"maxima\"\n\
         [containers.rules.maxima]\n{}",
        limit(&first)
    );
    injected(&rule, &[], &["0"]).unwrap();
    injected(&rule, &[], &["1"]).unwrap_err();
}
