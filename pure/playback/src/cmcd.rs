//! Common Media Client Data: a player's state, told with a request or by itself (CTA-5004 and
//! CTA-5004-A: CMCD versions 1 and 2).
//!
//! ```text
//! ?CMCD=br%3D3200%2Cbl%3D21300%2Csu      one query argument, percent-encoded
//! CMCD-Request: bl=21300,su              or four header fields
//! CMCD-Object: br=3200,tb=6000           in version 2 br=(3200;v 128;a)
//! POST: e=ps,sta=r,ts=1700000000123,..   in version 2 also lines of events, to a collector
//! ```
//!
//! It comes from strangers and may say anything: what cannot be read or cannot be is left out, and
//! the rest counts. Nothing is allocated.

use model::cmcd::{Format, Hints, Object, Report, State};
use model::units::{BitsPerSecond, Nanos};

/// Longest text that is looked at, decoded; a longer one counts as not there. Players send about
/// 300 bytes.
pub const LEN_MAX: usize = 1024;

/// No player needs more than 10 Gb/s: a greater value is wrong.
const KBPS_MAX: u64 = 10_000_000;

/// No buffer, segment or stall is longer than a day.
const MILLIS_MAX: u64 = 86_400_000;

/// Nobody watches faster than at a hundred times the speed.
const SPEED_MAX: u32 = 100_000;

/// Reads the query argument and the header fields of one request; of a key that comes twice, the
/// last counts, fields behind the query.
pub fn hints(query: &str, fields: &[Option<&[u8]>]) -> Hints {
    let mut hints = Hints::default();
    let mut arguments = query.split('&');
    if let Some(argument) = arguments.find_map(|argument| argument.strip_prefix("CMCD=")) {
        let mut buffer = [0; LEN_MAX];
        if let Some(len) = decode(argument.as_bytes(), &mut buffer) {
            read(&mut hints, &buffer[..len]);
        }
    }
    for field in fields.iter().flatten().filter(|field| field.len() <= LEN_MAX) {
        read(&mut hints, field);
    }
    hints
}

/// Reads the lines of an event report; a line that is too long counts as not there.
pub fn reports(body: &[u8]) -> impl Iterator<Item = Report> {
    let lines = body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty() && line.len() <= LEN_MAX).map(|line| {
        let mut report = Report::default();
        members(line, |key, value| report_member(&mut report, key, value));
        report
    })
}

/// The members of a dictionary of structured fields (RFC 8941 section 3.2); a key alone has no
/// value.
fn members<'a>(text: &'a [u8], mut each: impl FnMut(&'a [u8], Option<&'a [u8]>)) {
    let mut member = |member: &'a [u8]| {
        let member = member.trim_ascii();
        match member.iter().position(|byte| *byte == b'=') {
            Some(at) => each(&member[..at], Some(&member[at + 1..])),
            None => each(member, None),
        }
    };
    let (mut from, mut quoted, mut escaped) = (0, false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                member(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    member(&text[from..]);
}

fn read(hints: &mut Hints, text: &[u8]) {
    members(text, |key, value| member(hints, key, value));
}

fn member(hints: &mut Hints, key: &[u8], value: Option<&[u8]>) {
    let rate = || {
        let kbps = number(value?).filter(|kbps| (1..=KBPS_MAX).contains(kbps))?;
        Some(BitsPerSecond(kbps * 1000))
    };
    // A key alone is true (RFC 8941 section 3.2); some write the value in words.
    let truth = matches!(value, None | Some(b"?1" | b"true"));
    match key {
        b"br" => hints.bitrate = rate(),
        b"tb" => hints.top = rate(),
        b"rtp" => hints.requested = rate(),
        b"mtp" => hints.measured = rate(),
        b"bl" => hints.buffer = value.and_then(millis),
        b"d" => hints.duration = value.and_then(millis),
        b"su" => hints.startup = truth,
        b"bs" => hints.starved = truth,
        b"pr" => hints.speed = value.and_then(thousandths),
        b"ot" => hints.object = value.map(object),
        b"sf" => hints.format = value.map(format),
        _ => return,
    }
    hints.told = true;
}

fn report_member(report: &mut Report, key: &[u8], value: Option<&[u8]>) {
    match key {
        b"sta" => report.state = value.map(state),
        b"ts" => {
            let at = value.and_then(number).and_then(|millis| millis.checked_mul(1_000_000));
            report.at = at.map(Nanos);
        }
        b"sn" => report.number = value.and_then(number),
        b"msd" => report.start_delay = value.and_then(millis),
        b"ec" => report.failed = true,
        b"e" => report.failed |= value == Some(b"e"),
        _ => member(&mut report.hints, key, value),
    }
}

fn object(value: &[u8]) -> Object {
    match value {
        b"v" | b"av" => Object::Video,
        b"a" => Object::Audio,
        _ => Object::Other,
    }
}

fn format(value: &[u8]) -> Format {
    match value {
        b"h" => Format::Hls,
        b"d" => Format::Dash,
        _ => Format::Other,
    }
}

fn state(value: &[u8]) -> State {
    match value {
        b"s" => State::Starting,
        b"p" => State::Playing,
        b"r" | b"w" => State::Rebuffering,
        b"k" => State::Seeking,
        b"a" => State::Paused,
        b"e" | b"f" | b"q" => State::Over,
        _ => State::Other,
    }
}

/// Of an inner list (version 2), the item that is of video; else the first.
fn item(value: &[u8]) -> &[u8] {
    let Some(list) = value.strip_prefix(b"(") else { return value };
    let list = list.strip_suffix(b")").unwrap_or(list);
    let is_video = |item: &&[u8]| item.ends_with(b";v") || item.ends_with(b";av");
    let items = || list.split(|byte| *byte == b' ').filter(|item| !item.is_empty());
    let item = items().find(is_video).or_else(|| items().next()).unwrap_or_default();
    item.split(|byte| *byte == b';').next().unwrap_or_default()
}

fn millis(value: &[u8]) -> Option<Nanos> {
    number(value).filter(|millis| *millis <= MILLIS_MAX).map(Nanos::millis)
}

/// A decimal number in thousandths.
fn thousandths(value: &[u8]) -> Option<u32> {
    let (whole, digits) = match value.iter().position(|byte| *byte == b'.') {
        Some(at) => (&value[..at], &value[at + 1..]),
        None => (value, &value[..0]),
    };
    let digit = |at: usize| match digits.get(at) {
        Some(digit) => digit.is_ascii_digit().then(|| u32::from(digit - b'0')),
        None => Some(0),
    };
    let whole = number(whole).and_then(|whole| u32::try_from(whole).ok())?;
    let speed = whole.checked_mul(1000)? + digit(0)? * 100 + digit(1)? * 10 + digit(2)?;
    (speed <= SPEED_MAX).then_some(speed)
}

/// A number without sign; decimals are cut off. Of a list of version 2, one item.
fn number(text: &[u8]) -> Option<u64> {
    let whole = item(text).split(|byte| *byte == b'.').next()?;
    if whole.is_empty() || 15 < whole.len() {
        return None;
    }
    whole.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0'))
    })
}

/// Percent-decodes into `out` and returns the length; none if it does not fit or is not well
/// formed.
fn decode(text: &[u8], out: &mut [u8]) -> Option<usize> {
    let (mut at, mut len) = (0, 0);
    while at < text.len() {
        let byte = match text[at] {
            b'%' => {
                let digits = text.get(at + 1..at + 3)?;
                at += 2;
                hex(digits[0])? << 4 | hex(digits[1])?
            }
            b'+' => b' ',
            byte => byte,
        };
        *out.get_mut(len)? = byte;
        (at, len) = (at + 1, len + 1);
    }
    Some(len)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn query(text: &str) -> Hints {
        hints(text, &[])
    }

    fn field(text: &str) -> Hints {
        hints("", &[Some(text.as_bytes())])
    }

    const MBPS: u64 = 1_000_000;

    #[test]
    fn a_player_s_query_is_understood() {
        // As hls.js writes it, between other arguments.
        let said = query(
            "a=b&CMCD=bl%3D21300%2Cbr%3D3200%2Cd%3D4000%2Cmtp%3D48100%2Cnor%3D%22..%2Fb%252c2.m4s\
             %22%2Cot%3Dv%2Crtp%3D16000%2Csf%3Dh%2Csid%3D%22x%22%2Ctb%3D6000&c",
        );
        let wanted = Hints {
            bitrate: Some(BitsPerSecond(3_200_000)),
            top: Some(BitsPerSecond(6 * MBPS)),
            requested: Some(BitsPerSecond(16 * MBPS)),
            buffer: Some(Nanos::millis(21_300)),
            startup: false,
            starved: false,
            told: true,
            object: Some(Object::Video),
            duration: Some(Nanos::millis(4000)),
            measured: Some(BitsPerSecond(48_100_000)),
            speed: None,
            format: Some(Format::Hls),
        };
        assert_eq!(said, wanted);
    }

    #[test]
    fn version_2_says_the_same_in_lists() {
        // As hls.js writes it (its library's encoder, version 2.3.2).
        let two = query(
            "CMCD=bl%3D(21400)%2Cbr%3D(3200)%2Cbs%2Cd%3D4004%2Cmtp%3D(48100)%2Cnor%3D(%22a.mp4%22)\
             %2Cot%3Dv%2Cpr%3D1.25%2Csf%3Dd%2Csid%3D%22x%22%2Csn%3D4%2Csta%3Dr%2Ctb%3D(6000)%2Cv%3D2",
        );
        let one =
            field("bl=21400,br=3200,bs,d=4004,mtp=48100,ot=v,pr=1.25,sf=d,sid=\"x\",tb=6000,v=1");
        assert_eq!(one, two);
        assert_eq!((one.speed, one.format), (Some(1250), Some(Format::Dash)));
        let both = field("br=(128;a 3200;v),bl=(900;a 2100;v)");
        assert_eq!(both.bitrate, Some(BitsPerSecond(3_200_000)));
        assert_eq!(both.buffer, Some(Nanos::millis(2100)));
        assert_eq!(field("bl=(700;a)").buffer, Some(Nanos::millis(700)));
        assert_eq!(field("bl=()").buffer, None);
    }

    #[test]
    fn events_are_read_line_by_line() {
        let body = b"e=ps,sta=s,ts=1700000000000,sid=\"x\",v=2\n\
            e=ps,sta=p,ts=1700000000812,sn=7,msd=812,bl=(3200),sid=\"x\",v=2\r\n\n\
            e=ps,sta=r,ts=1700000009000,v=2\ne=e,ec=(\"x\"),sta=f,ts=1700000009500,v=2\nodd";
        let read: Vec<Report> = reports(body).collect();
        let states: Vec<_> = read.iter().map(|report| report.state).collect();
        use State::{Over, Playing, Rebuffering, Starting};
        let wanted = [Some(Starting), Some(Playing), Some(Rebuffering), Some(Over), None];
        assert_eq!(states, wanted);
        assert_eq!(read[1].start_delay, Some(Nanos::millis(812)));
        assert_eq!(read[1].hints.buffer, Some(Nanos::millis(3200)));
        assert_eq!(read[2].at, Some(Nanos::millis(1_700_000_009_000)));
        assert!(read[3].failed && !read[2].failed);
        assert_eq!((read[0].number, read[1].number), (None, Some(7)));
    }

    #[test]
    fn fields_are_read_together() {
        let said =
            hints("", &[Some(b"bl=400, su"), Some(b"br=1502.7,tb=6000"), Some(b"bs, rtp=100")]);
        assert!(said.startup && said.starved);
        assert_eq!(said.bitrate, Some(BitsPerSecond(1_502_000)));
        assert_eq!(said.requested, Some(BitsPerSecond(100_000)));
        assert_eq!(said.buffer, Some(Nanos::millis(400)));
    }

    #[test]
    fn what_stands_in_quotes_is_no_key() {
        assert_eq!(field("nor=\"a,su,br=1\""), Hints::default());
        assert_eq!(field("nor=\"a\\\",su\""), Hints::default());
        assert!(field("nor=\"a\\\\\",su").startup);
    }

    #[test]
    fn what_cannot_be_is_left_out_and_the_rest_counts() {
        for bad in ["br=0", "br=-5", "br=1e9", "br", "br=", "br=99999999", "br=\"5\"", "su=?0"] {
            assert_eq!(field(bad), Hints { told: true, ..Hints::default() }, "{bad}");
            assert!(field(&format!("{bad},bs")).starved, "{bad}");
        }
        assert_eq!(field("bl=99999999999").buffer, None);
        assert_eq!(query("CMCD=su%2"), Hints::default());
        assert_eq!(query("XCMCD=su&CMCD"), Hints::default());
        assert_eq!(query(&format!("CMCD=su,x={}", "y".repeat(LEN_MAX))), Hints::default());
        assert!(query("CMCD=su=true").startup);
        assert!(!field("x=1,nor=\"a\"").told);
        for bad in ["sid=x", "sid=\"\"", "pr=-1", "pr=1.x", "pr=101", "ts=x"] {
            let said = field(bad);
            assert_eq!(said.speed, None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_left_out(text: Vec<u8>, argument in ".{0,80}") {
            let said = hints(&format!("CMCD={argument}"), &[Some(&text), None]);
            for rate in [said.bitrate, said.top, said.requested].into_iter().flatten() {
                prop_assert!((1000..=KBPS_MAX * 1000).contains(&rate.0));
            }
            for report in reports(&text) {
                prop_assert!(report.hints.speed.is_none_or(|speed| speed <= SPEED_MAX));
            }
        }

        #[test]
        fn both_ways_say_the_same(br in 1u64..10_000_000, bl in 0u64..86_400_000, su: bool) {
            let text = format!("br={br},bl={bl}{}", if su { ",su" } else { "" });
            let encoded = text.replace('=', "%3D").replace(',', "%2c");
            prop_assert_eq!(field(&text), query(&format!("CMCD={encoded}")));
            prop_assert_eq!(field(&text).bitrate, Some(BitsPerSecond(br * 1000)));
            prop_assert_eq!(field(&text).startup, su);
        }
    }
}
