//! Playback tokens: nobody makes one, nobody changes one, and one opens what it is for.

use std::sync::LazyLock;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use model::manifest::TokenKey;
use model::path::is_path;
use model::units::UnixSeconds;
use playback::token::{Grant, Scope, Session, SigningInput, TOKEN_LEN_MAX, assemble, verify};

static PAIR: LazyLock<Ed25519KeyPair> = LazyLock::new(|| {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("any 32 bytes are a seed")
});

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

/// Lines: a token or a scope's path, an asset version, a path, an edit.
///
/// What is no token of ours is refused. If the first line begins with `!`, the rest of it is a
/// path that a token is made for: it opens exactly what its scope covers, and with any edit
/// nothing.
pub fn token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.splitn(4, '\n');
    let mut line = || lines.next().unwrap_or("");
    let (first, version, path, edit) = (line(), line(), line(), line());
    let public_key = PAIR.public_key().as_ref().try_into().expect("Ed25519 keys have 32 bytes");
    let keys = [TokenKey { kid: "k1".to_owned(), public_key }];
    let Some(prefix) = first.strip_prefix('!') else {
        assert!(verify(&keys, first, version, path, NOW).is_err(), "a forged token: {first}");
        return;
    };
    let Some(scope) = Scope::below(version, prefix) else { return };
    let session = Session::of_random([7; 12]);
    let grant = Grant { session, expires: UnixSeconds(NOW.0 + 1), scope };
    let signature = PAIR.sign(SigningInput::new("k1", grant).as_bytes());
    let signature = signature.as_ref().try_into().expect("Ed25519 signatures have 64 bytes");
    let token = assemble("k1", grant, &signature);
    assert!(token.len() <= TOKEN_LEN_MAX, "tokens are bounded");
    let opened = verify(&keys, &token, version, path, NOW);
    if is_path(path) && scope.covers(version, path) {
        assert_eq!(opened, Ok(grant), "a token opens what it is for");
    } else {
        assert!(opened.is_err(), "a token opens nothing else");
    }
    if let Some(edited) = edited(&token, edit)
        && edited != token
    {
        assert!(verify(&keys, &edited, version, path, NOW).is_err(), "an edited token: {edited}");
    }
}

/// `token` with the text after an edit's first two bytes put where they say.
fn edited(token: &str, edit: &str) -> Option<String> {
    let (&[at, len], text) = edit.as_bytes().split_first_chunk::<2>()?;
    let at = usize::from(at).min(token.len());
    let end = (at + usize::from(len % 8)).min(token.len());
    Some(format!("{}{}{}", token.get(..at)?, std::str::from_utf8(text).ok()?, token.get(end..)?))
}
