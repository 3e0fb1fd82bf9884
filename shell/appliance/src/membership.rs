//! Membership: this appliance in its fleet.
//!
//! ```text
//! control_link threads: reports out, to control and its fronts
//! manifest_link thread: manifests in, and their documents
//! client       one process of the control plane, as these speak to it
//! member       thread: this appliance's identity, renewed
//! tries        how often somebody asks who gets no answer
//! envelope     a signed manifest is opened, or refused
//! documents    what manifests name and do not say: fetched once
//! state_file   the last manifest, and its documents
//! headroom     what the machine has left of memory and network cards
//! demand       thread: what viewers were sent of each file, to the writer
//! demand_kept  the same, until control has counted it
//! expected     thread: what viewers are expected to ask for, from the writer
//! agent_link   thread: asks `nearcast-agent` how drives are mounted
//! routes       threads: ask `nearcast-agent routes` what routers announce, and send it on
//! takeover     thread: this appliance's part in its site's service addresses
//! ```

pub mod agent_link;
pub mod client;
pub mod control_link;
pub mod demand;
mod demand_kept;
pub mod documents;
pub mod envelope;
pub mod expected;
pub mod headroom;
pub mod manifest_link;
pub mod member;
pub mod routes;
pub mod state_file;
pub mod takeover;
pub mod tries;
