//! Measurement only: the serve path without one of its optimisations, so that `nearcast-lab ablate`
//! can tell what each is worth. Nothing here makes an appliance better.

use model::units::Bytes;
use serde::{Deserialize, Serialize};

use settings::{ConfigError, Text, wrong};

/// `[ablation]` of the configuration: the parts that are switched off. The default is none, which
/// is the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ablation {
    /// Files are read past the page cache.
    pub direct_reads: bool,
    /// How sealed bytes get to the socket.
    pub sending: Sending,
    /// Most plaintext in a record.
    pub record_len: Text<Bytes>,
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
        let record_len = Bytes::of(tls::RECORD_LEN_MAX);
        Self { direct_reads: true, sending: Sending::default(), record_len: Text(record_len) }
    }
}

impl Ablation {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let len = self.record_len.0.as_usize();
        if (RECORD_LEN_MIN..=tls::RECORD_LEN_MAX).contains(&len) {
            return Ok(());
        }
        let most = tls::RECORD_LEN_MAX;
        let message = format!("must be between {RECORD_LEN_MIN} and {most} bytes");
        Err(wrong("ablation", "record_len", message))
    }

    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
