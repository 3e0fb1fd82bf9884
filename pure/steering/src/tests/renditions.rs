use super::*;
use proptest::collection::vec;

/// Three renditions: what an appliance holds is three bits, the lowest first.
const ALL: u32 = 0b111;

/// Sites a (10/8), b (10.1/16) and c, whose appliances hold these renditions.
fn fleet(sites: &[(&str, &[u32])]) -> FleetView {
    let counts: Vec<(&str, u32)> =
        sites.iter().map(|(site, held)| (*site, u32::try_from(held.len()).unwrap())).collect();
    let mut view = view(&counts);
    view.holders.get_mut(0).unwrap().renditions = 7..10;
    let held = sites.iter().flat_map(|(_, held)| held.iter().copied());
    let mut partial = vec![Members::default(); 10];
    for (held, number) in held.zip(0..).filter(|(held, _)| *held != ALL) {
        view.holders.get_mut(0).unwrap().whole.remove(number);
        for at in (0..3).filter(|at| held >> at & 1 == 1) {
            partial[7 + at].insert(number);
        }
    }
    for set in partial {
        view.partial_holders.push(set);
    }
    view
}

/// The pathways, each as its name and the appliances of the three renditions.
fn pathways(list: &Named) -> Vec<String> {
    let name = |at: usize| list.names[at].as_str();
    let text = |pathway: &Pathway| {
        let of: Vec<&str> = pathway.renditions.iter().map(|at| name(*at)).collect();
        format!("{}: {}", name(pathway.lead), of.join(" ")).trim_end_matches([':', ' ']).to_owned()
    };
    list.pathways.iter().map(text).collect()
}

fn check(sites: &[(&str, &[u32])], wanted: &[&str]) {
    let view = fleet(sites);
    let list = rank(&view, &query("10.1.0.1", b"s"), &Config { explains: false, ..CONFIG });
    assert_eq!(pathways(&list), wanted);
    let explained = rank(&view, &query("10.1.0.1", b"s"), &CONFIG);
    assert_eq!((&explained.pathways, explained.offered()), (&list.pathways, list.offered()));
    assert_eq!(explained.candidates.len(), view.appliances.len(), "nobody is lost");
}

#[test]
fn each_rendition_has_the_best_that_hold_it() {
    check(&[("a", &[ALL]), ("b", &[0b001])], &["b1: b1 a1 a1", "a1"]);
    check(
        &[("a", &[ALL]), ("b", &[0b011]), ("c", &[ALL])],
        &["b1: b1 b1 a1", "a1: a1 a1 c1", "c1"],
    );
    check(&[("a", &[0b110]), ("b", &[0b001])], &["b1: b1 a1 a1"]);
    check(&[("a", &[0b100, 0b100]), ("b", &[0b011])], &["a1: b1 b1 a1", "a2: b1 b1 a2"]);
}

#[test]
fn with_whole_ones_only_a_pathway_is_an_appliance() {
    check(&[("a", &[ALL]), ("b", &[ALL])], &["b1", "a1"]);
    check(&[("a", &[ALL]), ("b", &[0])], &["a1", "b1"]);
}

#[test]
fn who_is_not_healthy_is_asked_for_what_nobody_else_holds() {
    let mut view = fleet(&[("a", &[ALL]), ("b", &[0b001])]);
    alter(&mut view, "a1", |a1| a1.health = Health::Stale);
    let list = rank(&view, &query("10.1.0.1", b"s"), &CONFIG);
    assert_eq!(
        (pathways(&list), list.is_good),
        (vec!["b1: b1 a1 a1".to_owned(), "a1".to_owned()], false)
    );
    alter(&mut view, "a1", |a1| a1.health = Health::Draining);
    alter(&mut view, "b1", |b1| b1.health = Health::Stale);
    let list = rank(&view, &query("10.1.0.1", b"s"), &CONFIG);
    assert_eq!((pathways(&list)[0].as_str(), list.is_good), ("a1", false));
}

#[test]
fn a_near_one_that_takes_no_more_is_last_for_each_rendition_and_not_first_for_one() {
    let mut view = fleet(&[("a", &[0b001; 4]), ("b", &[ALL]), ("c", &[ALL; 5])]);
    alter(&mut view, "b1", |b1| b1.share_permille = 0);
    let list = rank(&view, &query("10.1.0.1", b"s"), &CONFIG);
    let b1 = list.place("b1");
    let uses = |pathway: &Pathway| pathway.positions().any(|at| at == b1);
    let using = list.pathways.iter().enumerate().filter(|(_, of)| uses(of));
    let using: Vec<usize> = using.map(|(nth, _)| nth).collect();
    assert_eq!(using, [3], "{:?}", pathways(&list));
}

#[test]
fn a_rendition_that_one_healthy_one_holds_has_a_doubtful_one_too() {
    let mut view = fleet(&[("a", &[ALL, ALL]), ("b", &[0b001])]);
    alter(&mut view, "a2", |a2| a2.health = Health::Stale);
    alter(&mut view, "b1", |b1| b1.health = Health::Stale);
    let list = rank(&view, &query("10.1.0.1", b"s"), &CONFIG);
    assert!(list.is_good);
    let leads: BTreeSet<&str> =
        list.pathways.iter().map(|of| list.names[of.lead].as_str()).collect();
    assert!(leads.contains("a1") && leads.contains("a2"), "{:?}", pathways(&list));
}

#[test]
fn an_appliance_in_all_pathways_is_led_around_by_one_that_holds_all() {
    let view = fleet(&[("a", &[ALL, 0b010, 0b100]), ("b", &[ALL, 0b011, 0b010])]);
    for session in 0..100_u8 {
        let list = rank(&view, &query("10.1.0.1", &[session]), &CONFIG);
        for lost in 0..list.offered_count {
            let without = |pathway: &Pathway| pathway.positions().all(|at| at != lost);
            assert!(list.pathways.iter().any(without), "{lost} in {:?}", pathways(&list));
        }
    }
}

#[test]
fn in_a_large_fleet_partial_ones_far_away_are_found() {
    let whole: Vec<u32> = vec![ALL; 40];
    let high: Vec<u32> = vec![0b110; 60];
    let mut view = fleet(&[("a", &[0b001, 0b001]), ("c", &whole), ("d", &high)]);
    for n in 1..=40 {
        alter(&mut view, &format!("c{n}"), |whole| whole.health = Health::Stale);
    }
    for session in 0..50_u8 {
        let list = rank(&view, &query("10.0.0.1", &[session]), &CONFIG);
        assert!(list.is_good, "{:?}", pathways(&list));
        assert!(list.pathways.iter().all(|pathway| pathway.renditions.len() == 3));
    }
}

proptest! {
    #[test]
    fn every_base_is_a_holder_and_whoever_is_lost_there_is_another_way(
        near in vec((0_u32..8, 0..4), 0..5),
        far in vec((0_u32..8, 0..4), 0..7),
        session: [u8; 2],
        titles in prop::sample::select(vec![0, 500, 1000]),
    ) {
        let held = |site: &[(u32, i32)]| site.iter().map(|of| of.0).collect::<Vec<_>>();
        let mut view = fleet(&[("a", &held(&far)), ("b", &held(&near))]);
        all(&mut view, |of| of.titles_permille = titles);
        let sites = [("a", &far), ("b", &near)];
        let mut appliances = BTreeMap::new();
        for (site, of) in sites {
            for ((held, health), n) in of.iter().zip(1..) {
                // One in four is down.
                appliances.insert(format!("{site}{n}"), (*held, *health != 0));
                if *health == 0 {
                    alter(&mut view, &format!("{site}{n}"), |lost| lost.health = Health::Stale);
                }
            }
        }
        let list = rank(&view, &query("10.1.0.1", &session), &CONFIG);
        let of = |at: usize| appliances[&list.names[at]];
        let is_mixed = appliances.values().any(|(held, _)| *held != 0 && *held != ALL);
        let is_there = |at: usize| move |(held, up): &(u32, bool)| *up && held >> at & 1 == 1;
        let covered = (0..3).all(|at| appliances.values().any(is_there(at)));
        prop_assert_eq!(list.is_good, covered);
        prop_assert!(list.pathways.len() <= CONFIG.pathways_max);
        let leads: BTreeSet<usize> = list.pathways.iter().map(|pathway| pathway.lead).collect();
        prop_assert_eq!(leads.len(), list.pathways.len(), "each has a name of its own");
        if !is_mixed {
            prop_assert!(list.pathways.iter().all(|pathway| pathway.renditions.is_empty()));
            return Ok(());
        }
        let is_whole = |name: &&String| appliances[*name] == (ALL, true);
        let whole_count = names(&list).iter().filter(is_whole).count();
        let leads_around = |pathway: &Pathway| 2 <= whole_count && pathway.renditions.is_empty();
        for at in 0..3 {
            let is_up = |of_it: &usize| is_there(at)(&of(*of_it));
            let up: Vec<usize> = (0..list.offered_count).filter(is_up).collect();
            for (nth, pathway) in list.pathways.iter().enumerate() {
                let base = pathway.renditions.get(at).copied().unwrap_or(pathway.lead);
                let exists = appliances.values().any(is_there(at));
                let may_be_doubtful = up.len() <= nth && nth < CONFIG.pathways_min;
                let is_right = !exists || may_be_doubtful || is_there(at)(&of(base));
                prop_assert!(is_right, "{:?}", pathways(&list));
                if nth < up.len() && exists && !leads_around(pathway) {
                    prop_assert_eq!(base, up[nth], "the n-th best: {:?}", pathways(&list));
                }
            }
        }
        if 2 <= whole_count {
            for lost in 0..list.offered_count {
                let without = |pathway: &Pathway| pathway.positions().all(|at| at != lost);
                prop_assert!(list.pathways.iter().any(without), "{lost} in {:?}", pathways(&list));
            }
        }
    }
}

#[test]
fn a_site_that_lacks_a_rendition_sheds_for_content_and_one_that_has_all_of_them_together_does_not()
{
    let shed = |sites: &[(&str, &[u32])], away: &[&str]| {
        let mut view = fleet(sites);
        away.iter().for_each(|id| alter(&mut view, id, |of| of.health = Health::Stale));
        let query = query("10.1.0.1", b"s");
        let list = rank(&view, &query, &CONFIG);
        nearest(&view, &query, &first(&list)).unwrap().shed
    };
    let lower: &[(&str, &[u32])] = &[("a", &[ALL]), ("b", &[0b011])];
    assert_eq!(shed(lower, &[]), Some(Shed::Content), "the highest comes from a");
    let together: &[(&str, &[u32])] = &[("a", &[ALL]), ("b", &[0b011, 0b100])];
    assert_eq!(shed(together, &[]), None);
    assert_eq!(shed(together, &["b2"]), Some(Shed::Health), "b2 is away, which has the highest");
}
