//! What serving costs at the least: the memory, AEAD and sends of an appliance in a loop that does
//! nothing else.
//!
//! ```text
//! epoll ──> recv, open ──> which bytes ──> seal ──> send, until the socket is full
//!                              ^
//!                  blocks in huge pages, or read past the page cache one by one
//! ```
//!
//! It has no tokens, log, limits, deadlines, drives that fail, or pacing, and it understands the
//! lab's own client alone. The distance from it is what an appliance's work beside sealing costs.

mod blocks;
mod request;
mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use tls::{Kernels, Wanted};

use blocks::Blocks;
use serve::Server;

/// `nearcast-lab serve-ideal`
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// A catalogue of the lab's.
    dir: PathBuf,
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    /// The certificate chain that is shown, PEM.
    #[arg(long)]
    certificate: PathBuf,
    /// Its key, PEM.
    #[arg(long)]
    key: PathBuf,
    /// What seals: a library by name, or the one that is fastest here ("auto").
    #[arg(long, default_value_t)]
    aead: Wanted,
    /// Read from the drive for each piece, instead of all at the start.
    #[arg(long)]
    cold: bool,
}

/// Serves until it is killed.
pub(crate) fn serve(args: &ServeArgs) -> Result<()> {
    let blocks = Blocks::open(&args.dir, !args.cold)?;
    let kernels = sealing(args.aead, tls::survey(args.aead)?.kernels)?;
    Server::new(args.listen, &args.certificate, &args.key, kernels, blocks)?.run()
}

/// What was chosen; an error unless it is what was wanted, for which a survey takes another library
/// if that one is unsound: the figure would be told of the wrong one.
fn sealing(wanted: Wanted, chosen: Kernels) -> Result<Kernels> {
    if let Wanted::Only(kernel) = wanted {
        ensure!(
            chosen == Kernels { aes_128: kernel, aes_256: kernel },
            "--aead {kernel}: it seals wrongly on this machine (nearcast-appliance inspect --aead \
             says how): name another"
        );
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use model::units::Bytes;
    use rig::certificate::Certificate;
    use rig::client::{Load, Plan, Ranges, Receive};
    use tls::Kernel;

    use super::*;
    use crate::compare::Catalogue;

    #[test]
    fn the_library_that_was_named_seals_or_nothing_does() {
        for kernel in Kernel::ALL {
            let only = Kernels { aes_128: kernel, aes_256: kernel };
            let wanted = Wanted::Only(kernel);
            assert_eq!(sealing(wanted, tls::survey(wanted).unwrap().kernels).unwrap(), only);
            assert_eq!(sealing(Wanted::Auto, only).unwrap(), only);
        }
        let mixed = Kernels { aes_128: Kernel::Ring, aes_256: Kernel::AwsLc };
        assert_eq!(sealing(Wanted::Auto, mixed).unwrap(), mixed);
        let error = sealing(Wanted::Only(Kernel::Ring), mixed).unwrap_err().to_string();
        assert!(error.starts_with("--aead ring: it seals wrongly on this machine"), "{error}");
    }

    /// By each library, from memory and from the drive, every byte is compared with the source.
    #[test]
    fn every_byte_is_right() {
        let room = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::open(&room.path().join("source"), 3, Bytes(700_001), 7).unwrap();
        let certificate = Certificate::make(room.path()).unwrap();
        for (in_memory, kernel) in [(true, Kernel::AwsLc), (false, Kernel::Ring)] {
            let (dir, at) = (catalogue.dir().to_owned(), "127.0.0.1:0".parse().unwrap());
            let (chain, key) = (certificate.chain.clone(), certificate.key.clone());
            let kernels = Kernels { aes_128: kernel, aes_256: kernel };
            let (said, heard) = mpsc::channel();
            // The ring stays on the thread that made it.
            std::thread::spawn(move || {
                let blocks = Blocks::open(&dir, in_memory).unwrap();
                let server = Server::new(at, &chain, &key, kernels, blocks).unwrap();
                said.send(server.address().unwrap()).unwrap();
                server.run()
            });
            let plan = Plan {
                address: heard.recv().unwrap(),
                name: "localhost".to_owned(),
                trust: certificate.ca.clone(),
                suites: Vec::new(),
                targets: catalogue.targets("/"),
                connections: 4,
                range_len: Bytes(600_000),
                ranges: Ranges::Unaligned,
                receive: Receive::Copy,
                verify_every: 1,
                seed: 1,
                every: Duration::ZERO,
            };
            let mut load = Load::connect(&plan, catalogue.truth()).unwrap();
            load.ask_all().unwrap();
            let end = Instant::now() + Duration::from_secs(20);
            while load.totals().responses < 20 {
                assert!(Instant::now() < end, "{:?}", load.totals());
                load.drive(Instant::now() + Duration::from_millis(50)).unwrap();
            }
            let totals = load.totals();
            assert!(12_000_000 <= totals.body && totals.verified == totals.body, "{totals:?}");
        }
    }
}
