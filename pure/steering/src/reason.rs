//! Why an appliance has its place in a list: codes with numbers, and their text for who asks.

use std::fmt;

use model::near::{Route, Step};
use model::place::Nearness;
use model::rendezvous::Score;
use model::topology::Weight;
use model::view::{Bottleneck, Renditions};

/// What one step adds to a decision about one appliance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// How its site is found from the client.
    Locate {
        distance: Distance,
        /// False of an embedded site that has not announced the client.
        is_for_client: bool,
    },
    /// Whether it can be asked.
    Health(Fitness),
    /// What it holds of the version.
    Content(Renditions),
    /// Whether the session is of the share that it takes.
    Load {
        /// What it is shortest of.
        bottleneck: Bottleneck,
        /// How much of that is in use, in thousandths.
        load_permille: u64,
        /// The share of its sessions that it takes now, in thousandths.
        share_permille: u16,
        /// The session is none of that share.
        is_spilled: bool,
    },
    /// The draws among those of its site, by weight.
    Affinity {
        /// The session's.
        score: Score,
        weight: Weight,
        /// Whether the title's leads here.
        title: Title,
        /// So many sessions follow those of titles that lead here, in thousandths.
        titles_permille: u16,
    },
}

/// Whether the draw of the title leads to an appliance, among those of its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Title {
    /// It does, and the session follows it.
    Leads,
    /// It does, and the session is none of those that follow it.
    Spread,
    /// It leads to another one, or to none.
    Other,
}

/// Whether players can be sent to an appliance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    Healthy,
    Draining,
    Drained,
    Unhealthy,
    Stale,
    NeverSeen,
    /// Has told no URL (of the kind asked for), so no player can be sent there.
    NoUrl,
}

/// How near an appliance is to the client, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Its site has a prefix that covers the client.
    Route {
        /// Its place among the client's sites, from 0.
        place: usize,
        /// No site has a longer one.
        is_longest: bool,
        route: Route,
        step: Step,
    },
    /// Its site has no prefix that covers the client, but is one of the nearest.
    Nearby { place: usize, nearness: Nearness, step: Step },
    /// Nothing is known of the way from its site to the client.
    Elsewhere,
}

impl Reason {
    /// The step that found it, in a word for programs.
    pub fn step(&self) -> &'static str {
        match self {
            Self::Locate { .. } => "locate",
            Self::Health(_) => "health",
            Self::Content(_) => "content",
            Self::Load { .. } => "load",
            Self::Affinity { .. } => "affinity",
        }
    }

    /// The finding, in a word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Locate { is_for_client: false, .. } => "others_only",
            Self::Locate { distance, .. } => distance.code(),
            Self::Health(fitness) => fitness.code(),
            Self::Content(Renditions::ALL) => "whole",
            Self::Content(Renditions::NONE) => "lacks",
            Self::Content(_) => "part",
            Self::Load { is_spilled: true, .. } => "spilled",
            Self::Load { .. } => "share",
            Self::Affinity { title: Title::Leads, .. } => "title",
            Self::Affinity { title: Title::Spread, .. } => "spread",
            Self::Affinity { title: Title::Other, .. } => "draw",
        }
    }
}

impl Fitness {
    /// One word, for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Unhealthy => "unhealthy",
            Self::Stale => "stale",
            Self::NeverSeen => "never_seen",
            Self::NoUrl => "no_url",
        }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route { is_longest, route, step, .. } => {
                let prefix = route.prefix;
                if *is_longest {
                    write!(f, "own site: {prefix} is the longest match")?;
                } else {
                    write!(f, "its site's {prefix} covers the client too")?;
                }
                if !route.is_static {
                    write!(f, " ({}, AS path of {}", route.class, route.path_len)?;
                    if let Some(neighbour) = route.neighbour {
                        write!(f, " from AS{neighbour}")?;
                    }
                    if let Some(med) = route.med {
                        write!(f, ", MED {med}")?;
                    }
                    f.write_str(")")?;
                }
                match step {
                    // That is said.
                    Step::First | Step::Prefix => Ok(()),
                    Step::Class
                    | Step::Path
                    | Step::Med
                    | Step::Place
                    | Step::Name
                    | Step::NoRoute => write!(f, ", {step}"),
                }
            }
            Self::Nearby { nearness, .. } => {
                write!(f, "no prefix of its site covers the client, which is {nearness}")
            }
            Self::Elsewhere => f.write_str("no prefix of its site covers the client"),
        }
    }
}

impl Distance {
    /// The step that decided its place, in a word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Route { step, .. } | Self::Nearby { step, .. } => step.as_str(),
            Self::Elsewhere => "elsewhere",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locate { is_for_client: false, .. } => {
                f.write_str("its site is for its own network, which has not announced the client")
            }
            Self::Locate { distance, .. } => distance.fmt(f),
            Self::Health(fitness) => fitness.fmt(f),
            Self::Content(Renditions::ALL) => f.write_str("holds the whole version"),
            Self::Content(Renditions::NONE) => f.write_str("does not hold the whole version"),
            Self::Content(_) => f.write_str("holds some renditions of the version"),
            Self::Load { bottleneck, load_permille, share_permille, is_spilled } => {
                let (percent, tenth) = (load_permille / 10, load_permille % 10);
                write!(f, "load {percent}.{tenth} % ({bottleneck}), ")?;
                let (percent, tenth) = (share_permille / 10, share_permille % 10);
                write!(f, "takes {percent}.{tenth} % of its sessions")?;
                if *is_spilled { f.write_str(", of which this is none") } else { Ok(()) }
            }
            Self::Affinity { title: Title::Leads, .. } => {
                f.write_str("the draw of the title leads here, so it is first of its site")
            }
            Self::Affinity { score, weight, title, titles_permille } => {
                if *title == Title::Spread {
                    let (percent, tenth) = (titles_permille / 10, titles_permille % 10);
                    write!(f, "the draw of the title leads here for {percent}.{tenth} % of its ")?;
                    f.write_str("sessions, of which this is none: ")?;
                }
                write!(f, "its draw for this session is {score}, ")?;
                if *weight != Weight::ONE {
                    write!(f, "by its weight of {weight}, ")?;
                }
                f.write_str("the lowest is first")
            }
        }
    }
}

impl fmt::Display for Fitness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Draining => "draining, so it takes no new sessions",
            Self::Drained => "drained, so it takes no new sessions",
            Self::Unhealthy => "unable to serve",
            Self::Stale => "not reporting",
            Self::NeverSeen => "not known to be up",
            Self::NoUrl => "has told no URL of the kind that this player needs",
        })
    }
}
