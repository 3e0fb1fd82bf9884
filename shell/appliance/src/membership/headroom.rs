//! What the machine has left of things that this process does not count: memory, and its network
//! cards.
//!
//! Each is told as the thousandths in use of what can be used without harm, so that the worst of
//! all can be found. What the kernel does not say is none, and counts as nothing.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use model::units::BitsPerSecond;

/// How near the machine's memory is to its last twentieth, or GiB where that is less, at which the
/// kernel begins to take pages that somebody needs. What we hold ourselves from the start is no
/// load, and no session that is given away frees it, so the amount in use says nothing: the amount
/// left does.
pub(crate) fn memory() -> Option<u32> {
    memory_of(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// Ours, for want of a published figure: what the kernel wants free grows slower than the memory.
const LAST_KIB_MAX: u64 = 1 << 20;

fn memory_of(text: &str) -> Option<u32> {
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (whole, left) = (field("MemTotal:")?, field("MemAvailable:")?);
    Some(permille((whole / 20).min(LAST_KIB_MAX), left))
}

/// The machine's network cards, kept open: files are out of reach soon after the start, and a card
/// may come up, or agree on another speed, at any time. One that is built in later is not seen.
#[derive(Debug, Default)]
pub struct Cards(Vec<Card>);

#[derive(Debug)]
struct Card {
    state: Option<File>,
    speed: Option<File>,
}

impl Cards {
    /// Those that are there now. To be asked before files are out of reach.
    pub(crate) fn open() -> Self {
        Self::of(Path::new("/sys/class/net"))
    }

    /// Those with a device: a virtual card has no speed of its own.
    fn of(folder: &Path) -> Self {
        let all = fs::read_dir(folder).into_iter().flatten().flatten().map(|card| card.path());
        let real = all.filter(|card| card.join("device").exists());
        let open = |card: PathBuf| Card {
            state: File::open(card.join("operstate")).ok(),
            speed: File::open(card.join("speed")).ok(),
        };
        Self(real.map(open).collect())
    }

    /// What those that are up carry together, if all of them say so.
    pub(crate) fn speed(&self) -> Option<BitsPerSecond> {
        let up = self.0.iter().filter(|card| said(card.state.as_ref()).as_deref() == Some("up"));
        let speed = |card: &Card| -> Option<u64> {
            let megabits: u64 = said(card.speed.as_ref())?.parse().ok()?;
            (megabits != 0).then(|| megabits.saturating_mul(1_000_000))
        };
        let sum = up.map(speed).try_fold(0_u64, |sum, one| Some(sum.saturating_add(one?)))?;
        (sum != 0).then_some(BitsPerSecond(sum))
    }
}

/// A line of the kernel's, as it is now.
fn said(file: Option<&File>) -> Option<String> {
    let mut line = [0; 32];
    let len = file?.read_at(&mut line, 0).ok()?;
    Some(str::from_utf8(line.get(..len)?).ok()?.trim().to_owned())
}

/// Packets of all cards since they came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packets {
    all: u64,
    dropped: u64,
}

/// Of fewer packets, one that was dropped says nothing: a card also counts as dropped what is for
/// no protocol that the machine speaks.
const PACKETS_MIN: u64 = 1000;

impl Packets {
    pub(crate) fn now() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/self/net/dev").ok()?)
    }

    /// By the kernel's table: two lines of heading, then a line for each card, with eight numbers
    /// of what came and eight of what went. The second is packets, the fourth is drops.
    fn of(text: &str) -> Option<Self> {
        let mut sum = Self::default();
        for line in text.lines().skip(2) {
            let (name, numbers) = line.split_once(':')?;
            if name.trim() == "lo" {
                continue;
            }
            let numbers: Vec<u64> =
                numbers.split_whitespace().map_while(|number| number.parse().ok()).collect();
            for direction in [numbers.get(..8)?, numbers.get(8..16)?] {
                sum.all = sum.all.saturating_add(direction[1]);
                sum.dropped = sum.dropped.saturating_add(direction[3]);
            }
        }
        Some(sum)
    }

    /// How near the drops since the last call are to one packet in a hundred: with more, TCP sends
    /// a fraction of what the link carries.
    pub(crate) fn go_on(&mut self) -> Option<u32> {
        let now = Self::now()?;
        let before = std::mem::replace(self, now);
        Some(now.since(before))
    }

    fn since(self, before: Self) -> u32 {
        let all = self.all.saturating_sub(before.all);
        let dropped = self.dropped.saturating_sub(before.dropped);
        if all < PACKETS_MIN { 0 } else { permille(dropped.saturating_mul(100), all) }
    }
}

/// Thousandths, up to ten times the whole.
fn permille(used: u64, most: u64) -> u32 {
    let permille = used.saturating_mul(1000) / most.max(1);
    u32::try_from(permille.min(10_000)).unwrap_or(10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_short_when_its_last_twentieth_is_near() {
        let text = |left| format!("MemTotal:  1000 kB\nMemFree: 7 kB\nMemAvailable:  {left} kB\n");
        let of = |left| memory_of(&text(left));
        assert_eq!([1000, 500, 100, 50, 0].map(of), [50, 100, 500, 1000, 10_000].map(Some));
        let large =
            |left| memory_of(&format!("MemTotal: {} kB\nMemAvailable: {left} kB\n", 256 << 20));
        let left = [14 << 20, 2 << 20, 1 << 20].map(large);
        assert_eq!(left, [71, 500, 1000].map(Some), "of 256 GiB the last one counts");
        assert_eq!(memory_of("MemTotal: 1000 kB\n"), None);
        assert_eq!(memory_of("MemTotal: x kB\nMemAvailable: 1 kB\n"), None);
    }

    #[test]
    fn drops_count_against_one_packet_in_a_hundred_and_not_on_a_silent_card() {
        let table = |packets, dropped| {
            let zero = "0 0 0 0 0 0 0 0";
            format!(
                "Inter-|\n face |\n    lo: 9 9999 0 999 0 0 0 0 {zero}\n  \
                 eth0: 1 {packets} 0 {dropped} 0 0 0 0 1 {packets} 0 0 0 0 0 0\n"
            )
        };
        let of = |packets, dropped| Packets::of(&table(packets, dropped)).unwrap();
        let before = of(10_000, 50);
        assert_eq!(before, Packets { all: 20_000, dropped: 50 });
        assert_eq!(of(15_000, 60).since(before), 100, "10 of 10,000");
        assert_eq!(of(15_000, 150).since(before), 1000, "100 of 10,000");
        assert_eq!(of(10_400, 150).since(before), 0, "too few packets");
        assert_eq!(of(5, 0).since(before), 0, "the card was taken down");
        assert_eq!(Packets::of("a\nb\nnonsense\n"), None);
        assert_eq!(Packets::of("a\nb\neth0: 1 2 3\n"), None);
    }

    #[test]
    fn a_card_that_comes_up_or_agrees_on_another_speed_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let put = |card: &str, name: &str, text: &str| {
            fs::create_dir_all(folder.path().join(card)).unwrap();
            fs::write(folder.path().join(card).join(name), text).unwrap();
        };
        for (card, state, speed) in [("a", "up\n", "10000\n"), ("b", "down\n", "-1\n")] {
            put(card, "device", "");
            put(card, "operstate", state);
            put(card, "speed", speed);
        }
        put("lo", "operstate", "up\n");
        let cards = Cards::of(folder.path());
        let gigabits = || cards.speed().map(|speed| speed.0 / 1_000_000_000);
        assert_eq!(gigabits(), Some(10));
        put("a", "speed", "100000\n");
        assert_eq!(gigabits(), Some(100));
        put("b", "operstate", "up\n");
        assert_eq!(gigabits(), None, "one that is up does not say");
        put("b", "speed", "25000\n");
        assert_eq!(gigabits(), Some(125));
        put("a", "operstate", "down\n");
        put("b", "operstate", "dormant\n");
        assert_eq!(gigabits(), None);
        assert_eq!(Cards::default().speed(), None);
    }

    #[test]
    fn this_machine_says_something() {
        assert!(memory().is_some() && Packets::now().is_some());
    }
}
