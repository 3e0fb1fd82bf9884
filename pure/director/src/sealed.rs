//! The text that a playback's URLs carry under a seal. The shell seals and opens it, so any front
//! can answer them, also after a restart.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use model::id::{ApplianceId, AssetId, AssetVersionId};
use model::topology::Prefix;
use model::units::UnixSeconds;
use model::view::Renditions;
use playback::token::Session;

/// What travels in a URL under a seal: text of the playback it is for, how long it is good, and
/// fields of its own.
pub trait Sealed: Sized {
    /// A seal of one kind opens as no other.
    const CONTEXT: &'static str;
    /// The playback it is for, and the first second in which it is no longer good.
    fn life(&self) -> (Session, UnixSeconds);
    /// Its own fields, in characters that need no escape in a URL, full stops apart.
    fn fields(&self) -> String;
    /// Reads the text that [`Sealed::fields`] writes.
    fn parse(session: Session, expires: UnixSeconds, fields: &str) -> Option<Self>;
}

/// Leave to begin a playback, which a service hands to a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub session: Session,
    /// The first second in which it is no longer good.
    pub expires: UnixSeconds,
    pub asset: AssetId,
    /// The range that the viewer is in, if the service said so; else the range of the address that
    /// asks.
    pub client: Option<Prefix>,
}

/// The facts of a playback that a steering answer needs. They travel in the steering URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub session: Session,
    /// The first second in which it is no longer good: as its media URLs are.
    pub expires: UnixSeconds,
    pub version: AssetVersionId,
    /// The range that its client is in: no smaller than steering needs it.
    pub client: Prefix,
    /// It plays without TLS.
    pub plain: bool,
    /// The pathways of its manifest, best first when it began.
    pub pathways: Vec<ApplianceId>,
    /// Of a pathway with several appliances: which renditions it has at each, the appliance that
    /// it is named for first.
    pub parts: BTreeMap<ApplianceId, Vec<(ApplianceId, Renditions)>>,
}

impl Ticket {
    /// True if its seal is short enough to be looked at again. One pathway always is.
    pub fn fits(&self) -> bool {
        self.fields().len() <= TICKET_FIELDS_LEN_MAX
    }
}

impl Sealed for Grant {
    const CONTEXT: &'static str = "nearcast-grant-v1";

    fn life(&self) -> (Session, UnixSeconds) {
        (self.session, self.expires)
    }

    fn fields(&self) -> String {
        let client = self.client.map(|client| format!("{FIELD_END}{}", Range(client)));
        assert!(!self.asset.as_str().contains(FIELD_END), "no name has the end of a field in it");
        format!("{}{}", self.asset, client.unwrap_or_default())
    }

    fn parse(session: Session, expires: UnixSeconds, fields: &str) -> Option<Self> {
        let mut fields = fields.split(FIELD_END);
        let asset = fields.next()?.parse().ok()?;
        let client = match fields.next() {
            Some(text) => Some(Range::parse(text)?),
            None => None,
        };
        fields.next().is_none().then_some(Self { session, expires, asset, client })
    }
}

impl Sealed for Ticket {
    const CONTEXT: &'static str = "nearcast-steering-v2";

    fn life(&self) -> (Session, UnixSeconds) {
        (self.session, self.expires)
    }

    fn fields(&self) -> String {
        let plain = if self.plain { "plain" } else { "tls" };
        let mut text =
            format!("{}{FIELD_END}{}{FIELD_END}{plain}", self.version, Range(self.client));
        assert!(!text.starts_with(FIELD_END), "a version has a name");
        for pathway in &self.pathways {
            text.push(FIELD_END);
            let Some(parts) = self.parts.get(pathway) else {
                text.push_str(pathway.as_str());
                continue;
            };
            for (at, (id, part)) in parts.iter().enumerate() {
                let and = if at == 0 { "" } else { AND };
                write!(text, "{and}{id}{AND}{:x}", part.bits()).expect("a text takes all");
            }
        }
        text
    }

    fn parse(session: Session, expires: UnixSeconds, fields: &str) -> Option<Self> {
        let mut fields = fields.split(FIELD_END);
        let version = fields.next()?.parse().ok()?;
        let client = Range::parse(fields.next()?)?;
        let plain = match fields.next()? {
            "plain" => true,
            "tls" => false,
            _ => return None,
        };
        let (mut pathways, mut parts) = (Vec::new(), BTreeMap::new());
        for field in fields {
            if !field.contains(AND) {
                pathways.push(field.parse().ok()?);
                continue;
            }
            let mut words = field.split(AND);
            let mut of_it = Vec::new();
            while let Some(id) = words.next() {
                let part = u64::from_str_radix(words.next()?, 16).ok()?;
                of_it.push((id.parse().ok()?, Renditions::of_bits(part)));
            }
            let (pathway, _): &(ApplianceId, _) = of_it.first()?;
            pathways.push(pathway.clone());
            parts.insert(pathway.clone(), of_it);
        }
        let fits = (1..=TICKET_PATHWAYS_MAX).contains(&pathways.len());
        fits.then_some(Self { session, expires, version, client, plain, pathways, parts })
    }
}

/// A client's range without a slash.
struct Range(Prefix);

impl Range {
    fn parse(text: &str) -> Option<Prefix> {
        let (address, len) = text.rsplit_once('-')?;
        Prefix::new(address.parse().ok()?, len.parse().ok()?).ok()
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.addr(), self.0.prefix_len())
    }
}

/// Unreserved in URLs, and in no name.
const FIELD_END: char = '~';

/// Between the appliances of one pathway and what it has of each: URLs may have it, and no name
/// has.
const AND: &str = ":";

/// A version, a range, and 64 appliances of one pathway, or of four with few renditions each.
const TICKET_FIELDS_LEN_MAX: usize = 6 << 10;

/// Pathways in a ticket that is read.
const TICKET_PATHWAYS_MAX: usize = 16;
