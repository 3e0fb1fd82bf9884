//! `nearcast THING VERB` against a control plane.

use std::time::{Duration, Instant};

use crate::running::Running;

#[test]
fn what_is_set_is_shown_and_what_was_not_said_stays() {
    let control = Running::start();
    let says = |line: &str| control.says(&line.split(' ').collect::<Vec<_>>());
    let said = says("site set s1 --prefix 10.0.0.0/8 --prefix 2001:db8::/32");
    let kept = "is kept: `nearcast site show";
    assert_eq!(said, format!("site s1 {kept} s1` has all that is said of it\n"));
    assert_eq!(says("site set s2"), format!("site s2 {kept} s2` has all that is said of it\n"));
    assert!(says("site show s1").contains("2001:db8::/32"));
    says("appliance set a1 --site s1 --weight 3 --address 192.0.2.1");
    let said = says("appliance set a1 --site s2");
    let expected = "appliance a1 stands in s2, with a weight of 3, addresses 192.0.2.1\n";
    assert_eq!(said, expected, "the rest stays");
    assert!(says("appliance set a1 --address none").ends_with("addresses none\n"));
    says("policy set --versions-kept 5");
    let said = says("policy set --copies 1 --flash-fill-bps 7000000");
    for line in ["copies                  1", "versions_kept           5", "7000000"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let said: serde_json::Value = serde_json::from_str(&says("policy show --json")).unwrap();
    assert_eq!((&said["copies"], &said["versions_kept"]), (&1.into(), &5.into()));
    assert_eq!(said["flash_fill_bps"], 7_000_000);

    let said = says("policy set --fill-windows 2:00-14:00");
    assert!(said.contains("02:00-14:00"), "{said}");
    says("site set s2 --fill-windows always --time-zone Asia/Tokyo");
    let said = says("fill pause s1 --until 2100-01-31T02:00:00Z");
    assert_eq!(said, "site s1 fetches nothing until 2100-01-31T02:00:00Z\n");
    let said = says("fill list");
    let pause = "s1               02:00-14:00 UTC (policy)  paused  2100-01-31T02:00:00Z";
    assert!(said.contains(pause) && said.contains("s2    a1         always"), "{said}");
    assert_eq!(says("fill pause s1"), "site s1 fetches nothing until further notice\n");
    assert!(says("fill list --site s1").contains("paused  nearcast fill resume"));
    assert_eq!(says("fill resume s1"), "site s1 fetches again in its windows\n");
    assert!(!says("fill list").contains("paused"));
    assert!(says("site show s2").contains("always"));

    let listed = says("appliance list");
    assert!(listed.contains("a1         s2    never_seen"), "{listed}");
    let shown = says("appliance show a1");
    assert!(shown.contains("addresses     none") && shown.contains("weight        3"), "{shown}");
    assert!(says("site show s1").contains("10.0.0.0/8"));
    let found = says("route find 10.1.2.3");
    assert!(found.contains("10.0.0.0/8 is the longest") && found.contains("1  s1"), "{found}");
    assert!(says("route find 2001:db8::7").contains("2001:db8::/32"));
    assert!(says("fleet show").contains("ASSET"));
    assert!(says("fleet metrics").contains("nearcast_control_appliances_healthy 0"));
    assert!(says("fleet openapi").contains("\"openapi\":\"3.1.0\""));
    assert!(says("placement show").contains("generation"));
    assert!(says("signing-key list").contains("PUBLIC KEY"));
    assert!(says("key list --json").starts_with("{\"keys\":["));
    assert!(says("identity list").starts_with("KIND"));
    assert!(says("front list").starts_with("KIND"));
    assert!(says("withdrawal list").starts_with("NUMBER"));
    assert!(says("appliance enrol a1").starts_with("nc1."));
    assert!(says("front enrol f1").starts_with("nc1."));
    assert!(says("session show").contains("open   yes"));
    let audit = says("audit list --count 1");
    assert!(audit.contains("POST /v1/fronts/f1/enrolment"), "{audit}");
    let said = says("drain a1 --at 2100-01-31T02:00:00Z --for 30m");
    let time = "from 2100-01-31T02:00:00Z until 2100-01-31T02:30:00Z";
    assert_eq!(said, format!("a1 is drained {time}\n"));
    assert!(says("appliance show a1").contains(time));
    assert_eq!(says("drain a1 --end"), "a1 is drained no more\n");
    assert!(says("appliance show a1").contains("drain         none"));
    assert_eq!(says("appliance remove a1"), "appliance a1 is gone, and its identity is refused\n");
    assert_eq!(says("site remove s2"), "site s2 is gone\n");
    let token = says("token make --role admin --name first");
    assert!(token.starts_with("nc_"), "{token}");
}

#[test]
fn a_refusal_says_what_to_do_and_the_program_fails() {
    let control = Running::start();
    let refused = |line: &str| {
        let output = control.nearcast(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(1), "{line}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused("appliance set a1 --site s9");
    assert!(said.contains("there is no site s9: PUT /v1/sites/s9 first"), "{said}");
    let said = refused("appliance set nobody --weight 3");
    assert!(said.contains("nobody is not registered: say --site"), "{said}");
    let said = refused("asset public film");
    assert!(said.contains("there is no asset film"), "{said}");
    let said = refused("appliance show a1");
    assert!(said.contains("there is no appliance \"a1\": `nearcast appliance list`"), "{said}");
    let said = refused("site show s9");
    assert!(said.contains("there is no site \"s9\": `nearcast site list`"), "{said}");
    let said = refused("withdrawal show 7");
    assert!(said.contains("lists no withdrawal 7"), "{said}");
    let said = refused("drain a1");
    assert!(said.contains("there is no appliance a1"), "{said}");
    control.says(&["site", "set", "s1"]);
    control.says(&["appliance", "set", "a1", "--site", "s1"]);
    let said = refused("drain a1 --wait");
    assert!(said.contains("a1 is never_seen: nobody knows whether it is drained"), "{said}");
    let said = refused("route find nowhere");
    assert!(said.contains("\"nowhere\" is not an IP address"), "{said}");
    let said = refused("policy set --copies 99");
    assert!(said.contains("copies: use 1 to 64"), "{said}");
    let said = refused("audit list --count 0");
    assert!(said.contains("--count: use 1 to 100000"), "{said}");
}

#[test]
fn what_is_said_of_a_version_is_told_back_and_a_typo_ends_nothing() {
    let control = Running::start();
    let says = |line: &str| control.says(&line.split(' ').collect::<Vec<_>>());
    let refused = |line: &str| {
        let output = control.nearcast(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(1), "{line}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    says("site set s1");
    let film = control.ingest("film");
    let until = "2100-01-31T02:00:00Z";
    let said = says(&format!("pin set {film} --site s1 --until {until}"));
    assert_eq!(said, format!("{film} is pinned at site s1 until {until}\n"));
    assert!(says("pin list").contains(&format!("at site s1  {until}")));
    let unkept = format!(
        "\n\ncontrol placement: {film} is pinned at site s1, and no appliance stands there"
    );
    let began = Instant::now();
    while !says("fleet show").contains(&unkept) {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", says("fleet show"));
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = says(&format!("launch set {film} --begin 2100-01-01T00:00:00Z --day-bytes 1"));
    assert!(said.contains("counts as a launch until 2100-01-15T00:00:00Z, from"), "{said}");
    let listed = says("launch list");
    assert!(listed.contains("2100-01-01T00:00:00Z") && listed.contains("2100-01-15"), "{listed}");

    let said = refused(&format!("plan why --file {film} --site s9"));
    assert!(said.contains("there is no site s9: `nearcast site list` has them"), "{said}");
    let said = refused("plan why --file fil --site s1");
    assert!(said.contains("there is no asset or version fil: `nearcast asset list`"), "{said}");
    let said = refused(&format!("plan why --file {film} --site s1"));
    assert!(said.contains("no appliance stands in s1: `nearcast appliance set"), "{said}");

    for (line, list) in [
        (format!("pin remove {film} --site s2"), "pin list"),
        (format!("pin remove {film}"), "pin list"),
        (format!("ban remove {film} --site s1"), "ban list"),
        ("launch remove film".to_owned(), "launch list"),
    ] {
        let said = refused(&line);
        assert!(said.contains("nothing ended: ") && said.contains(list), "{line}: {said}");
    }
    let said = says(&format!("pin remove {film} --site s1"));
    assert_eq!(said, format!("{film} is not pinned there any more\n"));
    assert_eq!(says(&format!("launch remove {film}")), format!("{film} is no launch any more\n"));
}
