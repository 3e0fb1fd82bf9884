//! Ctrl-C and SIGTERM: the run ends at the next look, and what was started and made is removed.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};

static WANTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From here on a first signal asks to stop, and a second one kills.
pub fn listen() -> Result<()> {
    let flag = Arc::clone(WANTED.get_or_init(Arc::default));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(())
}

/// An error once a signal came.
pub fn check() -> Result<()> {
    let wanted = WANTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed));
    ensure!(!wanted, "stopped by a signal");
    Ok(())
}
