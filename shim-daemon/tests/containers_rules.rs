//! The maxima of rules beside the node's: a container gets no more than either allows.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::container_node::*;
use gpushare_protocol::units::GIB;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::WireError;

const RULE: &str = "[[containers.rules]]\nnamespace = \"team\"\n[containers.rules.maxima]\n";

/// The limits on both devices, of 64 GiB each, of a container of the namespace `team` that says
/// this under `node` and a rule with these maxima.
fn limits(node: &str, rule: &str, said: &[(&str, &str)]) -> Result<[u64; 2], WireError> {
    let owned = |(kind, value): &(&str, &str)| ((*kind).to_owned(), (*value).to_owned());
    let mut all = [0, 0];
    for (device, found) in all.iter_mut().enumerate() {
        let mut machine = Machine::configured(&format!("[maxima]\n{node}{RULE}{rule}"));
        let mut injection = asks("a", "1GiB");
        injection.environment = said.iter().map(owned).collect();
        injection.labels = vec![owned(&("namespace", "team"))];
        injection.devices = vec![device.to_string()];
        machine.inject(&injection, &First::start(&group("a")))?;
        *found = machine.tenants()[0].limit / GIB;
    }
    Ok(all)
}

/// A maximum of the second device alone.
fn second(most: &str) -> String {
    let uuid = Uuid(crate::driver::SECOND).text(false).replace('-', "_");
    format!("GPUSHARE_MEM_LIMIT_{uuid} = {most:?}\n")
}

const NODE: &str = "GPUSHARE_MEM_LIMIT = \"40GiB\"\n";

#[test]
fn a_rules_maximum_above_the_nodes_gives_no_more_than_the_nodes() {
    let more = "GPUSHARE_MEM_LIMIT = \"80GiB\"\n";
    let both = format!("{NODE}{}", second("60GiB"));
    for (node, rule, found) in [
        (NODE, "GPUSHARE_MEM_LIMIT = \"100%\"\n", [40, 40]),
        (NODE, "GPUSHARE_MEM_LIMIT = \"50%\"\n", [32, 32]),
        (&both, more, [40, 60]),
        (&both, &second("64GiB"), [40, 60]),
        (&both, &second("16GiB"), [40, 16]),
    ] {
        assert_eq!(limits(node, rule, &[]), Ok(found), "{node}{rule}");
    }
    let whole = [("GPUSHARE_MEM_LIMIT", "100%")];
    let rule = "GPUSHARE_MEM_LIMIT = \"75%\"\n";
    let less = [("GPUSHARE_MEM_LIMIT", "70%")];
    let refused = limits(NODE, rule, &less).unwrap_err();
    assert!(refused.message.contains("at most 40GiB"), "{refused}");
    let refused = limits("", rule, &whole).unwrap_err();
    assert!(refused.message.contains("at most 75%"), "{refused}");
}

#[test]
fn a_rules_maximum_for_all_devices_holds_also_where_the_node_names_one() {
    let node = format!("GPUSHARE_MEM_LIMIT = \"8GiB\"\n{}", second("40GiB"));
    let rule = "GPUSHARE_MEM_LIMIT = \"4GiB\"\n";
    assert_eq!(limits(&node, rule, &[]), Ok([4, 4]));
    assert_eq!(
        limits(&node, "GPUSHARE_PRIORITY = \"300\"\n", &[]),
        Ok([8, 40])
    );
    let asked = [("GPUSHARE_MEM_LIMIT", "5GiB")];
    let refused = limits(&second("40GiB"), rule, &asked).unwrap_err();
    assert!(refused.message.contains("at most 4GiB"), "{refused}");
}
