use super::*;

use proptest::prelude::*;

use crate::attributes::{COMMUNITIES_MAX, PATH_MAX};
use crate::part::{Part, Refused, Stage};

#[test]
fn the_best_way_of_an_appliance_counts_and_what_is_left_out_is_told() {
    let filter = Filter { session_max: 3, ..Filter::default() };
    let mut builder = Builder::new(&filter);
    builder.hear(told("8.8.8.0/24", "public", &[7]), Peering::Public);
    builder.hear(told("8.8.8.0/24", "private", &[7, 7, 7]), Peering::Private);
    builder.hear(told("8.8.8.8/24", "private", &[7, 7]), Peering::Private);
    builder.hear(told("0.0.0.0/0", "private", &[7]), Peering::Private);
    builder.hear(told("8.8.8.128/25", "private", &[7]), Peering::Private);
    builder.hear(told("9.9.9.0/24", "private", &[]), Peering::Private);
    builder.hear(told("9.9.9.0/24", "private", &[7; 65]), Peering::Private);
    let set = Told { has_set: true, ..told("9.9.9.0/24", "private", &[7]) };
    builder.hear(set, Peering::Private);
    builder.hear(told("9.9.9.0/24", "private", &[7]), Peering::Private);
    builder.hear(told("9.9.10.0/24", "private", &[7]), Peering::Private);
    let heard = builder.done();
    let [(first, way), (second, _)] = heard.routes() else { panic!("{heard:?}") };
    assert_eq!((first.to_string(), second.to_string()), ("8.8.8.0/24".into(), "9.9.9.0/24".into()));
    assert_eq!((way.peering(), way.as_path()), (Peering::Private, &[7, 7][..]));
    assert_eq!(heard.digest.count, 2);
    assert_eq!((heard.sessions["private"], heard.sessions["public"]), (3, 1));
    let left: Vec<_> = heard.left_out.iter().map(|(cause, count, _)| (cause, count)).collect();
    use Cause::{Default as Whole, Limit, LongPath, NoPath, PathSet, TooLong};
    let wanted = [Whole, TooLong, Limit, LongPath, PathSet, NoPath].map(|cause| (cause, 1));
    assert_eq!(left, wanted);
    let (_, _, examples) = heard.left_out.iter().nth(1).unwrap();
    assert_eq!((examples[0].0.to_string(), &*examples[0].1), ("8.8.8.128/25".into(), "private"));
}

#[test]
fn parts_out_of_order_are_refused() {
    let part = |number, is_last| Part { number, is_last, ..Part::default() };
    let mut stage = Stage::new(&part(0, false));
    assert_eq!(stage.take(part(0, false)), Ok(None));
    assert_eq!(stage.take(part(0, false)), Err(Refused::OutOfTurn));
    assert_eq!(stage.take(part(2, true)), Err(Refused::OutOfTurn));
    let other = Part { from: Some(Digest::default()), ..part(1, true) };
    assert_eq!(stage.take(other), Err(Refused::OutOfTurn));
    assert_eq!(stage.take(part(1, true)), Ok(Some(Difference::default())));
}

#[test]
fn attributes_without_end_are_refused_before_they_fill_the_memory() {
    let communities = || (0..).map(|n| Community::Large(n, n, n)).take(COMMUNITIES_MAX).collect();
    let attributes = |n| Attributes::new(Peering::Public, vec![n; PATH_MAX], None, communities());
    let prefix = "8.8.8.0/24".parse().unwrap();
    // Neighbours do not share.
    let two = [(prefix, Arc::new(attributes(1))), (prefix, Arc::new(attributes(2)))];
    let cycled = || two.iter().cycle().take(1000).cloned().collect();
    let part = |number: u32| {
        let difference = Difference { announced: cycled(), withdrawn: vec![] };
        Part { number, difference, ..Part::default() }
    };
    let mut stage = Stage::new(&part(0));
    let taken = (0..).take_while(|n| stage.take(part(*n)) == Ok(None)).count();
    assert!((50..60).contains(&taken), "5 MB each: {taken}");
    assert_eq!(stage.take(part(stage.next())), Err(Refused::TooLarge));
    // What is shared takes no memory.
    let mut many = part(0);
    many.difference.announced = vec![two[0].clone(); Stage::LEN_MAX];
    assert_eq!(Stage::new(&many).take(many.clone()), Ok(None));
    many.difference.announced.push(many.difference.announced[0].clone());
    assert_eq!(Stage::new(&many).take(many), Err(Refused::TooLarge));
}

#[test]
fn a_digest_is_read_as_it_is_written() {
    let mut digest = Digest::default();
    digest.put(
        &"8.8.8.0/24".parse().unwrap(),
        &Attributes::new(Peering::Public, vec![1], None, vec![]),
    );
    assert_eq!(digest.to_string().parse(), Ok(digest));
    for odd in [
        "",
        "1",
        "-1-2",
        "1-0",
        "x-00000000000000000000000000000000",
        "1-+0000000000000000000000000000000",
    ] {
        assert!(odd.parse::<Digest>().is_err(), "{odd}");
    }
}

proptest! {
    #[test]
    fn a_difference_leads_from_one_table_to_the_other(
        one in routes(), other in routes(), parts in 1..9_usize,
    ) {
        let filter = Filter::default();
        let heard = |routes: &[(u8, Vec<u32>, Option<u32>)]| {
            let mut builder = Builder::new(&filter);
            for (net, path, med) in routes {
                let prefix = format!("8.8.{net}.0/24");
                builder.hear(Told { med: *med, ..told(&prefix, "s", path) }, Peering::Public);
            }
            builder.done()
        };
        let (one, other) = (heard(&one), heard(&other));
        let difference = other.since(&one);
        prop_assert_eq!(difference.is_empty(), one.digest == other.digest);
        let mut table: BTreeMap<_, _> = one.routes().iter().cloned().collect();
        // In parts, as it goes to control.
        let mut stage = None;
        let mut changes = Vec::new();
        let each = difference.len().div_ceil(parts).max(1);
        let (mut announced, mut withdrawn) =
            (difference.announced.chunks(each), difference.withdrawn.chunks(each));
        for number in 0.. {
            let (new, gone) = (announced.next(), withdrawn.next());
            let is_last = new.is_none() && gone.is_none();
            let difference = Difference {
                announced: new.unwrap_or_default().to_vec(),
                withdrawn: gone.unwrap_or_default().to_vec(),
            };
            let (from, to) = (Some(one.digest), other.digest);
            let part = Part { from, to, number, is_last, difference };
            let stage = stage.get_or_insert_with(|| Stage::new(&part));
            changes.extend(stage.take(part).unwrap());
            if is_last {
                break;
            }
        }
        prop_assert_eq!(changes.len(), 1);
        for prefix in &changes[0].withdrawn {
            prop_assert!(table.remove(prefix).is_some());
        }
        table.extend(changes[0].announced.iter().cloned());
        prop_assert_eq!(table.into_iter().collect::<Vec<_>>(), other.routes().to_vec());
    }
}

fn routes() -> impl Strategy<Value = Vec<(u8, Vec<u32>, Option<u32>)>> {
    let path = proptest::collection::vec(1..4_u32, 1..3);
    proptest::collection::vec((0..12_u8, path, proptest::option::of(0..2_u32)), 0..12)
}

fn told(prefix: &str, session: &str, as_path: &[u32]) -> Told {
    Told {
        prefix: prefix.parse().unwrap(),
        session: session.into(),
        as_path: as_path.to_vec(),
        has_set: false,
        med: None,
        communities: vec![],
    }
}
