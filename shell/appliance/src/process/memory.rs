//! What clients can make an appliance hold, against the memory that there is.

use model::units::Bytes;

use crate::process::config::Settings;
use crate::process::hot;

/// At most, for each connection, handshake and transfer: docs/operate/hostile-load.md says of what.
const CONNECTION: Bytes = Bytes::kib(12);
const HANDSHAKE: Bytes = Bytes::kib(64);
const TRANSFER: Bytes = Bytes::kib(332);
/// Of the memory, what transfers may hold at worst unless it is said: an eighth, as paced transfers
/// in a control group. Hot blocks have a quarter, and the kernel's sockets come on top.
const SHARE: u64 = 8;
/// Unless it is said, never fewer, for 83 MiB: a line of 1 Gb/s to viewers at 4 Mb/s.
const TRANSFERS_MIN: usize = 256;
/// The setting's name in `Settings::origins`.
const KEY: &str = "serve.transfers_max";

/// The same settings with no more transfers than fit this machine and control group, unless their
/// number is said.
pub fn fit(settings: Settings) -> Settings {
    let machine = rustix::system::sysinfo();
    let machine = Bytes(machine.totalram * u64::from(machine.mem_unit));
    fit_in(settings, hot::group_limit().map_or(machine, |group| group.min(machine)))
}

fn fit_in(mut settings: Settings, memory: Bytes) -> Settings {
    let fits = Bytes(memory.0 / SHARE / TRANSFER.0).as_usize();
    if settings.serve.transfers_max <= fits {
        return settings;
    }
    let needed = worst(&settings);
    if settings.origins.is_given(KEY) {
        tracing::warn!(
            %needed, allowed = %memory, transfers = settings.serve.transfers_max,
            "[serve] transfers_max: clients that stop to read can make so many hold more than an \
             eighth of the memory that there is. Take fewer, or give more (memory.max of the \
             control group, MemoryMax= of the unit)"
        );
        return settings;
    }
    let given = std::mem::replace(&mut settings.serve.transfers_max, fits.max(TRANSFERS_MIN));
    let mib = memory.0 >> 20;
    let origin = format!("default where there are {mib} MiB; {given} where there is more");
    settings.origins.set(KEY, origin);
    tracing::info!(
        needed = %worst(&settings), allowed = %memory, transfers = settings.serve.transfers_max,
        "[serve] transfers_max: fewer than elsewhere, for want of memory"
    );
    settings
}

/// What clients can make an appliance with these settings hold.
fn worst(settings: &Settings) -> Bytes {
    let all = [
        (settings.serve.connections_max, CONNECTION),
        (settings.serve.handshakes_max, HANDSHAKE),
        (settings.serve.transfers_max, TRANSFER),
    ];
    Bytes(all.iter().map(|(count, each)| Bytes::of(*count).0 * each.0).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::config::tests::parse;

    const GOOD: &str = "name = \"a1\"\nstate = \"/s\"\n[serve]\nlisten = [\"127.0.0.2:8443\"]\n\
        certificate = \"c\"\nkey = \"k\"\nworkers = 2\n[drives]\npaths = [\"/d\"]\n\
        [control]\nurl = \"https://127.0.0.1:8081/\"\n";

    fn fitted(text: &str, memory: Bytes) -> (usize, String) {
        let settings = parse(text, &[]).unwrap();
        let settings = fit_in(settings, memory);
        (settings.serve.transfers_max, settings.describe())
    }

    #[test]
    fn the_documented_worst_case_is_what_is_compared() {
        let settings = parse(GOOD, &[]).unwrap();
        assert_eq!(worst(&settings), Bytes(196_608_000 + 134_217_728 + 2_785_017_856));
    }

    #[test]
    fn where_there_is_little_memory_fewer_may_transfer_unless_it_is_said() {
        let gib = |count: u64| Bytes(count << 30);
        let (most, text) = fitted(GOOD, gib(21));
        assert_eq!(most, 8192);
        assert!(text.contains("transfers_max = 8192 ") && text.contains("# default\n"), "{text}");
        let (most, text) = fitted(GOOD, gib(4));
        assert_eq!(most, 1579);
        let line = "# default where there are 4096 MiB; 8192 where there is more\n";
        assert!(text.contains("transfers_max = 1579 ") && text.contains(line), "{text}");
        assert_eq!(fitted(GOOD, Bytes::mib(512)).0, 256);
        let said = GOOD.replace("workers", "transfers_max = 8192\nworkers");
        let (most, text) = fitted(&said, gib(4));
        assert_eq!(most, 8192);
        assert!(text.contains("transfers_max = 8192 "), "{text}");
    }
}
