use super::*;
use model::manifest::SiteMember;
use std::net::IpAddr;

#[test]
fn a_generation_grows_only_for_appliances_whose_manifest_differs() {
    let mut director = running(&["a1", "b1"]);
    let before = generations(&director);
    director.handle(at(0), Event::Changed(Change::Site(site("s3", "192.0.2.0/24"))));
    settle(&mut director);
    assert_eq!(generations(&director), before, "a site without appliances changes no manifest");

    put_version(&mut director, "film-1", &[1, 2], 1);
    let after = generations(&director);
    assert!(before.values().max() < after.values().min(), "{before:?} {after:?}");
    assert_eq!(manifest(&director, "a1").versions.len(), 1);

    let one = Policy { copies: 1, versions_kept: 2, ..Policy::default() };
    director.handle(at(0), Event::Changed(Change::Policy(one)));
    settle(&mut director);
    assert_eq!(generations(&director), after, "one appliance per site: one copy is all it had");
}

#[test]
fn an_appliance_is_told_who_else_in_its_site_should_hold_what_and_who_can_serve() {
    let mut director = running(&["a1", "a2", "b1"]);
    let all = Policy { copies: 2, versions_kept: 2, ..Policy::default() };
    director.handle(at(0), Event::Changed(Change::Policy(all)));
    put_version(&mut director, "film-1", &[1, 2], 1);
    let siblings = |name| manifest(&director, name).siblings.clone();
    assert_eq!(siblings("a1"), BTreeMap::from([("film-1".parse().unwrap(), vec![id("a2")])]));
    assert_eq!(siblings("b1"), BTreeMap::new(), "alone in its site");
    let told = |director: &mut Director, sequence, serving| {
        let other = Report { serving, base_url: "https://a2".to_owned(), ..report(sequence) };
        director.report(at(0), &id("a2"), &other).unwrap();
        director.report(at(0), &id("b1"), &report(sequence)).unwrap();
        director.report(at(0), &id("a1"), &report(sequence)).unwrap().siblings.to_map()
    };
    assert_eq!(told(&mut director, 50, true), BTreeMap::from([(id("a2"), "https://a2".into())]));
    assert_eq!(told(&mut director, 51, false), BTreeMap::new(), "it takes no new sessions");
    let site = "b".parse().unwrap();
    let moved = Appliance::new(id("b1"), "a".parse().unwrap(), Weight::ONE);
    director.handle(at(0), Event::Changed(Change::Appliance(moved)));
    assert_eq!(told(&mut director, 52, true).len(), 2, "one has moved here");
    let moved = Appliance::new(id("a2"), site, Weight::ONE);
    director.handle(at(0), Event::Changed(Change::Appliance(moved)));
    assert_eq!(told(&mut director, 53, true).into_keys().collect::<Vec<_>>(), [id("b1")]);
}

#[test]
fn a_site_with_service_addresses_tells_its_members_who_has_which_and_who_holds_what() {
    let mut director = running(&["a1", "a2", "a3", "b1"]);
    let one = Policy { copies: 1, versions_kept: 2, ..Policy::default() };
    director.handle(at(0), Event::Changed(Change::Policy(one)));
    put_version(&mut director, "film-1", &[1, 2], 1);
    assert!(["a1", "a2", "a3"].iter().all(|name| manifest(&director, name).siblings.is_empty()));
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let site: SiteId = "a".parse().unwrap();
    let addresses = vec![address];
    let with = Appliance { addresses, ..Appliance::new(id("a1"), site, Weight::ONE) };
    let before = generations(&director);
    director.handle(at(0), Event::Changed(Change::Appliance(with)));
    settle(&mut director);
    let after = generations(&director);
    assert_eq!((before["b1"], before.len()), (after["b1"], after.len()), "another site");
    let members = [SiteMember { id: id("a1"), addresses: vec![address] }];
    let holds = |name: &&&str| !manifest(&director, name).versions.is_empty();
    let holder = ["a1", "a2", "a3"].iter().find(holds).map(|name| id(name)).unwrap();
    for name in ["a1", "a2", "a3"] {
        let manifest = manifest(&director, name);
        assert_eq!(manifest.site, members);
        let named: Vec<_> = manifest.siblings.values().flatten().collect();
        assert_eq!(named.is_empty(), id(name) == holder, "all others can send players on");
    }
    let peer_address = Some("a1.internal:9443".to_owned());
    director.report(at(0), &id("a1"), &Report { peer_address, ..report(90) }).unwrap();
    let told = director.report(at(0), &id("a2"), &report(90)).unwrap().peers;
    assert_eq!(told.to_map(), BTreeMap::from([(id("a1"), "a1.internal:9443".into())]));
    let told = director.report(at(0), &id("b1"), &report(90)).unwrap().peers;
    assert_eq!(told.to_map(), BTreeMap::new());
}

#[test]
fn whom_to_believe_stands_in_every_manifest_and_makes_a_new_generation_of_all() {
    let mut director = running(&["a1", "b1"]);
    let before = generations(&director);
    let key = TokenKey { kid: "s2".to_owned(), public_key: [8; 32] };
    let revoked = BTreeSet::from(["4a".to_owned()]);
    director.handle(at(0), Event::Changed(Change::SigningKeys(vec![key.clone()])));
    settle(&mut director);
    let between = generations(&director);
    director.handle(at(0), Event::Changed(Change::Revoked(revoked.clone())));
    settle(&mut director);
    let after = generations(&director);
    assert!(before.values().max() < between.values().min(), "{before:?} {between:?}");
    assert!(between.values().max() < after.values().min(), "{between:?} {after:?}");
    for name in ["a1", "b1"] {
        let trust = manifest(&director, name).trust.clone();
        assert_eq!((trust.signing_keys, trust.revoked), (vec![key.clone()], revoked.clone()));
    }
}

#[test]
fn versions_beyond_those_kept_leave_the_manifests() {
    let mut director = running(&["a1"]);
    for n in 1..=3 {
        put_version(&mut director, &format!("film-{n}"), &[n], u64::from(n));
    }
    let manifest = manifest(&director, "a1");
    let held: Vec<&str> = manifest.versions.iter().map(|version| version.id.as_str()).collect();
    assert_eq!(held, ["film-3", "film-2"], "most wanted first");
}
