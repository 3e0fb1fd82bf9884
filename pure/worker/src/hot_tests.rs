//! The hot blocks alone: a pool, wants drawn from Zipf's law, scans and removals.

use std::sync::Arc;

use model::expected::FirstBlocks;
use model::extent::DriveIndex;
use model::handle::BufferId;
use model::id::ObjectId;
use model::object::BLOCK_LEN;
use model::units::Bytes;
use proptest::prelude::*;

use crate::buffers::Buffers;
use crate::hot::{BlockName, Hot};

fn name(object: u8, block: u64) -> BlockName {
    BlockName { object: ObjectId([object; 32]), block }
}

/// A pool and what is kept in it, read as the worker would.
struct Bench {
    hot: Hot,
    buffers: Buffers,
}

impl Bench {
    fn new(places: u16) -> Self {
        Self { hot: Hot::new(places), buffers: Buffers::new(places + 1) }
    }

    /// One want; true if it was kept already.
    fn want(&mut self, name: BlockName) -> bool {
        self.hot.want(&name);
        if self.hot.find(&name).is_some() {
            return true;
        }
        if self.hot.is_wanted(&name, &self.buffers) {
            let buffer = self.buffers.take().expect("one more than places");
            let drive = DriveIndex(name.object.0[0] % 2);
            self.hot.keep(name, drive, buffer, &mut self.buffers);
            self.buffers.unpin(buffer);
        }
        false
    }
}

/// Blocks with weights after Zipf's law, drawn with a generator of the test's own.
struct Zipf {
    /// Sums of weights up to and with each rank, in parts of 2^32.
    sums: Vec<u64>,
    state: u64,
}

impl Zipf {
    fn new(blocks: u32, exponent: f64) -> Self {
        let weights: Vec<f64> = (1..=blocks).map(|rank| f64::from(rank).powf(-exponent)).collect();
        let whole: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let part = |weight: &f64| {
            sum += weight / whole;
            format!("{:.0}", sum * 4_294_967_296.0).parse().expect("a whole number")
        };
        Self { sums: weights.iter().map(part).collect(), state: 1 }
    }

    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.state >> 32
    }

    fn draw(&mut self) -> u64 {
        let random = self.random();
        let rank = self.sums.partition_point(|sum| *sum < random);
        u64::try_from(rank.min(self.sums.len() - 1)).expect("a rank")
    }

    /// Of all wants, those for the first `places`, in 10,000: what nothing beats that does not
    /// know the future.
    fn ideal(&self, places: usize) -> u64 {
        (self.sums[places - 1] * 10_000) >> 32
    }
}

/// Wants until warm, then counts: hits of 10,000.
fn ratio(bench: &mut Bench, zipf: &mut Zipf, object: u8, scan: bool) -> u64 {
    let mut scanned = 0;
    let mut hits = 0;
    for step in 0..80_000_u64 {
        let hit = bench.want(name(object, zipf.draw()));
        hits += u64::from(hit && 60_000 <= step);
        if scan && step % 2 == 0 {
            scanned += 1;
            bench.want(name(200, scanned));
        }
    }
    hits / 2
}

#[test]
fn what_zipf_wants_is_kept_to_a_few_percent_of_the_ideal() {
    for (exponent, places) in [(0.7, 500), (0.8, 200), (1.0, 500), (1.2, 100)] {
        let mut zipf = Zipf::new(10_000, exponent);
        let ideal = zipf.ideal(usize::from(places));
        let hits = ratio(&mut Bench::new(places), &mut zipf, 1, false);
        assert!(ideal * 95 <= hits * 100, "zipf {exponent}, {places}: {hits} of {ideal}");
    }
}

#[test]
fn a_scan_takes_nobody_s_place() {
    let mut zipf = Zipf::new(10_000, 0.9);
    let ideal = zipf.ideal(1000);
    let hits = ratio(&mut Bench::new(1000), &mut zipf, 1, true);
    assert!(ideal * 92 <= hits * 100, "{hits} of {ideal}");
}

#[test]
fn what_is_wanted_now_replaces_what_was() {
    let (mut bench, mut zipf) = (Bench::new(500), Zipf::new(10_000, 0.9));
    ratio(&mut bench, &mut zipf, 1, false);
    let hits = ratio(&mut bench, &mut zipf, 2, false);
    let ideal = zipf.ideal(500);
    assert!(ideal * 95 <= hits * 100, "{hits} of {ideal}");
}

#[test]
fn a_block_is_kept_from_its_second_want_on() {
    let mut bench = Bench::new(2);
    assert!(!bench.want(name(1, 0)));
    assert_eq!(bench.hot.find(&name(1, 0)), None);
    assert!(!bench.want(name(1, 0)));
    assert!(bench.want(name(1, 0)));
}

#[test]
fn a_block_that_is_expected_is_kept_from_its_first_want_on() {
    let mut bench = Bench::new(4);
    let first = |object, count| FirstBlocks { object: ObjectId([object; 32]), count };
    bench.hot.expect([first(1, 2), first(5, 1)].into());
    let mut is_kept = |object, block| {
        bench.want(name(object, block));
        bench.hot.find(&name(object, block)).is_some()
    };
    assert!(is_kept(1, 0) && is_kept(1, 1) && is_kept(5, 0));
    assert!(!is_kept(1, 2), "beyond those that are expected");
    assert!(!is_kept(2, 0));
    bench.hot.expect(Arc::default());
    bench.want(name(6, 0));
    assert_eq!(bench.hot.find(&name(6, 0)), None);
}

#[test]
fn what_is_expected_takes_no_place_of_what_is_wanted() {
    let mut bench = Bench::new(1);
    bench.want(name(1, 0));
    bench.want(name(1, 0));
    bench.hot.expect([FirstBlocks { object: ObjectId([2; 32]), count: 9 }].into());
    bench.want(name(2, 0));
    assert_eq!(bench.hot.find(&name(2, 0)), None, "both were wanted as often");
    bench.want(name(2, 0));
    assert!(bench.hot.find(&name(2, 0)).is_some());
}

#[test]
fn without_places_nothing_is_kept() {
    let mut bench = Bench::new(0);
    assert!((0..10).all(|_| !bench.want(name(1, 0))));
}

#[test]
fn what_somebody_is_being_sent_makes_no_room() {
    let mut bench = Bench::new(1);
    bench.want(name(1, 0));
    bench.want(name(1, 0));
    let buffer = bench.hot.find(&name(1, 0)).unwrap();
    bench.buffers.pin(buffer);
    for _ in 0..5 {
        bench.want(name(2, 0));
    }
    assert_eq!(bench.hot.find(&name(1, 0)), Some(buffer));
    bench.buffers.unpin(buffer);
    bench.want(name(2, 0));
    assert_eq!(bench.hot.find(&name(1, 0)), None);
    assert!(bench.hot.find(&name(2, 0)).is_some());
}

#[test]
fn a_drive_s_blocks_go_with_it() {
    let mut bench = Bench::new(8);
    for n in 0..8 {
        bench.want(name(n, 0));
        bench.want(name(n, 0));
    }
    let epoch = bench.hot.epoch();
    bench.hot.drop_drive(DriveIndex(1), &mut bench.buffers);
    assert_ne!(bench.hot.epoch(), epoch);
    for n in 0..8 {
        assert_eq!(bench.hot.find(&name(n, 0)).is_some(), n % 2 == 0, "{n}");
    }
}

#[test]
fn an_object_that_goes_is_looked_for_by_its_blocks() {
    let mut bench = Bench::new(100);
    for block in 0..100 {
        bench.want(name(1, block));
        bench.want(name(1, block));
    }
    let mut looks = |object: u8, blocks: Option<u64>| {
        let (before, len) = (bench.hot.looks, blocks.map(|blocks| Bytes(blocks * BLOCK_LEN.0)));
        bench.hot.drop_object(ObjectId([object; 32]), len, &mut bench.buffers);
        (bench.hot.looks - before, bench.hot.len())
    };
    assert_eq!(looks(2, Some(8)), (8, 100));
    assert_eq!(looks(2, Some(1 << 24)), (100, 100), "those that are kept are fewer");
    assert_eq!(looks(2, None), (100, 100), "nobody knows how many it had");
    assert_eq!(looks(1, Some(99)), (99, 1));
}

proptest! {
    /// Against a plain list: what is found is what was kept, and no pin is lost.
    #[test]
    fn what_is_found_is_what_was_kept(
        steps in prop::collection::vec((0u8..20, 0u8..4, 0u64..4), 0..500),
    ) {
        let mut bench = Bench::new(6);
        for (step, object, block) in steps {
            if step == 0 {
                let len = Some(Bytes(block * BLOCK_LEN.0)).filter(|_| block != 0);
                bench.hot.drop_object(ObjectId([object; 32]), len, &mut bench.buffers);
                let gone = len.map_or(4, |_| block);
                for block in 0..gone {
                    prop_assert_eq!(bench.hot.find(&name(object, block)), None);
                }
            } else {
                bench.want(name(object, block));
            }
            let of = |object| (0..4).map(move |block| (object, block));
            let found: Vec<BufferId> = (0..4)
                .flat_map(of)
                .filter_map(|(object, block)| bench.hot.find(&name(object, block)))
                .collect();
            let unique: std::collections::BTreeSet<_> = found.iter().collect();
            prop_assert_eq!(unique.len(), found.len(), "a buffer is of one block");
            prop_assert_eq!(found.len(), bench.hot.len());
            prop_assert!(found.iter().all(|buffer| bench.buffers.pins(*buffer) == 1));
            prop_assert!(bench.buffers.any_free());
        }
    }
}
