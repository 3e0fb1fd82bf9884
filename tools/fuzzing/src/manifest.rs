//! What control sends to appliances: what is let in can be sent out again and hurts nobody.

use model::limits::OBJECT_LEN_MAX;
use model::path::is_path;
use wire::convert::{manifest_in, manifest_out, short_manifest_in};
use wire::v1;
use wire::v1::signed::{self, Kind};

/// A manifest that passes the door has only paths, lengths and header values that it may have.
pub fn manifest(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<v1::manifest::Manifest>(bytes) else { return };
    let text = serde_json::to_vec(&read).expect("what was JSON can be again");
    let again: v1::manifest::Manifest = serde_json::from_slice(&text).expect("our own JSON");
    assert_eq!(again, read, "JSON is read as it is written");
    if let Ok(inside) = short_manifest_in(&read) {
        for source in inside.listed.iter().flat_map(|listed| &listed.sources) {
            assert!(source.starts_with("http") && source.ends_with('/'), "{source:?}");
        }
        assert!(manifest_in(&read).is_err(), "a manifest has one format");
    }
    let Ok(inside) = manifest_in(&read) else { return };
    for version in &inside.versions {
        for source in &version.sources {
            assert!(source.starts_with("http") && source.ends_with('/'), "{source:?}");
            assert!(!source.contains(char::is_control), "a source is a URL: {source:?}");
        }
        for (path, file) in &version.files {
            assert!(is_path(path), "{path:?}");
            assert!(file.len <= OBJECT_LEN_MAX, "{}", file.len);
            let kind = file.content_type.as_bytes();
            assert!(kind.iter().all(|b| (b' '..0x7f).contains(b)), "{}", file.content_type);
        }
    }
    let outside = manifest_out(&inside);
    assert_eq!(manifest_in(&outside), Ok(inside), "a manifest survives the way out and in");
}

/// An envelope is opened to what can be closed into the same bytes.
pub fn signed(bytes: &[u8]) {
    let Ok(opened) = signed::decode(bytes) else { return };
    let closed = signed::encode(opened.kind, opened.kid, &opened.signature, opened.payload);
    assert_eq!(closed, bytes, "an envelope has one form");
    let message = signed::message(opened.kind, opened.payload);
    for other in [Kind::Manifest, Kind::Snapshot] {
        let same = signed::message(other, opened.payload) == message;
        assert_eq!(same, other == opened.kind, "the kind is signed");
    }
}
