//! One film on one drive, for tests of the event loop alone.

use std::sync::Arc;

use appliance::clock;
use appliance::serving::mailbox::{Letter, Sender};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use model::extent::{DriveIndex, Extent, FileName};
use model::id::{Generation, ObjectId};
use model::manifest::{AssetVersion, File, Manifest, TokenKey};
use model::units::{Bytes, UnixSeconds};
use model::update::Update;
use playback::token::{Grant, Scope, Session, SigningInput, assemble};

/// Publishes the file `o` of drive 0, of `len` bytes, as `film-1/v.mp4`; the path with a token for
/// it.
pub(crate) fn publish(sender: &Sender, len: usize) -> String {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let object = ObjectId([1; 32]);
    let file = File { object, len: Bytes::of(len), content_type: "video/mp4".into() };
    let version = AssetVersion {
        id: "film-1".parse().unwrap(),
        asset: "film".parse().unwrap(),
        sources: vec![],
        modified: UnixSeconds(784_111_777),
        pace: None,
        files: [("v.mp4".to_owned(), file)].into(),
    };
    let public_key = key.public_key().as_ref().try_into().unwrap();
    sender.send(Letter::Update(Update::Manifest(Arc::new(Manifest {
        appliance: "a1".parse().unwrap(),
        generation: Generation(1),
        token_keys: vec![TokenKey { kid: "k1".to_owned(), public_key }],
        trust: model::manifest::Trust::default(),
        numbers: std::collections::BTreeMap::new(),
        siblings: std::collections::BTreeMap::new(),
        site: Vec::new(),
        versions: vec![Arc::new(version)],
    }))));
    let file = FileName("o".into());
    let extent = Extent { drive: DriveIndex(0), file, offset: Bytes(0), len: Bytes::of(len) };
    sender.send(Letter::Update(Update::Published { object, extent, small: None }));
    let expires = UnixSeconds(clock::wall().0 + 1000);
    let scope = Scope::whole("film-1").unwrap();
    let grant = Grant { session: Session::of_random([9; 12]), expires, scope };
    let input = SigningInput::new("k1", grant);
    let signature = key.sign(input.as_bytes()).as_ref().try_into().unwrap();
    format!("/t/{}/film-1/v.mp4", assemble("k1", grant, &signature))
}
