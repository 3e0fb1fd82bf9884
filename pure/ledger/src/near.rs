//! A client's sites in a file: all that orders them, and no address.

use model::near::{By, Class, Near, Route, Step};
use model::place::{Nearness, Shares};
use model::topology::Prefix;

use crate::codec::{Input, put};

/// Bits of a prefix that are kept: of one client in 256, and of one household in 65,536.
const V4_BYTES: usize = 3;
const V6_BYTES: usize = 6;

const STEPS: [Step; 8] = [
    Step::First,
    Step::Prefix,
    Step::Class,
    Step::Path,
    Step::Med,
    Step::Place,
    Step::Name,
    Step::NoRoute,
];
const CLASSES: [Class; 3] = [Class::Embedded, Class::Private, Class::Public];
const SHARES: [Shares; 4] = [Shares::City, Shares::Region, Shares::Country, Shares::Nothing];

/// Adds a client's sites.
pub(crate) fn encode(bytes: &mut Vec<u8>, near: &[Near]) {
    put(bytes, model::units::Bytes::of(near.len()).0);
    for Near { number, by, step } in near {
        put(bytes, *number);
        bytes.push(code(&STEPS, step));
        match by {
            By::Route(route) => {
                bytes.push(0);
                encode_route(bytes, route);
            }
            By::Place(Nearness { shares, km }) => {
                bytes.push(1);
                bytes.push(code(&SHARES, shares));
                put(bytes, *km);
            }
        }
    }
}

fn encode_route(bytes: &mut Vec<u8>, route: &Route) {
    let Route { prefix, class, is_static, path_len, neighbour, med } = route;
    match prefix {
        Prefix::V4(net) => {
            bytes.push(4);
            bytes.push(net.prefix_len());
            bytes.extend_from_slice(&net.network().octets()[..V4_BYTES]);
        }
        Prefix::V6(net) => {
            bytes.push(6);
            bytes.push(net.prefix_len());
            bytes.extend_from_slice(&net.network().octets()[..V6_BYTES]);
        }
    }
    bytes.push(code(&CLASSES, class));
    bytes.push(u8::from(*is_static));
    put(bytes, *path_len);
    for maybe in [neighbour, med] {
        bytes.push(u8::from(maybe.is_some()));
        maybe.iter().for_each(|number| put(bytes, *number));
    }
}

/// Reads what [`encode`] wrote.
pub(crate) fn decode(input: &mut Input<'_>) -> Option<Vec<Near>> {
    let count = input.count()?;
    let near: Vec<Near> = (0..count).map(|_| decode_one(input)).collect::<Option<_>>()?;
    near.first().is_none_or(|first| first.step == Step::First).then_some(near)
}

fn decode_one(input: &mut Input<'_>) -> Option<Near> {
    let number = input.narrow()?;
    let step = of_code(&STEPS, input.byte()?)?;
    let by = match input.byte()? {
        0 => By::Route(decode_route(input)?),
        1 => {
            let shares = of_code(&SHARES, input.byte()?)?;
            By::Place(Nearness { shares, km: input.narrow()? })
        }
        _ => return None,
    };
    Some(Near { number, by, step })
}

fn decode_route(input: &mut Input<'_>) -> Option<Route> {
    let family = input.byte()?;
    let len = input.byte()?;
    let address = match family {
        4 => {
            let mut octets = [0; 4];
            octets[..V4_BYTES].copy_from_slice(input.bytes(V4_BYTES)?);
            octets.into()
        }
        6 => {
            let mut octets = [0; 16];
            octets[..V6_BYTES].copy_from_slice(input.bytes(V6_BYTES)?);
            octets.into()
        }
        _ => return None,
    };
    let prefix = Prefix::new(address, len).ok()?;
    let class = of_code(&CLASSES, input.byte()?)?;
    let is_static = input.flag()?;
    let path_len = input.narrow()?;
    let mut maybe = || match input.flag()? {
        true => Some(Some(input.narrow()?)),
        false => Some(None),
    };
    let (neighbour, med) = (maybe()?, maybe()?);
    Some(Route { prefix, class, is_static, path_len, neighbour, med })
}

/// A client's sites as they would be without one of them.
pub(crate) fn without(near: &[Near], gone: impl Fn(u32) -> bool) -> Vec<Near> {
    let mut left: Vec<Near> = Vec::with_capacity(near.len());
    let mut skipped: Option<Step> = None;
    for site in near {
        if gone(site.number) {
            skipped = Some(skipped.map_or(site.step, |before| coarser(before, site.step)));
            continue;
        }
        let step = match skipped.take() {
            _ if left.is_empty() => Step::First,
            Some(before) => coarser(before, site.step),
            None => site.step,
        };
        left.push(Near { step, ..*site });
    }
    left
}

/// The step that tells two apart between which another one stood.
fn coarser(one: Step, other: Step) -> Step {
    if one == Step::NoRoute || other == Step::NoRoute { Step::NoRoute } else { one.min(other) }
}

/// The place of a value in a list of all of them.
fn code<T: PartialEq>(all: &[T], value: &T) -> u8 {
    let place = all.iter().position(|of| of == value).expect("the list has all of them");
    u8::try_from(place).expect("there are few")
}

fn of_code<T: Copy>(all: &[T], code: u8) -> Option<T> {
    all.get(usize::from(code)).copied()
}
