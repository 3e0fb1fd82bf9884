//! The control plane's state.
