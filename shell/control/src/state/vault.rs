//! The fleet's secrets where two writers share a database: sealed in it, with a key that both have.
//!
//! ```text
//! database-key.toml ──┐          (copied by an operator, once)
//! authority.toml      │
//! signing.toml        ├─ AES-256-GCM ──> table `secrets` ──> files of whoever leads next
//! keys.toml          ─┘
//! ```
//!
//! The table counts. A file is read at a start as before, after it was made what the table says; a
//! secret that changes is sealed before anything is signed with it. So a standby needs one file
//! from the other writer, and never again.

use std::io;
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use identity::secret_file::{SecretError, SecretFile};
use model::id::ObjectId;
use serde::{Deserialize, Serialize};

use crate::members::{authority, keys};
use crate::state::store::{Store, StoreError};

/// The key, and what was sealed with it.
pub(crate) struct Vault {
    key: RandomizedNonceKey,
}

/// Why the secrets of a database cannot be used, or kept.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(
        "the database has the secrets of a fleet, and {0} has no database-key.toml to open them \
         with: copy that file from the folder of the other writer"
    )]
    NoKey(String),
    #[error(
        "the secrets in the database do not open with database-key.toml in {0}, which is another \
         fleet's: copy that file from the folder of the other writer"
    )]
    OtherKey(String),
}

/// Of a secret that was not kept in the database: as one of a file, with the reason in it.
pub(crate) fn not_kept(error: VaultError) -> SecretError {
    SecretError::File { path: "the database".into(), error: io::Error::other(error) }
}

/// Whether a secret was not kept because another writer leads.
pub(crate) fn is_deposed(error: &SecretError) -> bool {
    let SecretError::File { error, .. } = error else { return false };
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(inner, Some(VaultError::Store(StoreError::Deposed { .. })))
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// Hex.
    key: String,
}

impl Vault {
    /// Makes the files of `folder` what the database says. With no secrets there, a key is made if
    /// there is none and `may_make` it; else there is nothing to be opened.
    pub(crate) async fn open(
        store: &Store,
        folder: &Path,
        may_make: bool,
    ) -> Result<Option<Self>, VaultError> {
        let sealed = store.secrets().await?;
        let found = key(folder)?;
        if sealed.is_empty() && !may_make {
            return Ok(None);
        }
        let bytes = match found {
            Some(key) => key,
            None if !sealed.is_empty() => return Err(VaultError::NoKey(shown(folder))),
            None => {
                let key: [u8; 32] = authority::random();
                let text = toml::to_string(&Stored { key: ObjectId(key).to_string() });
                KEY.write(folder, &text.expect("a string always becomes TOML"))?;
                tracing::info!(
                    "the key of the database's secrets was made: the other writer's \
                                folder needs a copy of database-key.toml, and so does a backup"
                );
                key
            }
        };
        let key = RandomizedNonceKey::new(&AES_256_GCM, &bytes).expect("it has 32 bytes");
        let vault = Self { key };
        for (name, sealed) in sealed {
            let other = || VaultError::OtherKey(shown(folder));
            let text = vault.unseal(&name, sealed).ok_or_else(other)?;
            let Some(file) = ALL.iter().find(|file| file.name == name) else { continue };
            if file.read(folder)?.as_deref() != Some(text.as_str()) {
                file.write(folder, &text)?;
            }
        }
        Ok(Some(vault))
    }

    /// Makes the database what the files of `folder` say.
    pub(crate) async fn keep(&self, store: &Store, folder: &Path) -> Result<(), VaultError> {
        let mut sealed = Vec::new();
        for file in ALL {
            if let Some(text) = file.read(folder)? {
                sealed.push((file.name, self.seal(file.name, &text)));
            }
        }
        Ok(store.put_secrets(&sealed).await?)
    }

    fn seal(&self, name: &str, text: &str) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(name), &mut bytes);
        let nonce = nonce.expect("a text is no longer than what can be sealed");
        [&nonce.as_ref()[..], &bytes].concat()
    }

    fn unseal(&self, name: &str, mut sealed: Vec<u8>) -> Option<String> {
        let (nonce, bytes) = sealed.split_first_chunk_mut::<12>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let text = self.key.open_in_place(nonce, Aad::from(name), bytes).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

fn key(folder: &Path) -> Result<Option<[u8; 32]>, SecretError> {
    let Some(text) = KEY.read(folder)? else { return Ok(None) };
    let damaged = |reason: &str| KEY.damaged(folder, reason);
    let stored: Stored = toml::from_str(&text).map_err(|error| damaged(error.message()))?;
    let key: ObjectId = stored.key.parse().map_err(|_| damaged("it has no 64 hex digits"))?;
    Ok(Some(key.0))
}

fn shown(folder: &Path) -> String {
    folder.display().to_string()
}

const KEY: SecretFile = SecretFile {
    name: "database-key.toml",
    exposed: "see what to do in docs/operate/state.md",
    damaged: "copy it from the folder of the other writer, or from a backup",
};

/// What both writers need.
const ALL: [SecretFile; 3] = [authority::AUTHORITY, authority::SIGNING, keys::FILE];
