use super::*;

/// Things by lines such as `site s1 prefixes=10.0.0.0/8,10.1.0.0/16`.
fn things(lines: &[&str]) -> Things {
    lines.iter().map(|line| thing(line)).collect()
}

fn thing(line: &str) -> (Thing, Settings) {
    let mut words = line.split(' ');
    let kind = words.next().unwrap();
    let mut name = || words.next().unwrap().to_owned();
    let thing = match kind {
        "policy" => Thing::Policy,
        "site" => Thing::Site(name()),
        "appliance" => Thing::Appliance(name()),
        "front" => Thing::Front(name()),
        "asset" => Thing::Asset(name()),
        "version" => Thing::Version(name(), name()),
        other => panic!("{other}"),
    };
    let setting = |word: &str| {
        let (name, value) = word.split_once('=').unwrap();
        let keys = ["copies", "prefixes", "site", "weight", "addresses", "public", "from", "until"];
        let name = keys.into_iter().find(|known| *known == name).unwrap();
        let value = match (name, value) {
            (_, "nothing") => Value::Nothing,
            (key::PUBLIC, value) => Value::Flag(value == "yes"),
            ("prefixes" | key::ADDRESSES, list) => {
                let list = list.split(',').filter(|one| !one.is_empty());
                Value::Texts(list.map(str::to_owned).collect())
            }
            ("copies" | "weight", number) => Value::Number(number.parse().unwrap()),
            (_, text) => Value::Text(text.to_owned()),
        };
        (name, value)
    };
    (thing, words.map(setting).collect())
}

const FLEET: [&str; 9] = [
    "policy copies=2",
    "site s1 prefixes=10.0.0.0/8",
    "site s2 prefixes=",
    "appliance a1 site=s1 weight=1 addresses=192.0.2.1",
    "appliance a2 site=s1 weight=1 addresses=192.0.2.2",
    "front f1",
    "asset film public=yes",
    "version film film-1 from=nothing until=2027",
    "version film film-2 from=nothing until=2028",
];

/// What is declared leads from `FLEET` by these steps and waits; then the same file does nothing.
fn check(declared: &[&str], prune: bool, expected: &[&str]) {
    let (declared, current) = (things(declared), things(&FLEET));
    let found = difference(&declared, &current, prune).unwrap();
    let steps = found.steps.iter().map(ToString::to_string);
    let waits = found.waits.iter().map(|wait| format!("wait: {wait}"));
    assert_eq!(steps.chain(waits).collect::<Vec<_>>(), expected);

    let after = taken(&found.steps, current);
    let again = difference(&declared, &after, prune).unwrap();
    assert_eq!(again.steps, [], "applied again");
    assert_eq!(again.waits, found.waits);
}

/// What control has after these steps, each of which it would take: an appliance stands in a site
/// that is there, and no two have one address.
fn taken(steps: &[Step], mut fleet: Things) -> Things {
    for step in steps {
        match step.act {
            Act::Make => {
                assert!(fleet.insert(step.thing.clone(), step.settings.clone()).is_none());
            }
            Act::Change(_) => {
                assert!(fleet.insert(step.thing.clone(), step.settings.clone()).is_some());
            }
            Act::Remove => assert!(fleet.remove(&step.thing).is_some(), "{step}"),
        }
        let mut seen = BTreeSet::new();
        for (_, settings) in fleet.iter().filter(|(thing, _)| is_appliance(thing)) {
            let Some(Value::Text(site)) = settings.get(key::SITE) else { panic!("{settings:?}") };
            assert!(fleet.contains_key(&Thing::Site(site.clone())), "{step}: no site {site}");
            assert!(addresses(settings).all(|address| seen.insert(address.clone())), "{step}");
        }
    }
    fleet
}

fn conflicts(declared: &[&str], prune: bool) -> Vec<String> {
    let conflicts = difference(&things(declared), &things(&FLEET), prune).unwrap_err();
    conflicts.iter().map(|of| format!("{} {:?}: {}", of.thing, of.key, of.why)).collect()
}

#[test]
fn what_is_not_in_the_file_is_left_alone() {
    check(&[], false, &[]);
    check(&FLEET, false, &[]);
    check(&FLEET, true, &[]);
    check(&["appliance a1 weight=1"], false, &[]);
    check(&["appliance a1 weight=3"], false, &["change appliance a1: weight 1 becomes 3"]);
}

#[test]
fn sites_are_made_before_the_appliances_in_them() {
    check(
        &["appliance a0 site=s3", "site s3 prefixes=10.3.0.0/16", "policy copies=1"],
        false,
        &[
            "change policy: copies 2 becomes 1",
            "make site s3: prefixes 10.3.0.0/16",
            "make appliance a0: site s3",
        ],
    );
}

#[test]
fn lists_say_what_comes_and_what_goes() {
    let one = "change site s1: prefixes also 10.1.0.0/16, without 10.0.0.0/8";
    check(&["site s1 prefixes=10.1.0.0/16"], false, &[one]);
    let one = "change site s1: prefixes without 10.0.0.0/8";
    check(&["site s1 prefixes="], false, &[one]);
    let many: Vec<String> = (0..9).map(|i| format!("10.{i}.0.0/16")).collect();
    let line = format!("site s2 prefixes={}", many.join(","));
    let said = "change site s2: prefixes also 10.0.0.0/16, 10.1.0.0/16, 10.2.0.0/16, 10.3.0.0/16, \
                10.4.0.0/16, 10.5.0.0/16 and 3 more";
    check(&[&line], false, &[said]);
}

#[test]
fn an_address_is_given_up_before_another_gets_it() {
    check(
        &["appliance a1 addresses=192.0.2.2", "appliance a2 addresses=192.0.2.1"],
        false,
        &[
            "change appliance a1: addresses without 192.0.2.1",
            "change appliance a2: addresses without 192.0.2.2",
            "change appliance a1: addresses also 192.0.2.2",
            "change appliance a2: addresses also 192.0.2.1",
        ],
    );
    // Its owner goes: first, then.
    check(
        &["site s1", "appliance a1 addresses=192.0.2.2"],
        true,
        &[
            "remove appliance a2: its copies are placed elsewhere, and its identity is refused",
            "change appliance a1: addresses also 192.0.2.2, without 192.0.2.1",
            "change asset film: public yes becomes no",
            "remove front f1: its identity is refused",
            "remove site s2",
        ],
    );
}

#[test]
fn only_prune_removes_and_it_takes_no_title_down() {
    check(
        &["site s1", "appliance a1", "asset film"],
        true,
        &[
            "remove front f1: its identity is refused",
            "remove appliance a2: its copies are placed elsewhere, and its identity is refused",
            "remove site s2",
        ],
    );
    // Moved away, then its old site goes.
    check(
        &["site s2", "appliance a1 site=s2", "appliance a2 site=s2", "front f1", "asset film"],
        true,
        &[
            "change appliance a1: site s1 becomes s2",
            "change appliance a2: site s1 becomes s2",
            "remove site s1",
        ],
    );
}

#[test]
fn times_of_an_asset_are_those_of_its_versions_that_have_none_of_their_own() {
    check(
        &["asset film public=no until=2027", "version film film-1 from=2026"],
        false,
        &[
            "change asset film: public yes becomes no",
            "change version film-1 of asset film: from nothing becomes 2026",
            "change version film-2 of asset film: until 2028 becomes 2027",
        ],
    );
    check(
        &["asset film until=nothing", "version film film-2 until=2028"],
        false,
        &["change version film-1 of asset film: until 2027 becomes nothing"],
    );
}

#[test]
fn what_control_cannot_make_waits_and_the_rest_is_done() {
    check(
        &[
            "policy copies=3",
            "front f1",
            "front f2",
            "asset serial public=yes",
            "version serial serial-1 from=2026",
            "version film film-9 from=2026",
        ],
        false,
        &[
            "change policy: copies 2 becomes 3",
            "wait: front f2 has no identity yet: `nearcast front enrol f2` makes a code for its \
             machine",
            "wait: asset serial is not there yet: bring it in with `nearcast ingest`, then apply \
             again",
            "wait: asset film has no version film-9: `nearcast asset show film` lists those it \
             has; if it was taken down, take it out of the file",
        ],
    );
}

#[test]
fn a_file_that_cannot_be_applied_gives_all_its_faults_and_no_step() {
    let found = conflicts(
        &[
            "appliance a1 addresses=192.0.2.2",
            "appliance a3 weight=1",
            "appliance a4 site=s4 addresses=192.0.2.9",
            "appliance a5 site=s1 addresses=192.0.2.9",
        ],
        false,
    );
    assert_eq!(
        found,
        [
            "appliance a1 Some(\"addresses\"): 192.0.2.2 is a2's, whose addresses the file does \
             not say: say them there, without this one",
            "appliance a3 None: it is new, and the file does not say where it stands: write site = \
             \"NAME\"",
            "appliance a4 Some(\"site\"): there is no site s4, neither in the file nor in the \
             fleet: declare [site.s4]",
            "appliance a5 Some(\"addresses\"): 192.0.2.9 is also a4's in the file: give each \
             appliance its own",
        ]
    );
    let found = conflicts(&["appliance a1 site=s1", "appliance a2"], true);
    let pruned = "it stands in site s1, which the file does not name, so that --prune would remove \
                  the site: declare [site.s1], or move it";
    let (a1, a2) = ("appliance a1 Some(\"site\")", "appliance a2 None");
    assert_eq!(found, [format!("{a1}: {pruned}"), format!("{a2}: {pruned}")]);
}

/// A fleet of three sites and four appliances, as far as the numbers say that they are there.
fn fleet(sites: u8, appliances: &[(u8, u8)]) -> Things {
    let of = |bits: u8, count: usize| (0..count).filter(move |index| bits >> index & 1 == 1);
    let mut lines: Vec<String> = of(sites | 1, 3).map(|site| format!("site s{site}")).collect();
    for (appliance, (site, addresses)) in appliances.iter().enumerate() {
        let site = usize::from(*site);
        let site = if site < 3 && (sites | 1) >> site & 1 == 1 { site } else { 0 };
        let addresses: Vec<_> = of(*addresses, 4).map(|at| format!("192.0.2.{at}")).collect();
        lines
            .push(format!("appliance a{appliance} site=s{site} addresses={}", addresses.join(",")));
    }
    things(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

proptest::proptest! {
    /// Whatever a fleet is and whatever a file says: each step is one that control takes, and the
    /// same file then leads nowhere.
    #[test]
    fn steps_are_taken_in_their_order_and_once(
        sites in (0..8_u8, 0..8_u8),
        owners in proptest::collection::vec(0..4_u8, 4),
        current in proptest::collection::vec(0..3_u8, 0..4),
        declared in proptest::collection::vec((0..3_u8, 0..16_u8), 0..4),
        prune: bool,
    ) {
        // Each address has one owner at most, as control sees to.
        let owners = &owners;
        let is_its = |of: usize| (0..4).filter(move |at| usize::from(owners[*at]) == of);
        let own = |of: usize| is_its(of).map(|at| 1 << at).sum();
        let current: Vec<(u8, u8)> =
            current.iter().enumerate().map(|(of, site)| (*site, own(of))).collect();
        let (current, declared) = (fleet(sites.0, &current), fleet(sites.1, &declared));
        if let Ok(found) = difference(&declared, &current, prune) {
            let after = taken(&found.steps, current);
            proptest::prop_assert_eq!(difference(&declared, &after, prune).unwrap().steps, []);
            for (thing, settings) in &declared {
                for (key, value) in settings {
                    proptest::prop_assert_eq!(after[thing].get(key), Some(value));
                }
            }
        }
    }
}
