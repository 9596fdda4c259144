//! `[containers]` and `[classes]`: rules and classes that are refused, and those that are taken.

use super::*;

#[test]
fn a_rule_that_can_hold_for_no_container_is_refused() {
    let of = |key: &str, pattern: &str| {
        let text = format!("[[containers.rules]]\n{key} = {pattern:?}\nunlimited = \"deny\"");
        read(&text, Settings::default())
    };
    for (key, pattern) in [
        ("user", "1000"),
        ("user", "0"),
        ("user", "10*"),
        ("user", "*"),
        ("namespace", "team-a"),
        ("namespace", "*"),
        ("image", "registry:5000/team-a/*"),
    ] {
        let read = of(key, pattern).unwrap();
        let labels = vec![(key.to_owned(), pattern.to_owned())];
        assert_eq!(read.containers.rules[0].labels, labels);
    }
    for (key, pattern, word) in [
        ("user", "alice", "such as 1000"),
        ("user", "", "such as 1000"),
        ("user", "01", "such as 1000"),
        ("user", "+1", "such as 1000"),
        ("user", "1*0*", "such as 1000"),
        ("user", "99999999999", "such as 1000"),
        ("namespace", "team-*-a", "its beginning and *"),
        ("namespace", "team-**", "its beginning and *"),
        ("namespace", "", "its beginning and *"),
        ("image", "*/cuda:12", "its beginning and *"),
    ] {
        let refused = of(key, pattern).unwrap_err();
        for word in [word, "number 1", &format!("{key} = {pattern:?}")] {
            assert!(refused.contains(word), "{word}: {refused}");
        }
    }
}

#[test]
fn a_class_that_moves_memory_needs_a_budget_on_the_host() {
    let class = "[classes.big.limits]\nGPUSHARE_OVERSUBSCRIBE = \"swap\"\n";
    let error = read(class, Settings::default()).unwrap_err();
    assert!(error.starts_with("[classes.big]: "), "{error}");
    assert!(error.contains("[swap] host"), "{error}");
    read(
        &format!("[swap]\nhost = \"1GiB\"\n{class}"),
        Settings::default(),
    )
    .unwrap();
}

#[test]
fn a_class_names_devices_as_a_node_has_them() {
    let with = |devices: &str| {
        let text = format!("[classes.one]\ndevices = [{devices}]\n");
        read(&text, Settings::default())
    };
    for refused in ["\"gpu0\"", "\"\"", "\"0\", \"-1\""] {
        let error = with(refused).unwrap_err();
        assert!(error.contains("[classes.one]: devices: "), "{error}");
    }
    let uuid = "\"GPU-00000000-0000-0000-0000-000000000001\"";
    for accepted in ["", "\"0\", \"12\"", "\"all\"", "\"/dev/nvidia3\"", uuid] {
        with(accepted).unwrap();
    }
}

#[test]
fn a_rule_that_an_earlier_one_takes_each_container_from_is_refused() {
    let rules = |rules: &[&str]| {
        let rules = rules.iter().map(|keys| {
            let keys = keys.replace(", ", "\n");
            format!("[[containers.rules]]\n{keys}\nunlimited = \"deny\"\n")
        });
        read(&rules.collect::<String>(), Settings::default())
    };
    let team = "namespace = \"team-*\"";
    let one = "namespace = \"team-a\"";
    let image = "image = \"cuda:12\"";
    for taken in [
        &[one, team][..],
        &[team, "namespace = \"team\""],
        &["namespace = \"team-a\"", "namespace = \"team-ab\""],
        &[&format!("{team}, {image}"), one],
        &["namespace = \"cuda*\"", image],
        &["user = \"10*\"", "user = \"1*\""],
    ] {
        assert!(rules(taken).is_ok(), "{taken:?}");
    }
    for void in [
        &[team, one][..],
        &[one, one],
        &["namespace = \"*\"", team],
        &[team, image, "namespace = \"team-a*\", image = \"cuda:11\""],
        &[
            &format!("{team}, {image}"),
            image,
            &format!("{one}, {image}"),
        ],
    ] {
        let refused = rules(void).unwrap_err();
        let last = format!("[[containers.rules]] number {}: ", void.len());
        for words in [&*last, "number 1", "accepted: before it"] {
            assert!(refused.contains(words), "{void:?}: {words} in {refused}");
        }
    }
}

#[test]
fn the_containers_of_a_class_are_no_gang() {
    let of = |variable: &str| {
        let text = format!("[classes.one.limits]\n{variable} = \"job\"\n");
        read(&text, Settings::default())
    };
    let refused = of("GPUSHARE_GANG").unwrap_err();
    for words in [
        "[classes.one]: GPUSHARE_GANG = \"job\" is refused",
        "accepted: ",
    ] {
        assert!(refused.contains(words), "{words} in {refused}");
    }
    let other = "[classes.one.limits]\nGPUSHARE_PRIORITY = \"300\"\n";
    assert!(read(other, Settings::default()).is_ok());
}

#[test]
fn a_class_may_show_the_request_that_the_nodes_default_makes() {
    let class = "[classes.one.limits]\nGPUSHARE_MEM_VIEW = \"request\"\n";
    let refused = read(class, Settings::default()).unwrap_err();
    assert!(refused.contains("no request to show"), "{refused}");
    let default = "[defaults]\nGPUSHARE_MEM_LIMIT = \"1GiB\"\n";
    assert!(read(&format!("{default}{class}"), Settings::default()).is_ok());
}
