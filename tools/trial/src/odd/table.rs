//! The table of odd requests: `tools/trial/fixtures/odd-requests.toml` says what stands in it.

use serde::Deserialize;

pub(crate) const TEXT: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tools/trial/fixtures/odd-requests.toml"
));

/// One request, or what is none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) group: String,
    pub(crate) name: String,
    /// With escapes; in pieces only so that lines are short.
    send: Vec<String>,
    /// Written so many bytes at a time.
    pub(crate) pieces: Option<usize>,
    /// Nothing more is written behind it, and the server is told so.
    #[serde(default)]
    pub(crate) end: bool,
    /// Nothing more is written behind it.
    #[serde(default)]
    pub(crate) alone: bool,
    pub(crate) ours: String,
    pub(crate) nginx: String,
    pub(crate) why: String,
    /// Why the two differ, if they do.
    #[serde(default)]
    pub(crate) differs: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    case: Vec<Case>,
}

/// What stands for `{P}`, `{T}`, `{F}`, `{E}`, `{Z}` and `{L}`.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// Path of a file of 64 bytes.
    pub(crate) path: String,
    pub(crate) etag: String,
    /// Path of a file without bytes.
    pub(crate) empty: String,
    /// Path of the 64 bytes again, changed at a time that is yet to come.
    pub(crate) later: String,
    pub(crate) token: String,
    pub(crate) forged: String,
}

pub(crate) fn cases() -> Vec<Case> {
    toml::from_str::<Table>(TEXT).expect("the table is TOML of this form").case
}

impl Case {
    /// What is sent, and behind it the probe unless it ends the connection.
    pub(crate) fn bytes(&self, names: &Names) -> Vec<u8> {
        bytes(&self.send.concat(), names, !self.end && !self.alone)
    }
}

/// The bytes that a table's text stands for, and behind them the probe if there shall be one.
pub(crate) fn bytes(text: &str, names: &Names, probed: bool) -> Vec<u8> {
    let smuggled = part(&names.path, "0-0");
    let len = smuggled.len().to_string();
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.extend(unescaped(before));
        let (inside, after) = after.split_once('}').expect("a brace is closed");
        rest = after;
        match inside {
            "P" => out.extend(names.path.bytes()),
            "T" => out.extend(names.token.bytes()),
            "F" => out.extend(names.forged.bytes()),
            "E" => out.extend(names.etag.bytes()),
            "Z" => out.extend(names.empty.bytes()),
            "L" => out.extend(names.later.bytes()),
            "G" => out.extend(format!("GET {} HTTP/1.1\r\nHost: a\r\n", names.path).bytes()),
            "S" => out.extend(smuggled.bytes()),
            "LS" => out.extend(len.bytes()),
            repeated => {
                let (what, times) = repeated.rsplit_once('*').expect("text*times");
                let times = times.parse().expect("a number of times");
                out.extend(unescaped(what).repeat(times));
            }
        }
    }
    out.extend(unescaped(rest));
    if probed {
        out.extend(part(&names.path, "7-9").bytes());
    }
    out
}

fn part(path: &str, range: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nRange: bytes={range}\r\n\r\n")
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next().expect("something is escaped") {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'0' => 0,
            b'\\' => b'\\',
            b'x' => {
                let digits: Vec<u8> = bytes.by_ref().take(2).collect();
                let digits = str::from_utf8(&digits).expect("two digits");
                u8::from_str_radix(digits, 16).expect("two hex digits")
            }
            other => panic!("\\{} is no escape here", char::from(other)),
        });
    }
    out
}
