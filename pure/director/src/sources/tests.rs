use super::*;

use std::collections::{BTreeMap, BTreeSet};

use model::id::AssetVersionId;
use model::machine::Machine;
use model::manifest::File;
use model::units::{BitsPerSecond, Bytes, UnixSeconds};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::tests as fleet;
use crate::{Change, FillPolicy, Policy};

const CONFIG: Config = Config { siblings_max: 4, elsewhere: true };

#[test]
fn siblings_of_the_same_site_come_first_and_who_is_left_out_has_its_reason() {
    let fleet = Fleet::of(&["a1", "a2", "a3", "b1", "b2", "c1", "c2", "c3", "c4", "c5"]);
    let change = |name: &str, change: fn(&mut One)| {
        let mut fleet = fleet.clone();
        change(fleet.0.get_mut(name).unwrap());
        let ranked = fleet.rank("a1", 1, CONFIG);
        ranked.into_iter().find(|(id, _)| id == name).unwrap().1
    };
    let ranked = fleet.rank("a1", 1, CONFIG);
    let found: Vec<_> = ranked.iter().map(|(_, suitability)| *suitability).collect();
    let mut wanted = vec![Suitability::SameSite; 2];
    wanted.extend([Suitability::Elsewhere; 7]);
    wanted.push(Suitability::Asker);
    assert_eq!(found, wanted);
    for health in
        [Health::Draining, Health::Drained, Health::Unhealthy, Health::Stale, Health::NeverSeen]
    {
        let mut fleet = fleet.clone();
        fleet.0.get_mut("a2").unwrap().health = health;
        let ranked: BTreeMap<_, _> = fleet.rank("a1", 1, CONFIG).into_iter().collect();
        assert_eq!(ranked["a2"], Suitability::Unwell(health));
    }
    assert_eq!(change("a2", |one| one.address = None), Suitability::NoAddress);
    assert_eq!(change("a2", |one| one.holds.clear()), Suitability::Lacks);
    assert_eq!(change("a2", |one| one.load.connections = 95), Suitability::AtLimit);
    assert_eq!(change("a2", |one| one.load.connections = 94), Suitability::SameSite);
    let only_here = Config { elsewhere: false, ..CONFIG };
    let ranked: BTreeMap<_, _> = fleet.rank("a1", 1, only_here).into_iter().collect();
    assert_eq!((ranked["a2"], ranked["b1"]), (Suitability::SameSite, Suitability::OtherCluster));
}

#[test]
fn those_who_fill_the_same_object_do_not_all_ask_the_same_sibling() {
    let names: Vec<String> = (0..40).map(|n| format!("a{n}")).collect();
    let mut fleet = Fleet::of(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for (index, one) in fleet.0.values_mut().enumerate() {
        if 10 <= index {
            one.holds.clear();
        }
    }
    let mut first = BTreeMap::<String, u32>::new();
    for object in 0..10 {
        for asker in fleet.0.iter().filter(|(_, one)| one.holds.is_empty()).map(|(id, _)| id) {
            let best = fleet.rank(asker, object, CONFIG).swap_remove(0);
            assert_eq!(best.1, Suitability::SameSite);
            *first.entry(best.0).or_default() += 1;
        }
    }
    // 300 draws among 10: 30 each, standard deviation 5.2; five of them are 26.
    assert_eq!(first.len(), 10, "{first:?}");
    assert!(first.values().all(|n| n.abs_diff(30) <= 26), "{first:?}");
}

#[test]
fn origins_are_every_source_of_every_version_and_the_path_that_it_has_there() {
    let version = |name: &str, sources: &[&str], files: &[(&str, u8)]| {
        let file = |(path, n): &(&str, u8)| {
            let (object, content_type) = (fleet::object(*n), "video/mp4");
            ((*path).to_owned(), File { object, len: Bytes(1), content_type: content_type.into() })
        };
        Arc::new(AssetVersion {
            id: name.parse::<AssetVersionId>().unwrap(),
            asset: "film".parse().unwrap(),
            sources: sources.iter().map(|source| (*source).to_owned()).collect(),
            modified: UnixSeconds(1),
            pace: None,
            files: files.iter().map(file).collect(),
        })
    };
    let versions = [
        version(
            "film-2",
            &["s3://films/2/", "https://o.example/2/"],
            &[("x/a b.mp4", 1), ("y", 2)],
        ),
        version("film-1", &["s3://films/1/", "https://o.example/2/"], &[("x/a b.mp4", 1)]),
        version("film-0", &["https://o.example/0/"], &[("old", 3)]),
    ];
    let found = |n, most| -> Vec<String> {
        let origins = origins(&versions, &fleet::object(n), most);
        origins.iter().map(|origin| format!("{}{}", origin.source, origin.path)).collect()
    };
    let all = ["s3://films/2/x/a b.mp4", "https://o.example/2/x/a b.mp4", "s3://films/1/x/a b.mp4"];
    assert_eq!(found(1, 4), all, "the same URL is said once");
    assert_eq!(found(1, 2), all[..2]);
    assert_eq!(found(2, 4), ["s3://films/2/y", "https://o.example/2/y"]);
    assert_eq!(found(9, 4), [""; 0]);
}

#[test]
fn the_director_answers_for_what_the_asker_should_hold_and_for_nothing_else() {
    let mut director = fleet::running(&["a1", "a2", "a3", "b1"]);
    let fill = FillPolicy { masters: 0, ..FillPolicy::default() };
    let everybody = Policy { fill, ..director.desired().policy };
    director.handle(fleet::at(0), crate::Event::Changed(Change::Policy(everybody)));
    fleet::put_version(&mut director, "film-1", &[1, 2], 1);
    let ask = |director: &Director, asker: &str, n| {
        director.sources(&fleet::id(asker), &fleet::object(n), Nanos(0))
    };
    let siblings = |director: &Director, asker: &str, n| -> Vec<(String, String)> {
        let sources = ask(director, asker, n).unwrap();
        assert_eq!(sources.versions.len(), 1);
        sources.siblings.iter().map(|of| (of.id.to_string(), of.address.to_string())).collect()
    };
    // Two of the three of site a are to hold it, and the only one of site b.
    let (holder, other): (Vec<_>, Vec<_>) =
        ["a1", "a2", "a3"].into_iter().partition(|name| ask(&director, name, 1).is_ok());
    assert_eq!((holder.len(), ask(&director, other[0], 1)), (2, Err(NoSources::NotWanted)));
    assert_eq!(ask(&director, holder[0], 9), Err(NoSources::NotWanted));
    assert_eq!(ask(&director, "zz", 1), Err(NoSources::NotRegistered));
    assert_eq!(siblings(&director, "b1", 1), [], "nobody holds it yet");

    let serves = |director: &mut Director, name: &str, sequence, serving| {
        let inventory =
            model::inventory::Delta { to: 1, held: vec![fleet::object(1)], ..Default::default() };
        let peer_address = Some(format!("{name}.example:8444"));
        let report = crate::Report { inventory, peer_address, serving, ..fleet::report(sequence) };
        director.report(fleet::at(0), &fleet::id(name), &report).unwrap();
    };
    serves(&mut director, holder[0], 30, true);
    serves(&mut director, "b1", 30, true);
    let pair = |name: &str| (name.to_owned(), format!("{name}.example:8444"));
    assert_eq!(siblings(&director, holder[1], 1), [pair(holder[0]), pair("b1")]);
    assert_eq!(siblings(&director, holder[1], 2), [], "they hold the other object only");
    assert_eq!(siblings(&director, holder[0], 1), [pair("b1")], "never itself");
    serves(&mut director, "b1", 31, false);
    assert_eq!(siblings(&director, holder[0], 1), [], "draining");
    director.handle(fleet::at(5_000), crate::Event::Tick(UnixSeconds(5)));
    assert_eq!(siblings(&director, holder[1], 1), [], "silent");
}

proptest! {
    #[test]
    fn whoever_is_named_is_healthy_holds_it_has_an_address_and_does_not_ask(
        ones in vec(one(), 1..12),
        object in 0_u8..3,
        elsewhere: bool,
    ) {
        let name = |(n, (site, one)): (usize, (char, One))| (format!("{site}{n}"), one);
        let fleet = Fleet(ones.into_iter().enumerate().map(name).collect());
        let asker = fleet.0.keys().next().unwrap().clone();
        let config = Config { elsewhere, ..CONFIG };
        let ranked = fleet.rank(&asker, object, config);
        prop_assert_eq!(ranked.len(), fleet.0.len(), "everyone is judged");
        let asked: Vec<_> = ranked.iter().take_while(|(_, s)| s.is_asked()).collect();
        prop_assert!(ranked[asked.len()..].iter().all(|(_, s)| !s.is_asked()), "sorted");
        let same_site = |id: &str| id[..1] == asker[..1];
        for (id, _) in &asked {
            let one = &fleet.0[id];
            prop_assert!(*id != asker && one.health == Health::Healthy && one.address.is_some());
            prop_assert!(one.holds.contains(&object) && (elsewhere || same_site(id)));
        }
        prop_assert!(asked.is_sorted_by_key(|(id, _)| !same_site(id)), "nearest first");
        for (id, one) in &fleet.0 {
            let good = *id != asker && one.health == Health::Healthy && one.address.is_some()
                && one.holds.contains(&object) && (elsewhere || same_site(id));
            let is_asked = asked.iter().any(|(asked, _)| asked == id);
            prop_assert_eq!(good && !one.load.is_at_limit(), is_asked);
        }
    }

    #[test]
    fn one_that_comes_or_goes_changes_nobody_elses_place(gone in 1_usize..9, object: u8) {
        let names = ["a0", "a1", "a2", "a3", "a4", "b5", "b6", "b7", "b8"];
        let mut fleet = Fleet::of(&names);
        let all = [object].into();
        fleet.0.values_mut().for_each(|one| one.holds.clone_from(&all));
        let mut before = fleet.rank("a0", object, CONFIG);
        before.retain(|(id, _)| id != names[gone]);
        fleet.0.remove(names[gone]);
        prop_assert_eq!(fleet.rank("a0", object, CONFIG), before);
    }
}

/// Appliances by name; the first letter is the site's.
#[derive(Clone, Debug)]
struct Fleet(BTreeMap<String, One>);

#[derive(Clone, Debug)]
struct One {
    weight: Weight,
    health: Health,
    load: Load,
    address: Option<Arc<str>>,
    holds: BTreeSet<u8>,
}

impl Fleet {
    /// All healthy, all holding objects 0 to 9.
    fn of(names: &[&str]) -> Self {
        let one = |name: &&str| {
            let one = One {
                weight: Weight::ONE,
                health: Health::Healthy,
                load: Load { connections_max: 100, ..Load::default() },
                address: Some(format!("{name}.example:8444").into()),
                holds: (0..10).collect(),
            };
            ((*name).to_owned(), one)
        };
        Self(names.iter().map(one).collect())
    }

    fn rank(&self, asker: &str, object: u8, config: Config) -> Vec<(String, Suitability)> {
        let place = |name: &str| (fleet::id(name), name[..1].parse::<SiteId>().unwrap());
        let places: Vec<_> = self.0.iter().map(|(name, one)| (place(name), one)).collect();
        let siblings = places.iter().map(|((id, site), one)| Sibling {
            id,
            site,
            same_cluster: *site == place(asker).1,
            weight: one.weight,
            health: one.health,
            load: one.load,
            address: one.address.as_ref(),
            holds: one.holds.contains(&object),
        });
        let (id, site) = place(asker);
        let object = fleet::object(object);
        let query = Query { asker: &id, site: &site, object: &object, reach: Reach::Origin };
        let ranked = rank(&query, siblings, &config);
        ranked.iter().map(|candidate| (candidate.id.to_string(), candidate.suitability)).collect()
    }
}

fn one() -> impl Strategy<Value = (char, One)> {
    let health = prop_oneof![
        3 => Just(Health::Healthy),
        1 => Just(Health::Draining),
        1 => Just(Health::Drained),
        1 => Just(Health::Unhealthy),
        1 => Just(Health::Stale),
        1 => Just(Health::NeverSeen),
    ];
    let load = (0_u64..110, 0_u64..110).prop_map(|(connections, egress)| Load {
        connections,
        connections_max: 100,
        egress: BitsPerSecond(egress),
        egress_max: BitsPerSecond(100),
        ..Load::default()
    });
    let holds = proptest::collection::btree_set(0_u8..3, 0..4);
    let site = prop_oneof![Just('a'), Just('b')];
    (site, 1_u32..10, health, load, any::<bool>(), holds).prop_map(
        |(site, weight, health, load, reachable, holds)| {
            let weight = Weight::new(weight).unwrap();
            let address = reachable.then(|| "x.example:1".into());
            (site, One { weight, health, load, address, holds })
        },
    )
}
