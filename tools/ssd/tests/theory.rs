//! The model against what others proved: greedy collection, and trims as spare space.
#![expect(clippy::unwrap_used, reason = "tests")]

use ssd::{Ftl, Rng, Shape, theory};

/// The logical space is overwritten so often before it is steady, and again to measure.
const ROUNDS: u32 = 3;

/// Pages programmed per page of the host, for random overwrites of single pages, when steady.
/// `live` of the logical pages are in use; the others are trimmed once and never written.
fn measured(spare_permille: u32, live: f64) -> f64 {
    let shape = Shape::with_spare(1, 1024, 256, spare_permille);
    let mut ftl = Ftl::new(shape);
    let mut rng = Rng::new(u64::from(spare_permille));
    let used = used_pages(shape.logical_pages, live);
    for page in 0..shape.logical_pages {
        ftl.write_now(page, 2);
    }
    for page in used..shape.logical_pages {
        ftl.trim(page);
    }
    let mut before = ftl.wear();
    for round in 0..2 * ROUNDS {
        if round == ROUNDS {
            before = ftl.wear();
        }
        for _ in 0..used {
            ftl.write_now(rng.below(used), 2);
        }
    }
    ftl.wear().amplification_since(&before)
}

fn used_pages(logical: u32, live: f64) -> u32 {
    (0..=logical).rev().find(|pages| f64::from(*pages) <= f64::from(logical) * live).unwrap()
}

#[track_caller]
fn close(measured: f64, expected: f64, within: f64) {
    let off = (measured / expected - 1.0).abs();
    assert!(off <= within, "{measured:.3} against {expected:.3}: {:.1} % off", off * 100.0);
}

#[test]
fn greedy_collection_costs_what_the_closed_form_says() {
    for spare in [70, 280, 1000] {
        let expected = theory::write_amplification(f64::from(spare) / 1000.0);
        close(measured(spare, 1.0), expected, 0.03);
    }
}

#[test]
fn trimmed_space_is_spare_space() {
    for live in [0.9, 0.7] {
        let expected = theory::write_amplification(theory::with_trim(0.07, live));
        close(measured(70, live), expected, 0.03);
    }
}
