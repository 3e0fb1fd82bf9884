//! Tokens that were verified lately, on whatever connection. A player has several connections and
//! comes back on new ones, with one token; a verification costs a fifth of a start.
//!
//! ```text
//! connection's own? ──no──> here? ──no──> verify the signature ──> keep: here and with it
//! ```
//!
//! A token has one place, by the hash of its bytes. Whoever comes later to the same place takes it:
//! the other token is verified again when it is next shown. So it holds 4,096 at most, 350 bytes
//! each, and each look costs the same however many there are.

use std::sync::Arc;

use crate::connection::Granted;

/// Places: about the viewers who reach one worker within a few seconds of each other.
const PLACES: usize = 4096;

pub(crate) struct Grants(Vec<Option<Arc<Granted>>>);

/// Its bound alone: tokens are secrets, and a place that fills is no growth of the worker's state.
impl std::fmt::Debug for Grants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grants({})", self.0.len())
    }
}

impl Grants {
    pub(crate) fn new() -> Self {
        Self(vec![None; PLACES])
    }

    /// What these very bytes, token and asset version, were verified to grant. Whether it still
    /// does is the caller's to ask: `Granted::covers`.
    pub(crate) fn find(&self, named: &str) -> Option<&Arc<Granted>> {
        self.0[place(named)].as_ref().filter(|granted| granted.named() == named)
    }

    pub(crate) fn keep(&mut self, granted: &Arc<Granted>) {
        let place = place(granted.named());
        self.0[place] = Some(Arc::clone(granted));
    }
}

/// FNV-1a. Nobody chooses bytes that meet: all that is kept has a signature of control's in it.
fn place(named: &str) -> usize {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = named.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    let places = u64::try_from(PLACES).expect("few");
    usize::try_from(hash % places).expect("below a number of places")
}
