//! A fleet is made as a file says, by the program and a control plane.

use crate::running::Running;

const FILE: &str = r#"
[policy]
copies = 1
global_fill_bps = 0
[site.s1]
prefixes = ["10.0.0.0/8"]
time_zone = "Europe/Berlin"
uplink_bps = 10_000_000_000
manifest_cluster = "north"
fill_cluster = "de"
fill_windows = "22:00-06:00"
[appliance.a1]
site = "s1"
addresses = ["192.0.2.1"]
[appliance.a2]
site = "s1"
weight = 3
addresses = ["192.0.2.2"]
profile = "storage"
fill_bps = 900_000_000
tags = ["rack-7"]
"#;

#[test]
fn an_own_name_of_a_kind_stays_until_another_usual_kind_is_said() {
    let control = Running::start();
    control.says(&["site", "set", "s1"]);
    let named = ["--site", "s1", "--profile", "flash", "--profile-name", "edge"];
    control.says(&[&["appliance", "set", "a2"], &named[..]].concat());
    control.says(&["appliance", "set", "a2", "--weight", "3"]);
    assert!(control.says(&["appliance", "show", "a2"]).contains("edge"));
    control.says(&["appliance", "set", "a2", "--profile", "storage"]);
    assert!(!control.says(&["appliance", "show", "a2"]).contains("edge"));
}

#[test]
fn a_fleet_becomes_as_a_file_says_and_stays_so() {
    let control = Running::start();
    let file = |text: &str| {
        let path = control.folder.path().join("fleet.toml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let path = file(FILE);
    let shown = control.says(&["apply", "-f", &path, "--dry-run"]);
    let steps = [
        "change policy: copies 2 becomes 1; global_fill_bps 400000000 becomes 0",
        "make site s1: fill_cluster de; fill_windows 22:00-06:00; manifest_cluster north; \
         prefixes 10.0.0.0/8; time_zone Europe/Berlin; uplink_bps 10000000000",
        "make appliance a1: addresses 192.0.2.1; site s1",
        "make appliance a2: addresses 192.0.2.2; fill_bps 900000000; profile storage; site s1; \
         tags rack-7; weight 3",
    ];
    assert_eq!(shown.lines().take(4).collect::<Vec<_>>(), steps);
    assert!(shown.ends_with("4 steps to take; nothing is changed\n"), "{shown}");
    assert_eq!(control.says(&["apply", "-f", &path, "--dry-run"]), shown, "nothing was changed");

    let applied = control.says(&["apply", "-f", &path]);
    assert_eq!(applied, format!("{}\napplied: 4 steps\n", steps.join("\n")));
    let nothing = "nothing to change: the fleet is as the file says\n";
    assert_eq!(control.says(&["apply", "-f", &path]), nothing);
    let exported = control.says(&["export"]);
    let exported = file(&exported);
    assert_eq!(control.says(&["apply", "-f", &exported, "--prune"]), nothing);

    // Each of them alone, by a file and by hand.
    let north = "[site.s1]\nmanifest_cluster = \"\"\ntime_zone = \"asia/tokyo\"\n";
    let applied = control.says(&["apply", "-f", &file(north)]);
    let change = "change site s1: manifest_cluster north becomes none; time_zone Europe/Berlin \
                  becomes Asia/Tokyo";
    assert_eq!(applied, format!("{change}\napplied: 1 step\n"));
    control.says(&["site", "set", "s1", "--uplink-bps", "0", "--manifest-cluster", "south"]);
    let said = control.says(&["site", "show", "s1"]);
    for fact in ["Asia/Tokyo", "not known", "south", "de"] {
        assert!(said.contains(fact), "{fact}: {said}");
    }

    let said = control.says(&["appliance", "show", "a2"]);
    for fact in ["storage", "serve 200 Gb/s, hold 120 TB, fetch 900 Mb/s", "rack-7"] {
        assert!(said.contains(fact), "{fact}: {said}");
    }
    let kind = ["--profile", "flash", "--fill-bps", "0", "--tag", "loan"];
    control.says(&[&["appliance", "set", "a2"], &kind[..]].concat());
    let said = control.says(&["appliance", "show", "a2"]);
    assert!(said.contains("serve 90.0 Gb/s, hold 16.0 TB, fetch 300 Mb/s"), "{said}");
    assert!(control.says(&["export"]).contains("tags = [\"loan\"]"));

    // Two addresses change places, which control takes in steps only; and one thing waits.
    let swapped = "[appliance.a1]\naddresses = [\"192.0.2.2\"]\n[appliance.a2]\n\
                   addresses = [\"192.0.2.1\"]\n[front.f1]\n";
    let output = control.nearcast(&["apply", "-f", &file(swapped)]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("wait: front f1 has no identity yet"), "{said}");
    assert!(control.says(&["export"]).contains("weight = 3"), "what was not said stays");

    let pruned = "[site.s2]\n[appliance.a1]\nsite = \"s2\"\naddresses = []\n";
    let said = control.says(&["apply", "-f", &file(pruned), "--prune", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let steps: Vec<_> = said["steps"].as_array().unwrap().iter().map(|of| &of["text"]).collect();
    assert_eq!(steps.len(), 4, "{steps:?}");
    let exported = control.says(&["export"]);
    assert!(!exported.contains("a2") && !exported.contains("s1"), "{exported}");
}

#[test]
fn a_file_that_is_wrong_changes_nothing() {
    let control = Running::start();
    let path = control.folder.path().join("fleet.toml");
    let path = path.to_str().unwrap();
    let refused = |text: &str, arguments: &[&str]| {
        std::fs::write(path, text).unwrap();
        let output = control.nearcast(&[&["apply", "-f", path], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused("[site.s1]\n[appliance.a1]\nsite = \"s2\"\n", &[]);
    assert!(said.contains("fleet.toml:3: [appliance.a1] site: there is no site s2"), "{said}");
    let said = refused("[site.s1]\nprefixes = [\"10.0.0.0/99\"]\n", &[]);
    assert!(said.contains("fleet.toml:2: [site.s1] prefixes: \"10.0.0.0/99\""), "{said}");
    let said = refused("", &["--prune"]);
    assert!(said.contains("would remove the whole fleet"), "{said}");
    assert!(!control.says(&["export"]).contains("s1"));
}
