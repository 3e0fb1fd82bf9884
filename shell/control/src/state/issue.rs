//! Tokens are made, and become durable.

use model::units::UnixSeconds;

use crate::clock::Clock;
use crate::members::access::{Known, Role, Token};
use crate::state::store::{AuditEntry, Store, StoreError};

/// Why a token was not made, or not removed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "\"{0}\" is no name for a token: use 1 to {NAME_LEN_MAX} letters, digits, spaces and \
             any of -._@"
    )]
    Name(String),
    #[error("the first token must have the role admin: without one nobody could make another")]
    AdminFirst,
    #[error("this is the last token with the role admin: make another one first")]
    LastAdmin,
    #[error("there are {TOKENS_MAX} tokens already: remove one that is not used any more")]
    TooMany,
}

/// Makes a token durable. Its text is to be seen this one time.
pub(crate) async fn issue(
    store: &Store,
    name: &str,
    role: Role,
    now: UnixSeconds,
) -> Result<(Token, Known), TokenError> {
    let allowed = |c: char| c.is_alphanumeric() || " -._@".contains(c);
    let is_good = (1..=NAME_LEN_MAX).contains(&name.chars().count())
        && name.chars().all(allowed)
        && name.trim() == name;
    if !is_good {
        return Err(TokenError::Name(name.chars().take(NAME_LEN_MAX).collect()));
    }
    let tokens = store.tokens().await?;
    if TOKENS_MAX <= tokens.len() {
        return Err(TokenError::TooMany);
    }
    if role != Role::Admin && tokens.iter().all(|token| token.role != Role::Admin) {
        return Err(TokenError::AdminFirst);
    }
    let token = Token::random();
    let known = Known {
        id: token.id().to_owned(),
        name: name.to_owned(),
        role,
        hash: token.hash(),
        created: now,
        last_used: None,
    };
    store.put_token(&known).await?;
    Ok((token, known))
}

/// Makes a token for the operator at the machine, with its line in the audit log before it.
pub async fn issue_by_hand(store: &Store, name: &str, role: Role) -> Result<Token, TokenError> {
    let now = Clock::start().unix();
    let line = AuditEntry {
        at: now,
        name: Some("command line".to_owned()),
        role: Some(Role::Admin),
        method: "token".to_owned(),
        route: "nearcast-control".to_owned(),
        summary: format!("token \"{name}\", {role}"),
        ..AuditEntry::default()
    };
    let line = store.begin_audit(&line).await?;
    let made = issue(store, name, role, now).await;
    let (outcome, said) = match &made {
        Ok((_, known)) => (201, format!("token {} \"{name}\", {role}", known.id)),
        Err(error) => (409, error.to_string()),
    };
    store.end_audit(line, outcome, &said).await?;
    made.map(|(token, _)| token)
}

/// Of a token, in characters.
const NAME_LEN_MAX: usize = 64;

/// Arbitrary: people and programs of one fleet.
const TOKENS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::access::Access;

    const NOW: UnixSeconds = UnixSeconds(1_000_000);

    #[tokio::test]
    async fn tokens_begin_with_an_admin_and_have_names_that_can_be_read() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::of_test(state.path()).await.unwrap();
        let refused = issue(&store, "page", Role::Viewer, NOW).await;
        assert!(matches!(refused, Err(TokenError::AdminFirst)));
        for name in ["", " x", "x\n", "<b>", &"x".repeat(65)] {
            let refused = issue(&store, name, Role::Admin, NOW).await;
            assert!(matches!(refused, Err(TokenError::Name(_))), "{name}");
        }
        let (token, _) = issue(&store, "Zoë @ work", Role::Admin, NOW).await.unwrap();
        issue(&store, "page", Role::Viewer, NOW).await.unwrap();
        let tokens = store.tokens().await.unwrap();
        assert_eq!(tokens.len(), 2);
        let access = Access::new(tokens, true);
        assert_eq!(access.bearer(&token.text(), NOW).unwrap().name, "Zoë @ work");
        let text = token.text();
        let secret = text.rsplit('_').next().unwrap();
        store.close().await;
        for file in std::fs::read_dir(state.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
            assert!(!has(secret.as_bytes()), "the secret is in the database");
        }
    }
}
