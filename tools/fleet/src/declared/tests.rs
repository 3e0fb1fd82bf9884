use std::collections::BTreeSet;

use model::profile::{CAPACITIES, Profiles, RATES, TAGS_MAX};

use super::*;

const FILE: &str = r#"
[policy]
copies = 3

[site.s1]
prefixes = ["10.1.2.3/8", "2001:db8::/32", "192.0.2.1"]

[site."s.2"]
time_zone = "europe/berlin"
uplink_bps = 10_000_000_000
manifest_cluster = "north"
fill_cluster = "de"
fill_windows = "22:00-6:00,12:00-14:00"

[appliance.a1]
site = "s1"
weight = 2
addresses = ["192.0.2.11", "2001:DB8::11"]
profile = "flash"
capacity_bytes = 8_000_000_000_000
tags = ["rack-7", "loan"]

[front.f1]

[asset.film]
public = true
until = 2027-12-31T23:00:00Z
[asset.film.version.film-1]
from = "2027-01-31T22:00:00Z"
until = "none"
"#;

#[test]
fn all_that_control_takes_can_be_declared() {
    let document = serde_json::to_value(control::api::document()).unwrap();
    let schemas = [("site", "SiteBody"), ("appliance", "ApplianceBody"), ("policy", "PolicyBody")];
    for (kind, schema) in schemas.into_iter().chain([("version", "Window")]) {
        let fields = &document["components"]["schemas"][schema]["properties"];
        let fields: BTreeSet<&str> =
            fields.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(of_kind(kind).map(|(key, _)| key).collect::<BTreeSet<_>>(), fields, "{kind}");
    }
}

fn parse(text: &str) -> anyhow::Result<Declared> {
    Declared::parse(text, "fleet.toml".to_owned())
}

fn faults(text: &str) -> Vec<String> {
    parse(text).unwrap_err().to_string().lines().map(str::to_owned).collect()
}

#[test]
fn a_file_is_read_into_one_form_of_each_value() {
    let things = parse(FILE).unwrap().things;
    let texts = |list: &[&str]| Value::Texts(list.iter().map(|of| (*of).to_owned()).collect());
    let text = |of: &str| Value::Text(of.to_owned());
    let name = str::to_owned;
    let expected = Things::from([
        (Thing::Policy, [("copies", Value::Number(3))].into()),
        (
            Thing::Site(name("s1")),
            [("prefixes", texts(&["10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"]))].into(),
        ),
        (
            Thing::Site(name("s.2")),
            [
                ("time_zone", text("Europe/Berlin")),
                ("uplink_bps", Value::Number(10_000_000_000)),
                ("manifest_cluster", text("north")),
                ("fill_cluster", text("de")),
                ("fill_windows", text("12:00-14:00, 22:00-06:00")),
            ]
            .into(),
        ),
        (
            Thing::Appliance(name("a1")),
            [
                (key::SITE, text("s1")),
                ("weight", Value::Number(2)),
                (key::ADDRESSES, texts(&["192.0.2.11", "2001:db8::11"])),
                ("profile", text("flash")),
                (profiles::NAME, text("")),
                ("capacity_bytes", Value::Number(8_000_000_000_000)),
                ("tags", texts(&["loan", "rack-7"])),
            ]
            .into(),
        ),
        (Thing::Front(name("f1")), Settings::new()),
        (
            Thing::Asset(name("film")),
            [(key::PUBLIC, Value::Flag(true)), (key::UNTIL, text("2027-12-31T23:00:00Z"))].into(),
        ),
        (
            Thing::Version(name("film"), name("film-1")),
            [(key::FROM, text("2027-01-31T22:00:00Z")), (key::UNTIL, Value::Nothing)].into(),
        ),
    ]);
    assert_eq!(things, expected);
}

#[test]
fn what_is_written_is_read_again() {
    let things = parse(FILE).unwrap().things;
    let again = parse(&file(&things)).unwrap().things;
    let mut expected = things;
    let version = Thing::Version("film".to_owned(), "film-1".to_owned());
    expected.get_mut(&version).unwrap().remove(key::UNTIL);
    assert_eq!(again, expected, "a time that is not there is not written");
}

#[test]
fn every_fault_is_named_with_its_line_and_what_to_do() {
    let found = faults(
        "[policy]\ncopies = 0\ncopy = 1\n[sites.s1]\n[site.S1]\n[appliance.a1]\nsite = 7\n\
         weight = 1.5\naddresses = [\"x\"]\n[site]\ns3 = 3\n[asset.film]\nuntil = \"soon\"\n\
         public = \"yes\"\n[asset.film.version]\nx = 1\n[site.s4]\nprefixes = \"10.0.0.0/8\"\n\
         [front.f1]\nsite = \"s1\"\n[site.s5]\ntime_zone = \"Paris\"\nuplink_bps = \"10G\"\n\
         fill_cluster = \"Nord\"\n[appliance.a2]\nprofile = \"tape\"\n\
         capacity_bytes = \"1T\"\ntags = [\"Rack 7\"]\nfill_bps = 400\n",
    );
    assert_eq!(
        found,
        [
            "fleet.toml:2: [policy] copies: 0 is not a number from 1 to 64",
            "fleet.toml:3: [policy] copy: is no setting; what can be said is copies, \
             versions_kept, flash_throughput_bps, flash_capacity_bytes, flash_fill_bps, \
             storage_throughput_bps, storage_capacity_bytes, storage_fill_bps, \
             global_throughput_bps, global_capacity_bytes, global_fill_bps, fill_windows, \
             fill_urgent_bps, fill_masters, fill_elsewhere_after_s, fill_origin_after_s",
            "fleet.toml:4: [sites] is nothing to declare: there are [policy], [profile.NAME], \
             [site.NAME], [appliance.NAME], [front.NAME], [asset.NAME]",
            "fleet.toml:5: \"S1\" is not a name: use 1 to 63 of a-z, 0-9, '-', '_' and '.', \
             beginning with a letter or digit; a name with a dot stands in quotes",
            "fleet.toml:7: [appliance.a1] site: 7 is not the name of a site: write for example \
             \"s1\"",
            "fleet.toml:8: [appliance.a1] weight: 1.5 is no whole number",
            "fleet.toml:9: [appliance.a1] addresses: \"x\" is none of a list of addresses: \
             write for example [\"192.0.2.11\"]",
            "fleet.toml:11: write [site.s3] and its settings below",
            "fleet.toml:13: [asset.film] until: \"soon\" is not a time: write UTC, as in \
             2027-01-31T22:00:00Z, or \"none\"",
            "fleet.toml:14: [asset.film] public: \"yes\" is not true or false",
            "fleet.toml:16: write [asset.film.version.x] and its settings below",
            "fleet.toml:18: [site.s4] prefixes: \"10.0.0.0/8\" is no list of prefixes: write \
             for example [\"10.0.0.0/8\"]",
            "fleet.toml:20: [front.f1] site: is no setting; what can be said is nothing",
            "fleet.toml:22: [site.s5] time_zone: \"Paris\" is no time zone, but \
             \"Europe/Paris\" is one",
            "fleet.toml:23: [site.s5] uplink_bps: \"10G\" is not a number of bits per second \
             from 1000000 (1 Mb/s) to 1000000000000000, or 0 for unknown",
            "fleet.toml:24: [site.s5] fill_cluster: \"Nord\" is not the name of a cluster: \
             write for example \"de-north\", or \"\" for none",
            "fleet.toml:26: [appliance.a2] profile: \"tape\": write \"flash\", \"storage\", \
             \"global\" or \"none\", or declare [profile.NAME] of your own",
            "fleet.toml:27: [appliance.a2] capacity_bytes: \"1T\" is not a number of bytes \
             from 100000000 (100 MB) to 9000000000000000, or 0 for its profile's",
            "fleet.toml:28: [appliance.a2] tags: \"Rack 7\" is none of a list of tags: write \
             for example [\"rack-7\"]",
            "fleet.toml:29: [appliance.a2] fill_bps: 400 is not a number of bits per second \
             from 1000000 (1 Mb/s) to 1000000000000000, or 0 for its profile's",
        ]
    );
}

#[test]
fn windows_are_declared_of_sites_and_of_the_policy() {
    let said = |text: &str| parse(text).unwrap().things.into_values().next().unwrap();
    let windows = |text: &str| said(text)["fill_windows"].clone();
    let text = |text: &str| Value::Text(text.to_owned());
    assert_eq!(windows("[policy]\nfill_windows = \"2:00-14:00\""), text("02:00-14:00"));
    assert_eq!(windows("[policy]\nfill_windows = \"\""), text("always"));
    assert_eq!(windows("[site.s1]\nfill_windows = \"\""), text(""), "the policy's");
    assert_eq!(windows("[site.s1]\nfill_windows = \"always\""), text("always"));
    assert_eq!(
        faults("[site.s1]\nfill_windows = \"2-14\"\n[policy]\nfill_windows = 7"),
        [
            "fleet.toml:2: [site.s1] fill_windows: \"2-14\" is no window: write from and until by \
             local time, as \"02:00-14:00\" or \"22:00-06:00\", more of them with commas between, \
             or \"always\"",
            "fleet.toml:4: [policy] fill_windows: 7 is not a text of windows",
        ]
    );
}

/// What control has of the appliances of a file after it is applied.
fn applied(text: &str) -> Things {
    let things = parse(text).unwrap().things;
    let whole = |(thing, settings): (Thing, Settings)| {
        let all = of_kind(thing.kind()).map(|(key, form)| {
            let usual = || form.read(&Json::Null).unwrap_or(Value::Nothing);
            (key, settings.get(key).cloned().unwrap_or_else(usual))
        });
        (thing, all.collect())
    };
    things.into_iter().map(whole).collect()
}

const OWN: &str = "[appliance.a1]\nsite = \"s1\"\nweight = 1\naddresses = []\n\
                   profile = \"edge\"\n[appliance.a2]\nsite = \"s1\"\nweight = 1\n\
                   addresses = []\nprofile = \"edge\"\nfill_bps = 7_000_000\n[profile.edge]\n\
                   throughput_bps = 20_000_000_000\nfill_bps = 400_000_000\n";

#[test]
fn a_profile_of_an_operators_own_gives_its_name_and_figures_to_those_that_say_it() {
    let things = applied(OWN);
    let figures = |name: &str| {
        let settings = &things[&Thing::Appliance(name.to_owned())];
        let keys = ["profile", profiles::NAME, "throughput_bps", "capacity_bytes", "fill_bps"];
        keys.map(|key| body(settings)[key].clone())
    };
    let most = 20_000_000_000_u64;
    assert_eq!(json!(figures("a1")), json!(["none", "edge", most, 0, 400_000_000]));
    assert_eq!(json!(figures("a2")), json!(["none", "edge", most, 0, 7_000_000]), "its own");
    assert_eq!(things.len(), 2, "a profile is no thing of control's");
}

#[test]
fn an_exported_fleet_has_profiles_of_its_own_by_name_and_is_the_same_again() {
    let things = applied(OWN);
    let text = file(&things);
    let one = |name: &str, fill: u32| {
        format!(
            "[appliance.{name}]\naddresses = []\nfill_bps = {fill}\nprofile = \"edge\"\n\
             site = \"s1\"\nweight = 1\n\n"
        )
    };
    let own = "[profile.edge]\nthroughput_bps = 20000000000\n\n";
    assert_eq!(text, [own, &one("a1", 400_000_000), &one("a2", 7_000_000)].concat());
    assert_eq!(applied(&text), things);
}

#[test]
fn one_that_leaves_a_profile_leaves_its_figures_but_for_those_that_are_said() {
    let current = applied(OWN);
    let becomes = |settings: &str| {
        let mut declared = parse(&format!("[appliance.a1]\n{settings}\n")).unwrap();
        declared.beside(&current);
        body(&declared.things[&Thing::Appliance("a1".to_owned())])
    };
    let flash = json!({"profile": "flash", "profile_name": "", "throughput_bps": 0,
        "capacity_bytes": 0, "fill_bps": 0});
    assert_eq!(becomes("profile = \"flash\""), flash);
    let kept = becomes("profile = \"flash\"\nfill_bps = 9_000_000");
    assert_eq!((&kept["fill_bps"], &kept["throughput_bps"]), (&json!(9_000_000), &json!(0)));
    assert_eq!(becomes("weight = 2"), json!({"weight": 2}), "it leaves none");
}

#[test]
fn a_name_beside_an_own_profile_and_a_profile_of_none_are_faults() {
    let both = "[profile.edge]\n[profile.none]\n[appliance.a1]\nprofile = \"edge\"\n\
                profile_name = \"rack-x\"\n";
    let none = "fleet.toml:2: [profile.none]: that word says that there is no profile: use \
                another name";
    let name = "fleet.toml:5: [appliance.a1] profile_name: say profile alone: its name is the \
                profile's";
    assert_eq!(faults(both), [none, name]);
}

#[test]
fn a_profile_that_cannot_be_is_a_fault_with_its_line() {
    assert_eq!(
        faults(
            "[profile.flash]\nfill_bps = 1_000_000\n[profile.edge]\nweight = 1\nfill_bps = 1\n\
             [appliance.a1]\nprofile = \"egde\"\nprofile_name = \"flash\"\n[profile]\nx = 1\n"
        ),
        [
            "fleet.toml:1: [profile.flash]: there is one; its figures stand in [policy], \
             flash_...",
            "fleet.toml:4: [profile.edge] weight: is no setting; what can be said is \
             throughput_bps, capacity_bytes, fill_bps",
            "fleet.toml:5: [profile.edge] fill_bps: 1 is not a number of bits per second from \
             1000000 (1 Mb/s) to 1000000000000000, or 0 for unknown",
            "fleet.toml:7: [appliance.a1] profile: \"egde\": write \"flash\", \"storage\", \
             \"global\" or \"none\", or declare [profile.NAME] of your own",
            "fleet.toml:8: [appliance.a1] profile_name: \"flash\" is not a name of your own: \
             write for example \"edge-100\", or \"\" for none",
            "fleet.toml:10: write [profile.x] and its settings below",
        ]
    );
}

/// Control would refuse it after earlier steps were made.
#[test]
fn a_file_may_say_of_figures_and_tags_what_control_takes_and_no_more() {
    let tags: Vec<String> = (0..=TAGS_MAX).map(|number| format!("t{number}")).collect();
    let takes = |text: &str| parse(&format!("[site.s1]\n[appliance.a1]\n{text}\n")).is_ok();
    for (least, greatest, key) in [
        (RATES.start().0, RATES.end().0, "throughput_bps"),
        (RATES.start().0, RATES.end().0, "fill_bps"),
        (CAPACITIES.start().0, CAPACITIES.end().0, "capacity_bytes"),
    ] {
        for (number, is_good) in
            [(0, true), (1, false), (least - 1, false), (least, true), (greatest, true)]
        {
            assert_eq!(takes(&format!("{key} = {number}")), is_good, "{key} {number}");
        }
        assert!(!takes(&format!("{key} = {}", greatest + 1)), "{key}");
    }
    assert!(takes(&format!("tags = {:?}", &tags[1..])));
    let said = faults(&format!("[appliance.a1]\ntags = {tags:?}\n"));
    let most = "fleet.toml:2: [appliance.a1] tags: 17 tags: an appliance has at most 16";
    assert_eq!(said, [most]);
    assert!(parse("[site.s1]\nbitrate_max_bps = 400\n").is_ok(), "of the smallest rendition");
}

#[test]
fn an_exported_policy_has_each_figure_whatever_the_defaults_are() {
    let figures = wire::v1::appliance::Profiles::from(Profiles::default()).figures();
    let copies = ("copies", Value::Number(2));
    let numbers = [("fill_masters", Value::Number(0)), ("fill_origin_after_s", Value::Number(900))];
    let figures = figures.map(|(key, figure)| (key, Value::Number(figure)));
    let settings: Settings = figures.into_iter().chain([copies]).chain(numbers).collect();
    let things = Things::from([(Thing::Policy, settings)]);
    assert_eq!(parse(&file(&things)).unwrap().things, things);
}

#[test]
fn masters_may_be_none_and_no_more_than_control_takes() {
    assert!(parse("[policy]\nfill_masters = 0\nfill_elsewhere_after_s = 0\n").is_ok());
    let found = faults("[policy]\nfill_masters = 17\nfill_origin_after_s = 172_801\n");
    assert_eq!(
        found,
        [
            "fleet.toml:2: [policy] fill_masters: 17 is not a number from 0 to 16",
            "fleet.toml:3: [policy] fill_origin_after_s: 172801 is not a number from 0 to 172800",
        ]
    );
}

#[test]
fn what_is_no_toml_is_shown_with_its_line() {
    let said = parse("[policy]\ncopies = \n").unwrap_err().to_string();
    assert!(said.starts_with("fleet.toml: ") && said.contains("line 2"), "{said}");
}

#[test]
fn conflicts_with_the_fleet_have_their_lines_too() {
    let declared = parse("[appliance.a1]\nweight = 1\n[appliance.a2]\nsite = \"s9\"\n").unwrap();
    let conflicts = apply::difference(&declared.things, &Things::new(), false).unwrap_err();
    let said = declared.refuse_conflicts(&conflicts).unwrap_err().to_string();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "fleet.toml:1: [appliance.a1]: it is new, and the file does not say where it \
             stands: write site = \"NAME\"",
            "fleet.toml:4: [appliance.a2] site: there is no site s9, neither in the file nor \
             in the fleet: declare [site.s9]",
        ]
    );
}
