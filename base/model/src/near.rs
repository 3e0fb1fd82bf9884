//! The sites of a client, best first, each with its reason: what the table of routes answers, and
//! what steering begins with.

use std::fmt;

use crate::place::Nearness;
use crate::topology::Prefix;

/// One site of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// The site in the picture of the fleet.
    pub number: u32,
    pub by: By,
    /// What put it behind the one before it.
    pub step: Step,
}

/// What is known of the way from a site to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The site has a prefix that covers the client.
    Route(Route),
    /// It has none, but it is near.
    Place(Nearness),
}

/// The way to a prefix, as far as it orders sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub prefix: Prefix,
    pub class: Class,
    /// An operator's word. Others were heard from routers.
    pub is_static: bool,
    /// Networks on the way.
    pub path_len: u16,
    /// The network that announced it to the site.
    pub neighbour: Option<u32>,
    /// That network's preference among its own announcements: lower is better.
    pub med: Option<u32>,
}

/// How a site is joined to the network that announced a prefix, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// It stands in it.
    Embedded,
    /// By a link of their own.
    Private,
    /// Over the fabric of an exchange.
    Public,
}

/// The step of the order that put a site behind the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// It is the first.
    First,
    /// Its prefix is shorter.
    Prefix,
    /// It is joined less closely.
    Class,
    /// More networks are on its way.
    Path,
    /// The same network prefers the other.
    Med,
    /// It is farther away.
    Place,
    /// Nothing but its name.
    Name,
    /// It has no prefix of the client, and the one before has.
    NoRoute,
}

impl Near {
    /// True if an operator said so.
    #[inline]
    pub fn is_static(&self) -> bool {
        matches!(&self.by, By::Route(route) if route.is_static)
    }

    /// True of a site with a longer prefix than that.
    #[inline]
    pub fn is_longer(&self, len: u8) -> bool {
        matches!(&self.by, By::Route(route) if len < route.prefix.prefix_len())
    }
}

impl Step {
    /// One word, for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Prefix => "prefix",
            Self::Class => "class",
            Self::Path => "path",
            Self::Med => "med",
            Self::Place => "place",
            Self::Name => "name",
            Self::NoRoute => "no_route",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Embedded => "embedded",
            Self::Private => "private peering",
            Self::Public => "public peering",
        })
    }
}

impl fmt::Display for Step {
    /// A clause that goes on after what is known of the way.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "before all others",
            Self::Prefix => "after longer prefixes",
            Self::Class => "after closer peering",
            Self::Path => "after shorter AS paths",
            Self::Med => "after a lower MED of the same neighbour",
            Self::Place => "after nearer sites",
            Self::Name => "after an equal site by its name",
            Self::NoRoute => "after sites with a route",
        })
    }
}
