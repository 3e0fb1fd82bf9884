//! The ledger: what was written is read, what is read otherwise is refused or does no harm.

use std::sync::Arc;

use ledger::{
    Answered, Decision, Fault, HASH_LEN, Kind, Ledger, SIGNATURE_LEN, WhatIf, open, replay, tell,
};
use model::members::Members;
use model::topology::Weight;
use model::units::{Bytes, UnixSeconds};
use model::view::{ApplianceView, FleetView, Health, Load, SiteView};
use steering::{Config, Query, Wanted, rank};

const CONFIG: Config = Config { pathways_min: 2, pathways_max: 4, explains: false };

/// Blocks that an input writes at most.
const BLOCKS_MAX: usize = 4;

/// The first byte chooses: entries as they are, under a good seal; or a file that is written, with
/// so many changes, and then damaged.
pub fn ledger(bytes: &[u8]) {
    match bytes {
        [0, rest @ ..] => raw(rest),
        [blocks, rest @ ..] => written(usize::from(*blocks) % BLOCKS_MAX + 1, rest),
        [] => {}
    }
}

/// Whatever stands under a good seal is replayed or refused, and nothing panics.
fn raw(entries: &[u8]) {
    let opened = ledger::Opened {
        blocks: vec![entries],
        file: 0,
        sealed: (UnixSeconds(0), UnixSeconds(0)),
        before: [0; HASH_LEN],
        hash: [0; HASH_LEN],
        torn: Bytes(0),
        is_older: false,
    };
    let without = WhatIf { without_sites: ["s0".parse().expect("a name")].into(), ..no_change() };
    let fewer = WhatIf { copies: Some(1), ..no_change() };
    for what_if in [no_change(), without, fewer] {
        if let Ok(outcome) = replay(&opened, &what_if) {
            assert!(outcome.differing <= outcome.decisions, "each is counted once");
        }
    }
    if let Ok(told) = tell(&opened, &[]) {
        assert!(told.iter().all(|told| told.number != 0), "they are counted from one");
    }
}

fn no_change() -> WhatIf {
    WhatIf::default()
}

/// A decision for each byte, of a fleet that changes by it; then edits of two bytes each.
fn written(blocks: usize, bytes: &[u8]) {
    let (steps, edits) = bytes.split_at(bytes.len().min(64));
    let mut ledger = Ledger::new(CONFIG, 0);
    let (mut file, mut view) = (Vec::new(), fleet());
    for at in 0..blocks {
        for step in steps.iter().skip(at).step_by(blocks) {
            change(&mut view, *step);
            decide(&mut ledger, &Arc::new(view.clone()), *step);
        }
        file.extend(ledger.seal(UnixSeconds(7), at + 1 == blocks, sign));
    }
    let opened = open(&file, false, genuine).expect("what was written is whole");
    let outcome = replay(&opened, &no_change()).expect("what was written is read");
    assert_eq!(outcome.differing, 0, "{:?}", outcome.differences);
    let untouched = file.clone();
    for edit in edits.as_chunks::<2>().0 {
        damage(edit, &mut file);
    }
    match open(&file, true, genuine) {
        // Blocks at the end may be gone or torn: that is what "unfinished" allows.
        Ok(opened) => {
            let whole = file.len() - opened.torn.as_usize();
            assert!(untouched.starts_with(&file[..whole]), "changed, and taken");
        }
        Err(Fault::Entry { .. }) => panic!("nothing was read yet"),
        Err(_) => assert_ne!(untouched, file, "refused, though it was not touched"),
    }
}

fn damage([what, at]: &[u8; 2], file: &mut Vec<u8>) {
    let at = usize::from(*at) * file.len() / 256;
    match what % 3 {
        0 => file.truncate(at),
        1 => {
            if let Some(byte) = file.get_mut(at) {
                *byte ^= (*what).max(1);
            }
        }
        _ => drop(file.drain(at..(at + usize::from(*what)).min(file.len()))),
    }
}

fn decide(ledger: &mut Ledger, view: &Arc<FleetView>, step: u8) {
    let draw = [step; 8];
    let version = "film".parse().expect("a name");
    let wanted = Wanted::of(view, &version);
    let query = Query { near: &[], version: wanted, session: &draw, plain: false, among: None };
    let list = rank(view, &query, &CONFIG);
    ledger.put(&Decision {
        kind: Kind::Begun,
        at: UnixSeconds(u64::from(step)),
        draw,
        plain: false,
        version: &version,
        view,
        near: &[],
        answered: &Answered::of(view, &list, None),
    });
}

/// Two sites with two appliances each, all of which hold the film.
fn fleet() -> FleetView {
    let mut view = FleetView::default();
    for site in 0..2_u32 {
        let appliances = (0..2).map(|at| ApplianceView {
            id: format!("a{}", site * 2 + at).parse().expect("a name"),
            number: site * 2 + at,
            weight: Weight::ONE,
            health: Health::Healthy,
            share_permille: 1000,
            titles_permille: 1000,
            base_url: Some("https://a".into()),
            plain_url: None,
            load: Load::default(),
        });
        let id = format!("s{site}").parse().expect("a name");
        let appliances = appliances.collect();
        view.put_site(site, Arc::new(SiteView { id, serves_strangers: true, appliances }));
    }
    Arc::make_mut(&mut view.versions).insert("film".parse().expect("a name"), 0);
    view.holders.push(Members::from([0, 1, 2, 3]).into());
    view
}

fn change(view: &mut FleetView, step: u8) {
    let number = u32::from(step % 2);
    let Some(site) = view.sites.get(number) else { return };
    let mut site = site.as_ref().clone();
    match (step / 2 % 4, site.appliances.first_mut()) {
        (0, Some(first)) => first.load.connections = u64::from(step),
        (1, Some(first)) => first.health = Health::Stale,
        (2, Some(first)) => {
            first.health = Health::Healthy;
            first.share_permille = u32::from(step) * 3;
            first.titles_permille = 1000 - u32::from(step) * 3;
        }
        (_, _) => site.serves_strangers = !site.serves_strangers,
    }
    view.put_site(number, Arc::new(site));
}

/// A seal that only this file makes.
fn sign(hash: &[u8; HASH_LEN]) -> [u8; SIGNATURE_LEN] {
    let mut seal = [0; SIGNATURE_LEN];
    blake3::Hasher::new_keyed(&[7; 32]).update(hash).finalize_xof().fill(&mut seal);
    seal
}

fn genuine(hash: &[u8; HASH_LEN], seal: &[u8; SIGNATURE_LEN]) -> bool {
    sign(hash) == *seal
}
