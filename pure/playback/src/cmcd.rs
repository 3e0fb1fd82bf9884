//! Common Media Client Data: a player's state, told with a request (CTA-5004 and CTA-5004-A: CMCD
//! versions 1 and 2).
//!
//! ```text
//! ?CMCD=br%3D3200%2Cbl%3D21300%2Csu      one query argument, percent-encoded
//! CMCD-Request: bl=21300,su              or four header fields
//! CMCD-Object: br=3200,tb=6000           in version 2 br=(3200;v 128;a),tb=(6000)
//! ```
//!
//! It comes from strangers and may say anything: what cannot be read or cannot be is left out, and
//! the rest counts. Nothing is allocated.

use model::units::{BitsPerSecond, Nanos};

/// Longest text that is looked at, decoded; a longer one counts as not there. Players send about
/// 300 bytes.
pub const LEN_MAX: usize = 1024;

/// No player needs more than 10 Gb/s: a greater value is wrong.
const KBPS_MAX: u64 = 10_000_000;

/// No buffer is longer than a day.
const BUFFER_MS_MAX: u64 = 86_400_000;

/// The keys that decide how fast a player is sent to, of all that it may say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// `br`: the encoded bitrate of what it asks for.
    pub bitrate: Option<BitsPerSecond>,
    /// `tb`: the highest bitrate that it could ask for.
    pub top: Option<BitsPerSecond>,
    /// `rtp`: the throughput that it asks for.
    pub requested: Option<BitsPerSecond>,
    /// `bl`: how much it has to play.
    pub buffer: Option<Nanos>,
    /// `su`: it starts, has sought, or recovers from a stall.
    pub startup: bool,
    /// `bs`: its buffer ran dry since the last request.
    pub starved: bool,
}

/// Reads the query argument and the header fields of one request; of a key that comes twice, the
/// last counts, fields behind the query.
pub fn hints(query: &str, fields: &[Option<&[u8]>]) -> Hints {
    let mut hints = Hints::default();
    let mut arguments = query.split('&');
    if let Some(argument) = arguments.find_map(|argument| argument.strip_prefix("CMCD=")) {
        let mut buffer = [0; LEN_MAX];
        if let Some(len) = decode(argument.as_bytes(), &mut buffer) {
            hints.read(&buffer[..len]);
        }
    }
    for field in fields.iter().flatten().filter(|field| field.len() <= LEN_MAX) {
        hints.read(field);
    }
    hints
}

impl Hints {
    /// Takes the keys of a dictionary of structured fields (RFC 8941 section 3.2).
    fn read(&mut self, text: &[u8]) {
        let (mut from, mut quoted, mut escaped) = (0, false, false);
        for (at, byte) in text.iter().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b',' if !quoted => {
                    self.member(&text[from..at]);
                    from = at + 1;
                }
                _ => {}
            }
        }
        self.member(&text[from..]);
    }

    fn member(&mut self, member: &[u8]) {
        let member = member.trim_ascii();
        let split = member.iter().position(|byte| *byte == b'=');
        let (key, value) = match split {
            Some(at) => (&member[..at], Some(&member[at + 1..])),
            None => (member, None),
        };
        let rate = || {
            let kbps = number(value?).filter(|kbps| (1..=KBPS_MAX).contains(kbps))?;
            Some(BitsPerSecond(kbps * 1000))
        };
        // A key alone is true (RFC 8941 section 3.2); some write the value in words.
        let truth = matches!(value, None | Some(b"?1" | b"true"));
        match key {
            b"br" => self.bitrate = rate(),
            b"tb" => self.top = rate(),
            b"rtp" => self.requested = rate(),
            b"bl" => {
                let millis = value.and_then(number).filter(|millis| *millis <= BUFFER_MS_MAX);
                self.buffer = millis.map(Nanos::millis);
            }
            b"su" => self.startup = truth,
            b"bs" => self.starved = truth,
            _ => {}
        }
    }
}

/// Of an inner list (RFC 8941 section 3.1.1), as version 2 has them, the item that is of video, or
/// else the first. What is no list is itself.
fn item(value: &[u8]) -> &[u8] {
    let Some(list) = value.strip_prefix(b"(") else { return value };
    let list = list.strip_suffix(b")").unwrap_or(list);
    let is_video = |item: &&[u8]| item.ends_with(b";v") || item.ends_with(b";av");
    let items = || list.split(|byte| *byte == b' ').filter(|item| !item.is_empty());
    let item = items().find(is_video).or_else(|| items().next()).unwrap_or_default();
    item.split(|byte| *byte == b';').next().unwrap_or_default()
}

/// A number without sign, or one of a list; decimals are cut off.
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
        };
        assert_eq!(said, wanted);
    }

    #[test]
    fn version_2_says_the_same_in_lists() {
        // As the library of hls.js and Shaka writes it (@svta/cml-cmcd 2.3.2).
        let two = query(
            "CMCD=bl%3D(21400)%2Cbr%3D(3200)%2Cbs%2Cd%3D4004%2Cmtp%3D(48100)%2Cnor%3D(%22a.mp4\
             %22)%2Cot%3Dv%2Crtp%3D16000%2Csta%3Dr%2Ctb%3D(6000)%2Cv%3D2",
        );
        assert_eq!(two, field("bl=21400,br=3200,bs,d=4004,ot=v,rtp=16000,tb=6000,v=1"));
        assert_eq!(two.bitrate, Some(BitsPerSecond(3_200_000)));
        let both = field("br=(128;a 3200;v),bl=(900;a 2100;av)");
        assert_eq!(both.bitrate, Some(BitsPerSecond(3_200_000)));
        assert_eq!(both.buffer, Some(Nanos::millis(2100)));
        assert_eq!(field("bl=(700;a)").buffer, Some(Nanos::millis(700)));
        for bad in ["bl=()", "bl=(", "bl=(;v)", "bl=(-1)", "br=(0)", "br=((5))"] {
            assert_eq!(field(bad), Hints::default(), "{bad}");
        }
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
            assert_eq!(field(bad), Hints::default(), "{bad}");
            assert!(field(&format!("{bad},bs")).starved, "{bad}");
        }
        assert_eq!(field("bl=99999999999").buffer, None);
        assert_eq!(query("CMCD=su%2"), Hints::default());
        assert_eq!(query("XCMCD=su&CMCD"), Hints::default());
        assert_eq!(query(&format!("CMCD=su,x={}", "y".repeat(LEN_MAX))), Hints::default());
        assert!(query("CMCD=su=true").startup);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_left_out(text: Vec<u8>, argument in ".{0,80}") {
            let said = hints(&format!("CMCD={argument}"), &[Some(&text), None]);
            for rate in [said.bitrate, said.top, said.requested].into_iter().flatten() {
                prop_assert!((1000..=KBPS_MAX * 1000).contains(&rate.0));
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
