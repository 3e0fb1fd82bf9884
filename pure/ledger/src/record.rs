//! The record of one decision.
//!
//! ```text
//! flags | when | draw of the session | version | number of the client's sites | generation
//!   | others | pathways of a ticket, or none | answer: appliances, each with its reasons
//! ```

use arrayvec::ArrayVec;
use model::near::Step;
use model::units::{Bytes, UnixSeconds};
use model::view::{FleetView, Renditions};
use steering::{Candidate, Distance, Fitness, RankedList, Reason, Title};

use crate::codec::{Input, put};
use crate::picture;

/// Longest record, the two bytes before it included.
pub const RECORD_LEN_MAX: usize = 200;

/// Pathways of an answer, and of a ticket, that a record has room for. A list has four.
pub(crate) const ANSWERS_MAX: usize = 4;
pub(crate) const AMONG_MAX: usize = 16;

/// The question that a decision answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A playback began.
    Begun,
    /// A player asked which pathway is best now.
    Steered,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) plain: bool,
    pub(crate) at: UnixSeconds,
    pub(crate) draw: [u8; 8],
    /// None where nobody knew the version.
    pub(crate) version: Option<u32>,
    /// Which of the file's lists of sites is the client's.
    pub(crate) near: u32,
    pub(crate) generation: u64,
    pub(crate) answered: Answered,
}

/// A list as far as a record has room for it. It has no memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// As in the list.
    pub(crate) others: u32,
    /// The appliances of a ticket's pathways; none of a playback that begins.
    pub(crate) among: Option<ArrayVec<u32, AMONG_MAX>>,
    /// Those that are offered, best first.
    pub(crate) answers: ArrayVec<Answer, ANSWERS_MAX>,
}

impl Answered {
    /// Of a list that was made of this picture, among these appliances by number, or all.
    pub fn of(view: &FleetView, list: &RankedList, among: Option<&[u32]>) -> Self {
        let offered = list.offered().iter().take(ANSWERS_MAX);
        Self {
            others: counted(list.others),
            among: among.map(|among| among.iter().copied().take(AMONG_MAX).collect()),
            answers: offered.map(|candidate| Answer::of(candidate, view)).collect(),
        }
    }
}

/// Appliances, of which there are no more than numbers.
fn counted(appliances: u64) -> u32 {
    u32::try_from(appliances).unwrap_or(u32::MAX)
}

/// One appliance of an answer, with what each step found: the codes and numbers of its reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) appliance: u32,
    /// What `FLAGS` says, and which distance.
    flags: u8,
    place: u8,
    step: u8,
    fitness: u8,
    bottleneck: u8,
    pub(crate) load_permille: u16,
    /// Invariant: <= 1000, so that it has two bytes.
    share_permille: u16,
    weight: u16,
}

const STEERED: u8 = 1;
const PLAIN: u8 = 2;
const KNOWN: u8 = 4;
const AMONG: u8 = 8;

const ELSEWHERE: u8 = 0;
const ROUTE: u8 = 1;
const LONGEST: u8 = 2;
const NEARBY: u8 = 3;
const DISTANCE: u8 = 3;
const TITLE_SPREAD: u8 = 4;
const FOR_CLIENT: u8 = 8;
const HOLDS: u8 = 16;
const SPILLED: u8 = 32;
const HOLDS_PART: u8 = 64;
const TITLE_LEADS: u8 = 128;
const TITLE: u8 = TITLE_SPREAD | TITLE_LEADS;
const HELD: u8 = HOLDS | HOLDS_PART;

impl Record {
    /// Adds the record, after its length.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let Answered { others, among, answers } = &self.answered;
        let at = bytes.len();
        bytes.push(0);
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        bytes.push(
            flag(self.kind == Kind::Steered, STEERED)
                | flag(self.plain, PLAIN)
                | flag(self.version.is_some(), KNOWN)
                | flag(among.is_some(), AMONG),
        );
        put(bytes, self.at.0);
        bytes.extend_from_slice(&self.draw);
        self.version.iter().for_each(|version| put(bytes, *version));
        put(bytes, self.near);
        put(bytes, self.generation);
        put(bytes, *others);
        if let Some(among) = among {
            put(bytes, Bytes::of(among.len()).0);
            among.iter().for_each(|number| put(bytes, *number));
        }
        put(bytes, Bytes::of(answers.len()).0);
        answers.iter().for_each(|answer| answer.encode(bytes));
        let len = bytes.len() - at;
        // With the byte that says what it is.
        assert!(len < RECORD_LEN_MAX, "a record has {RECORD_LEN_MAX} bytes at most, not {len}");
        bytes[at] = u8::try_from(len - 1).expect("it is below 200");
    }

    pub(crate) fn decode(input: &mut Input<'_>) -> Option<Self> {
        let len = usize::from(input.byte()?);
        let mut input = Input::new(input.bytes(len)?);
        let record = Self::fields(&mut input)?;
        input.is_empty().then_some(record)
    }

    fn fields(input: &mut Input<'_>) -> Option<Self> {
        let flags = input.byte()?;
        let kind = if flags & STEERED == 0 { Kind::Begun } else { Kind::Steered };
        let at = UnixSeconds(input.number()?);
        let draw = input.array()?;
        let version = if flags & KNOWN == 0 { None } else { Some(input.narrow()?) };
        let (near, generation, others) = (input.narrow()?, input.number()?, input.narrow()?);
        let among = if flags & AMONG == 0 {
            None
        } else {
            let count = input.count().filter(|count| *count <= AMONG_MAX)?;
            Some((0..count).map(|_| input.narrow()).collect::<Option<_>>()?)
        };
        let count = input.count().filter(|count| *count <= ANSWERS_MAX)?;
        let answers = (0..count).map(|_| Answer::decode(input)).collect::<Option<_>>()?;
        let plain = flags & PLAIN != 0;
        let answered = Answered { others, among, answers };
        Some(Self { kind, plain, at, draw, version, near, generation, answered })
    }
}

impl Answer {
    /// Of a candidate, in the picture of its list.
    pub(crate) fn of(candidate: &Candidate, view: &FleetView) -> Self {
        let mut answer = Self {
            appliance: candidate.appliance,
            flags: 0,
            place: 0,
            step: 0,
            fitness: 0,
            bottleneck: 0,
            load_permille: 0,
            share_permille: 0,
            weight: 0,
        };
        candidate.reasons(view).iter().for_each(|reason| answer.add(reason));
        answer
    }

    fn add(&mut self, reason: &Reason) {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        match reason {
            Reason::Locate { distance, is_for_client } => {
                self.flags |= flag(*is_for_client, FOR_CLIENT);
                self.locate(distance);
            }
            Reason::Health(fitness) => self.fitness = fitness_code(*fitness),
            Reason::Content(held) => {
                self.flags |= match *held {
                    Renditions::ALL => HOLDS,
                    Renditions::NONE => 0,
                    _ => HOLDS_PART,
                };
            }
            Reason::Load { bottleneck, load_permille, share_permille, is_spilled } => {
                self.flags |= flag(*is_spilled, SPILLED);
                self.bottleneck = picture::place(&picture::BOTTLENECKS, bottleneck);
                self.load_permille = u16::try_from(*load_permille).unwrap_or(u16::MAX);
                self.share_permille = (*share_permille).min(1000);
            }
            // The score follows from the rest, and is seen in the order; so many of titles is in
            // the picture.
            Reason::Affinity { score: _, weight, title, titles_permille: _ } => {
                self.flags |= match title {
                    Title::Leads => TITLE_LEADS,
                    Title::Spread => TITLE_SPREAD,
                    Title::Other => 0,
                };
                self.weight = u16::try_from(weight.value()).unwrap_or(u16::MAX);
            }
        }
    }

    fn locate(&mut self, distance: &Distance) {
        let small = |place: &usize| u8::try_from(*place).unwrap_or(u8::MAX);
        match distance {
            Distance::Elsewhere => self.flags |= ELSEWHERE,
            Distance::Route { place, is_longest, route: _, step } => {
                self.flags |= if *is_longest { LONGEST } else { ROUTE };
                (self.place, self.step) = (small(place), step_code(*step));
            }
            Distance::Nearby { place, nearness: _, step } => {
                self.flags |= NEARBY;
                (self.place, self.step) = (small(place), step_code(*step));
            }
        }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.appliance);
        bytes.extend_from_slice(&[
            self.flags,
            self.place,
            self.step,
            self.fitness,
            self.bottleneck,
        ]);
        put(bytes, self.load_permille);
        put(bytes, self.share_permille);
        put(bytes, self.weight);
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        let appliance = input.narrow()?;
        let [flags, place, step, fitness, bottleneck] = input.array()?;
        let (load_permille, share_permille) = (input.narrow()?, input.narrow()?);
        let weight = input.narrow()?;
        Some(Self {
            appliance,
            flags,
            place,
            step,
            fitness,
            bottleneck,
            load_permille,
            share_permille,
            weight,
        })
    }

    /// The steps that found something else, by name, in their order; none if all is the same.
    pub(crate) fn differing(&self, other: &Self) -> Vec<&'static str> {
        let flags = |of: &Self, mask: u8| of.flags & mask;
        let distance = |of: &Self| (flags(of, DISTANCE | FOR_CLIENT), of.place, of.step);
        let load =
            |of: &Self| (flags(of, SPILLED), of.bottleneck, of.load_permille, of.share_permille);
        let affinity = |of: &Self| (flags(of, TITLE), of.weight);
        [
            ("locate", distance(self) != distance(other)),
            ("health", self.fitness != other.fitness),
            ("content", flags(self, HELD) != flags(other, HELD)),
            ("load", load(self) != load(other)),
            ("affinity", affinity(self) != affinity(other)),
        ]
        .iter()
        .filter(|(_, differs)| *differs)
        .map(|(step, _)| *step)
        .collect()
    }
}

fn step_code(step: Step) -> u8 {
    match step {
        Step::First => 0,
        Step::Prefix => 1,
        Step::Class => 2,
        Step::Path => 3,
        Step::Med => 4,
        Step::Place => 5,
        Step::Name => 6,
        Step::NoRoute => 7,
    }
}

fn fitness_code(fitness: Fitness) -> u8 {
    match fitness {
        Fitness::Healthy => 0,
        Fitness::Draining => 1,
        Fitness::Drained => 2,
        Fitness::Unhealthy => 3,
        Fitness::Stale => 4,
        Fitness::NeverSeen => 5,
        Fitness::NoUrl => 6,
    }
}
