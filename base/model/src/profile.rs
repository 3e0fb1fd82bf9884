//! What an appliance is able to do, by an operator's word: by its own, or by its profile's.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::units::{BitsPerSecond, Bytes};

/// A kind of machine. What each is able to do is the policy's: [`Profiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Fast, for what most viewers watch.
    Flash,
    /// Large, for the head and the tail.
    Storage,
    /// One machine that is all of a small site.
    Global,
}

/// What a machine is able to do. None of what nobody said; otherwise in [`RATES`] and
/// [`CAPACITIES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// What it serves at most.
    pub throughput: Option<BitsPerSecond>,
    /// What it holds at most.
    pub capacity: Option<Bytes>,
    /// What it fetches at most.
    pub fill: Option<BitsPerSecond>,
}

/// What machines of each profile are able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profiles {
    pub flash: Abilities,
    pub storage: Abilities,
    pub global: Abilities,
}

/// Arbitrary: a slower line fills nothing in a night, and a figure in Mb/s by mistake is below it.
/// A faster one is none of this earth, and JSON's numbers are exact as far as that.
pub const RATES: RangeInclusive<BitsPerSecond> =
    BitsPerSecond(1_000_000)..=BitsPerSecond(1_000_000_000_000_000);

/// Arbitrary: a figure in MB by mistake is below it, and 128 drives of 64 TB are within.
pub const CAPACITIES: RangeInclusive<Bytes> = Bytes(100_000_000)..=Bytes(9_000_000_000_000_000);

/// Tags of one appliance. Arbitrary: they are for people.
pub const TAGS_MAX: usize = 16;

impl Abilities {
    /// These, and of the others those that are not said here.
    pub fn or(self, others: Self) -> Self {
        Self {
            throughput: self.throughput.or(others.throughput),
            capacity: self.capacity.or(others.capacity),
            fill: self.fill.or(others.fill),
        }
    }
}

impl Profiles {
    /// What a machine of this profile is able to do; nothing is known of one without.
    pub fn of(&self, profile: Option<Profile>) -> Abilities {
        match profile {
            Some(Profile::Flash) => self.flash,
            Some(Profile::Storage) => self.storage,
            Some(Profile::Global) => self.global,
            None => Abilities::default(),
        }
    }
}

impl Default for Profiles {
    /// Of the order of what Netflix has told of machines of these names, in several years: docs.
    fn default() -> Self {
        let able = |gbps: u64, terabytes: u64, fill_mbps: u64| Abilities {
            throughput: Some(BitsPerSecond(gbps * 1_000_000_000)),
            capacity: Some(Bytes(terabytes * 1_000_000_000_000)),
            fill: Some(BitsPerSecond(fill_mbps * 1_000_000)),
        };
        Self { flash: able(90, 16, 300), storage: able(200, 120, 1200), global: able(80, 60, 400) }
    }
}

/// A word that names no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write \"flash\", \"storage\", \"global\" or \"none\"")]
pub struct NotAProfile;

impl FromStr for Profile {
    type Err = NotAProfile;

    fn from_str(text: &str) -> Result<Self, NotAProfile> {
        let all = [Self::Flash, Self::Storage, Self::Global];
        all.into_iter().find(|of| of.as_str() == text).ok_or(NotAProfile)
    }
}

impl Profile {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flash => "flash",
            Self::Storage => "storage",
            Self::Global => "global",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_an_appliance_comes_before_what_its_profile_says() {
        let profiles = Profiles::default();
        let own = Abilities { capacity: Some(Bytes(7)), ..Abilities::default() };
        let both = own.or(profiles.of(Some(Profile::Flash)));
        assert_eq!(both, Abilities { capacity: Some(Bytes(7)), ..profiles.flash });
        assert_eq!(own.or(profiles.of(None)), own, "nothing is known of the rest");
        assert_eq!(profiles.of(Some(Profile::Storage)), profiles.storage);
        assert_eq!(profiles.of(Some(Profile::Global)), profiles.global);
    }

    #[test]
    fn the_defaults_are_within_the_bounds() {
        let Profiles { flash, storage, global } = Profiles::default();
        for of in [flash, storage, global] {
            assert!(RATES.contains(&of.throughput.unwrap()) && RATES.contains(&of.fill.unwrap()));
            assert!(CAPACITIES.contains(&of.capacity.unwrap()));
        }
    }

    #[test]
    fn a_profile_is_read_from_its_word() {
        for of in [Profile::Flash, Profile::Storage, Profile::Global] {
            assert_eq!(of.to_string().parse(), Ok(of));
        }
        assert_eq!("none".parse::<Profile>(), Err(NotAProfile));
    }
}
