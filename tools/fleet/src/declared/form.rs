//! The forms of settings' values: each value has one, whether a file says it or control.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use apply::Value;
use model::hours::Windows;
use model::id::{ClusterId, SiteId, Tag};
use model::place::Place;
use model::profile::{CAPACITIES, Profile, RATES, TAGS_MAX};
use model::topology::Prefix;
use model::zone::TimeZone;
use serde_json::Value as Json;

use super::profiles;

/// The form of a setting's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// A whole number from 1 to this.
    Number(u32),
    /// The same from 0.
    Count(u32),
    Flag,
    /// The name of a thing.
    Name,
    Prefixes,
    /// Of a site: `embedded` or `exchange`.
    Kind,
    /// Where a site is; empty for nowhere in particular.
    Place,
    Addresses,
    Time,
    /// Bits per second of a rendition; 0 for no limit.
    Bitrate,
    /// Bits per second of a line or a machine, in [`RATES`]; 0 for this.
    Rate(&'static str),
    /// Bytes of a machine, in [`CAPACITIES`]; 0 for this.
    Bytes(&'static str),
    /// Of an appliance.
    Profile,
    /// An operator's own name of it; empty for none.
    ProfileName,
    /// Words for people.
    Tags,
    /// The name of a time zone.
    Zone,
    /// The name of some sites; empty for a site by itself.
    Cluster,
    /// Windows of a day; nothing, or an empty text, for this.
    Windows(&'static str),
}

/// How a time is taken away.
const NO_TIME: &str = "none";

impl Form {
    /// The value in its one form, or what would be right.
    pub(super) fn read(self, value: &Json) -> Result<Value, String> {
        let wrong = |wanted: &str| format!("{value} is not {wanted}");
        match self {
            Self::Number(most) => number(value, 1..=most),
            Self::Count(most) => number(value, 0..=most),
            Self::Bitrate => most(value, 1..=u64::MAX, "bits per second", "no limit"),
            Self::Rate(zero) => rate(value, zero),
            Self::Bytes(zero) => capacity(value, zero),
            Self::Profile => profile(value),
            Self::ProfileName => profile_name(value),
            Self::Tags if value.is_null() => Ok(Value::Texts(BTreeSet::new())),
            Self::Tags => tags(value),
            Self::Zone if value == "" => Ok(Value::Text(TimeZone::default().to_string())),
            Self::Zone => {
                let text = value.as_str().ok_or_else(|| wrong("a time zone"))?;
                let zone = TimeZone::named(text).map_err(|error| error.to_string())?;
                Ok(Value::Text(zone.to_string()))
            }
            Self::Cluster if value.is_null() || value == "" => Ok(Value::Text(String::new())),
            Self::Cluster => {
                let name = value.as_str().and_then(|text| text.parse::<ClusterId>().ok());
                let wanted =
                    "the name of a cluster: write for example \"de-north\", or \"\" for none";
                name.map(|name| Value::Text(name.to_string())).ok_or_else(|| wrong(wanted))
            }
            Self::Windows(usual) if value.is_null() || value == "" => {
                Ok(Value::Text(usual.to_owned()))
            }
            Self::Windows(_) => {
                let text = value.as_str().ok_or_else(|| wrong("a text of windows"))?;
                let windows = text.parse::<Windows>().map_err(|error| error.to_string())?;
                Ok(Value::Text(windows.to_string()))
            }
            Self::Flag => value.as_bool().map(Value::Flag).ok_or_else(|| wrong("true or false")),
            Self::Name => {
                let name = value.as_str().and_then(|text| text.parse::<SiteId>().ok());
                let wanted = "the name of a site: write for example \"s1\"";
                name.map(|name| Value::Text(name.to_string())).ok_or_else(|| wrong(wanted))
            }
            Self::Prefixes => {
                texts(value, "prefixes: write for example [\"10.0.0.0/8\"]", |text| {
                    let address = || text.parse::<IpAddr>().map(Prefix::from);
                    Some(text.parse::<Prefix>().or_else(|_| address()).ok()?.trunc().to_string())
                })
            }
            Self::Kind => {
                let kind = value.as_str().filter(|kind| ["embedded", "exchange"].contains(kind));
                let wanted = "\"embedded\" or \"exchange\"";
                kind.map(|kind| Value::Text(kind.to_owned())).ok_or_else(|| wrong(wanted))
            }
            Self::Place if value == "" => Ok(Value::Text(String::new())),
            Self::Place => {
                let text = value.as_str().ok_or_else(|| wrong("a place"))?;
                let place = text.parse::<Place>().map_err(|error| format!("{value}: {error}"))?;
                Ok(Value::Text(place.to_string()))
            }
            Self::Addresses => {
                texts(value, "addresses: write for example [\"192.0.2.11\"]", |text| {
                    Some(text.parse::<IpAddr>().ok()?.to_string())
                })
            }
            Self::Time if value.is_null() || value == NO_TIME => Ok(Value::Nothing),
            Self::Time => time(value),
        }
    }
}

fn number(value: &Json, of: RangeInclusive<u32>) -> Result<Value, String> {
    let (least, most) = of.into_inner();
    let number = value.as_u64().filter(|number| (least.into()..=most.into()).contains(number));
    let wrong = || format!("{value} is not a number from {least} to {most}");
    number.map(Value::Number).ok_or_else(wrong)
}

fn profile(value: &Json) -> Result<Value, String> {
    if value.is_null() || value == "none" {
        return Ok(Value::Text("none".to_owned()));
    }
    let profile = value.as_str().unwrap_or_default().parse::<Profile>();
    let profile = profile
        .map_err(|error| format!("{value}: {error}, or declare [profile.NAME] of your own"))?;
    Ok(Value::Text(profile.to_string()))
}

fn profile_name(value: &Json) -> Result<Value, String> {
    if value.is_null() || value == "" {
        return Ok(Value::Text(String::new()));
    }
    let name = value.as_str().filter(|name| !profiles::is_usual(name));
    let name = name.and_then(|name| name.parse::<Tag>().ok());
    let wanted = "a name of your own: write for example \"edge-100\", or \"\" for none";
    let wrong = || format!("{value} is not {wanted}");
    name.map(|name| Value::Text(name.to_string())).ok_or_else(wrong)
}

/// What something does at most; 0 says another thing.
fn most(
    value: &Json,
    within: RangeInclusive<u64>,
    unit: &str,
    zero: &str,
) -> Result<Value, String> {
    if value.is_null() {
        return Ok(Value::Number(0));
    }
    let number = value.as_u64().filter(|number| *number == 0 || within.contains(number));
    let wrong = || format!("{value} is not a number of {unit}, or 0 for {zero}");
    number.map(Value::Number).ok_or_else(wrong)
}

fn rate(value: &Json, zero: &str) -> Result<Value, String> {
    let (least, greatest) = (RATES.start().0, RATES.end().0);
    let unit = format!("bits per second from {least} (1 Mb/s) to {greatest}");
    most(value, least..=greatest, &unit, zero)
}

fn capacity(value: &Json, zero: &str) -> Result<Value, String> {
    let (least, greatest) = (CAPACITIES.start().0, CAPACITIES.end().0);
    let unit = format!("bytes from {least} (100 MB) to {greatest}");
    most(value, least..=greatest, &unit, zero)
}

fn tags(value: &Json) -> Result<Value, String> {
    let tag = |text: &str| Some(text.parse::<Tag>().ok()?.to_string());
    let tags = texts(value, "tags: write for example [\"rack-7\"]", tag)?;
    if let Value::Texts(all) = &tags
        && TAGS_MAX < all.len()
    {
        return Err(format!("{} tags: an appliance has at most {TAGS_MAX}", all.len()));
    }
    Ok(tags)
}

fn time(value: &Json) -> Result<Value, String> {
    let time = value.as_str().and_then(|text| humantime::parse_rfc3339(text).ok());
    let text = time.map(|time| humantime::format_rfc3339_seconds(time).to_string());
    let wanted = "a time: write UTC, as in 2027-01-31T22:00:00Z, or \"none\"";
    text.map(Value::Text).ok_or_else(|| format!("{value} is not {wanted}"))
}

/// A list of texts, each in its one form.
fn texts(
    value: &Json,
    wanted: &str,
    read: impl Fn(&str) -> Option<String>,
) -> Result<Value, String> {
    let list = value.as_array().ok_or_else(|| format!("{value} is no list of {wanted}"))?;
    let read = |one: &Json| {
        let text = one.as_str().and_then(&read);
        text.ok_or_else(|| format!("{one} is none of a list of {wanted}"))
    };
    Ok(Value::Texts(list.iter().map(read).collect::<Result<BTreeSet<_>, _>>()?))
}
