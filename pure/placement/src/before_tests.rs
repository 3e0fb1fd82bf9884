use super::*;

#[test]
fn every_site_gets_its_copies_on_the_appliances_that_the_draw_puts_first() {
    let fleet = ["a1", "a2", "a3", "b1"].map(|name| candidate(name, &name[..1]));
    let placed = place(&fleet, &demands(8), 2);
    let held = |name: &str| -> String {
        let films = placed[&id(name)].iter().map(|version| &version.as_str()[5..]);
        films.collect()
    };
    // What the release before answers.
    assert_eq!(held("b1"), "01234567");
    assert_eq!(["a1", "a2", "a3"].map(held), ["03456", "12467", "012357"]);
}

#[test]
fn a_full_appliance_is_skipped_for_the_next_one_and_one_that_never_reported_gets_nothing() {
    let mut fleet = ["a1", "a2", "a3"].map(|name| candidate(name, "a"));
    fleet[0].usable = Some(Bytes::mib(300));
    fleet[1].usable = Some(Bytes::mib(250));
    fleet[2].usable = None;
    let placed = place(&fleet, &demands(4), 2);
    let counts = ["a1", "a2", "a3"].map(|name| placed[&id(name)].len());
    assert_eq!(counts, [3, 2, 0]);
}

#[test]
fn where_upper_renditions_are_left_out_more_versions_fit() {
    let [whole, lower] = ["s1", "s2"].map(|site| {
        let bitrate_max = (site == "s2").then_some(BitsPerSecond(1000));
        let usable = Some(Bytes::mib(300));
        Candidate { usable, bitrate_max, ..candidate(&format!("a-{site}"), site) }
    });
    let renditions = [(1000, 20), (1001, 30), (3000, 40)];
    let renditions = renditions.map(|(rate, mib)| (BitsPerSecond(rate), Bytes::mib(mib)));
    let mut demands = demands(20);
    demands.iter_mut().for_each(|demand| demand.renditions = renditions.to_vec());
    let placed = place(&[whole, lower], &demands, 2);
    let held = |name: &str| placed[&id(name)].len();
    assert_eq!((held("a-s1"), held("a-s2")), (3, 10));
}

fn demands(count: usize) -> Vec<Demand> {
    let version = |i| format!("film-{i}").parse().unwrap();
    let demand = |version| Demand { version, len: Bytes::mib(100), renditions: Vec::new() };
    (0..count).map(|i| demand(version(i))).collect()
}

fn candidate(name: &str, site: &str) -> Candidate {
    let usable = Some(Bytes::mib(1 << 20));
    let (id, site) = (id(name), site.parse().unwrap());
    Candidate { id, site, weight: Weight::ONE, usable, bitrate_max: None }
}

fn id(name: &str) -> ApplianceId {
    name.parse().unwrap()
}
