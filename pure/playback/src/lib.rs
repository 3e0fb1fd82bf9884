//! Formats between players and edge: tokens, entry manifests, steering documents. It does no I/O.
//!
//! ```text
//! token          /t/{token}/{asset-version}/{path}: a short Ed25519-signed grant
//! hls, dash      check at ingest: what a manifest refers to, and that it is whole and static
//!                rewrite per playback: the same on two to four appliances, with content steering
//! steering_doc   the answer to a player that asks which pathway is best now
//! cmcd           what players say of their buffer and of what they play
//! player         which kind of player it is
//! reference      a URI in a manifest and the file that it means
//! renditions     which files of a version belong to one rendition
//! ```
//!
//! Who may sign, which appliances a playback gets and in which order is decided elsewhere.

use model::limits::{FILES_PER_VERSION_MAX, PATH_LEN_MAX};
use model::units::{BitsPerSecond, Bytes};

pub mod base36;
pub mod cmcd;
pub mod dash;
pub mod hls;
pub mod player;
pub mod reference;
pub mod renditions;
pub mod steering_doc;
pub mod token;
mod xml;

/// One ranked choice of a player: an appliance and its base URL for this playback, or one for each
/// rendition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pathway<'a> {
    /// HLS `PATHWAY-ID`, DASH `serviceLocation`: the name of the appliance at `base`, so that logs
    /// join.
    pub id: &'a str,
    /// `https://host:port/t/{token}/{asset-version}/`, ending in a slash.
    pub base: &'a str,
    /// The same for each rendition, by its number, from 1; empty if all of them are at `base`.
    pub renditions: &'a [&'a str],
}

impl<'a> Pathway<'a> {
    /// Where a rendition is; 0 is for what belongs to none.
    fn base_of(&self, rendition: u8) -> &'a str {
        let at = usize::from(rendition).checked_sub(1);
        at.and_then(|at| self.renditions.get(at).copied()).unwrap_or(self.base)
    }
}

/// A rendition as an entry manifest names it: an HLS media playlist, or a DASH representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// One of its files, from the asset version's root.
    pub file: String,
    /// The bandwidth that players choose it by; none if it is not said.
    pub bitrate: Option<BitsPerSecond>,
}

/// Longest manifest that is looked at.
pub const MANIFEST_LEN_MAX: Bytes = Bytes::mib(1);

/// Why a playlist or MPD cannot be played through Nearcast.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaylistError {
    #[error("it has {0}, more than the limit of {MANIFEST_LEN_MAX} for a manifest")]
    TooLong(Bytes),
    #[error("it is no HLS playlist: the first line is not #EXTM3U")]
    NotHls,
    #[error("it is neither a multivariant playlist nor a media playlist, or a mixture of both")]
    Mixed,
    #[error("it has no #EXT-X-ENDLIST: only finished (VOD) playlists can be ingested")]
    NotEnded,
    #[error("line {0} needs a URI and has none")]
    UriMissing(usize),
    /// An attribute list that says something twice: readers would differ on what it says.
    #[error("line {line} has the attribute {name} twice")]
    Twice { line: usize, name: String },
    /// A bandwidth that no rendition has; players choose and divide by it.
    #[error("the bandwidth \"{0}\" is not a number above 0")]
    Bandwidth(String),
    #[error("the byte range \"{0}\" is not of the form first-last")]
    Range(String),
    #[error("\"{0}\" uses a variable (EXT-X-DEFINE): write the playlist without variables")]
    Variable(String),
    #[error("it has content steering or pathways of its own: package it without")]
    Steered,
    #[error("it is no well-formed XML near byte {at}: {reason}")]
    Xml { at: usize, reason: String },
    #[error("it is no DASH MPD with at least one Period")]
    NotMpd,
    #[error("its type is \"{0}\": only type=\"static\" can be ingested")]
    NotStatic(String),
    #[error("it has <{0}>, which sends players elsewhere: package it without")]
    Elsewhere(String),
    #[error("the segment template \"{0}\" cannot be expanded")]
    Template(String),
    #[error("\"{0}\" is not inside the ingested directory: use relative URIs")]
    Outside(String),
    #[error(
        "\"{0}\" cannot name a file: it is empty, too long or badly percent-encoded \
             (the longest path has {PATH_LEN_MAX} bytes)"
    )]
    NotAFile(String),
    #[error("it refers to more than {FILES_PER_VERSION_MAX} files, or to the same very often")]
    TooManyFiles,
    #[error("it has more than {} representations in all", dash::REPRESENTATIONS_MAX)]
    TooManyRepresentations,
}

fn check_len(text: &str) -> Result<(), PlaylistError> {
    let len = Bytes::of(text.len());
    if MANIFEST_LEN_MAX < len { Err(PlaylistError::TooLong(len)) } else { Ok(()) }
}
