//! Measurement only: the serve path without one of its optimisations, so that `nearcast-lab ablate`
//! can tell what each is worth. Nothing here makes an appliance better.

use model::units::Bytes;
use serde::{Deserialize, Deserializer, Serialize};

use crate::setting::{Quantity, word};

/// `[ablation]` of the configuration: the parts that are switched off. The default is none, which
/// is the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ablation {
    /// Files are read past the page cache.
    pub direct_reads: bool,
    /// How sealed bytes get to the socket.
    pub sending: Sending,
    /// Most plaintext in a record.
    #[serde(deserialize_with = "record_len")]
    pub record_len: usize,
}

/// How sealed bytes get to the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sending {
    /// By send(2) at once, out of the one scratch, which is still in the processor's cache.
    #[default]
    AtOnce,
    /// By the ring, which is entered for each, out of memory that is each send's own.
    Ring,
    /// By the ring at the end of a turn: all that became ready in it is sealed first.
    RingBatched,
}

/// Smallest record that can be asked for, so that the scratch does not grow without end.
const RECORD_LEN_MIN: usize = 1024;

impl Default for Ablation {
    fn default() -> Self {
        let record_len = tls::RECORD_LEN_MAX;
        Self { direct_reads: true, sending: Sending::default(), record_len }
    }
}

impl Ablation {
    /// Its settings as the configuration has them; none if nothing is switched off.
    pub(crate) fn rows(&self) -> Vec<(&'static str, &'static str, String)> {
        if *self == Self::default() {
            return Vec::new();
        }
        let row = |key, value| ("ablation", key, value);
        vec![
            row("direct_reads", self.direct_reads.to_string()),
            row("sending", word(&self.sending)),
            row("record_len", format!("\"{}\"", Bytes::of(self.record_len))),
        ]
    }
}

fn record_len<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let len = Quantity::<Bytes>::deserialize(deserializer)?.0.as_usize();
    if !(RECORD_LEN_MIN..=tls::RECORD_LEN_MAX).contains(&len) {
        let most = tls::RECORD_LEN_MAX;
        let message = format!("record_len must be between {RECORD_LEN_MIN} and {most} bytes");
        return Err(serde::de::Error::custom(message));
    }
    Ok(len)
}
