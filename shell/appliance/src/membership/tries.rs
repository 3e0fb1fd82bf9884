//! Questions to control that fail: said once, and asked again later and later.

use model::units::Nanos;

use crate::membership::client::ControlError;
use crate::storage::shared::Shared;

/// Longest wait between two tries to reach control.
const RETRY_MAX: Nanos = Nanos::seconds(5);

/// How it goes with one kind of question.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    /// On end.
    failures: u32,
    /// What was logged last, so that each state is logged once.
    said: Option<String>,
}

impl Tries {
    /// Logs a change of state once: how many have failed on end; none if this one did not.
    pub(crate) fn settle(
        &mut self,
        shared: &Shared,
        whom: &str,
        well: &str,
        result: Result<(), ControlError>,
    ) -> Option<u32> {
        let Err(error) = result else {
            if self.said.take().is_some() {
                tracing::info!(whom, "{well}");
            }
            self.failures = 0;
            return None;
        };
        let text = error.to_string();
        if self.said.as_ref() != Some(&text) {
            tracing::warn!(whom, error = text, "serving and filling go on without it");
            if !matches!(error, ControlError::Unreachable(_) | ControlError::Late(_)) {
                shared.ledger.note("control", text.clone());
            }
            self.said = Some(text);
        }
        self.failures += 1;
        Some(self.failures)
    }
}

/// How long to wait after so many failures on end.
pub(crate) fn wait(interval: Nanos, failures: u32) -> Nanos {
    Nanos(interval.0 << failures.min(6)).min(RETRY_MAX.max(interval))
}

/// A part of a span that is an appliance's own.
pub(crate) fn share_of(span: Nanos, appliance: &str) -> Nanos {
    let hash = blake3::hash(appliance.as_bytes());
    let lot = u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("BLAKE3 has 32 bytes"));
    Nanos(lot % span.0)
}
