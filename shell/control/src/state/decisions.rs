//! The ledger of this process: decisions go through a bounded queue to a thread of its own, which
//! writes files of bounded size and number.
//!
//! ```text
//! request ── take ──> [ queue of QUEUE_MAX ] ──> thread: locate, put; each second, or at 64 KiB,
//!              └ full: counted, dropped              a sealed block ──> STATE/ledger/N.ledger
//! ```
//!
//! A request pays for a copy of a few pointers. Files are not flushed to the drive block by block:
//! what the last seconds decided is lost in a power cut, and the file has no last block then.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use identity::secret_file::{SecretError, SecretFile};
use ledger::{Decision, Kind, Ledger, keeps};
use model::id::{ApplianceId, AssetVersionId, hex, parse_hex};
use model::topology::Prefix;
use model::units::Bytes;
use model::view::FleetView;
use playback::token::Session;
use steering::RankedList;
use wire::v1::fleet::{LedgerFile, LedgerOut};

use crate::clock::Clock;
use crate::config;
use crate::members::authority::random;
use crate::metrics::Counter;

model::metrics! {
    /// What the thread does with decisions, in counters or numbers.
    pub(crate) struct LedgerCounts {
        /// Decisions that were written to the ledger.
        logged: Counter("decisions_logged_total"),
        /// Decisions that the ledger lacks because too many came at once.
        dropped: Counter("decisions_dropped_total"),
        /// Decisions that the ledger lacks because its files could not be written.
        lost: Counter("decisions_lost_total"),
    }
}

/// Requests count those that are dropped, the thread all others.
pub(crate) type Counters = LedgerCounts<Counter>;

/// The ledger as requests see it.
pub(crate) struct Decisions {
    one_in: u32,
    folder: PathBuf,
    /// In hex: those who read files check seals by it.
    public_key: String,
    pub(crate) counters: Arc<Counters>,
    queue: SyncSender<Message>,
    writing: Mutex<Option<JoinHandle<()>>>,
    open: Arc<Mutex<Open>>,
}

enum Message {
    Taken(Box<Taken>),
    /// There are no more.
    End,
}

/// The file that is written to now, and how much of it is whole blocks; none before the first.
type Open = Option<(u64, u64)>;

/// A decision on its way to the thread.
pub(crate) struct Taken {
    pub(crate) kind: Kind,
    pub(crate) draw: [u8; 8],
    pub(crate) plain: bool,
    pub(crate) client: Prefix,
    pub(crate) version: AssetVersionId,
    pub(crate) view: Arc<FleetView>,
    pub(crate) routes: routes::Table,
    pub(crate) among: Option<Vec<ApplianceId>>,
    pub(crate) list: RankedList,
}

impl Decisions {
    /// Starts the thread, with the next file. Without decisions to be kept there is none.
    pub(crate) fn open(
        config: &config::Config,
        steering: steering::Config,
        clock: Clock,
    ) -> Result<Self, SecretError> {
        let config::Ledger { one_in, files, file_size, folder } = &config.ledger;
        let folder = folder.clone().unwrap_or_else(|| config.folder().join("ledger"));
        let key = key(config.folder())?;
        let public_key = hex(key.public_key().as_ref());
        let counters = Arc::new(Counters::default());
        let (queue, taken) = sync_channel(QUEUE_MAX);
        let open = Arc::default();
        let writing = (0 < *one_in).then(|| {
            let mut files = Files {
                folder: folder.clone(),
                files_max: *files,
                file_size: file_size.0,
                key,
                counters: counters.clone(),
                clock,
                ledger: Ledger::new(steering, 0),
                open: None,
                shown: Arc::clone(&open),
                unsealed: 0,
                is_failing: false,
            };
            std::thread::spawn(move || files.run(&taken))
        });
        Ok(Self {
            one_in: *one_in,
            folder,
            public_key,
            counters,
            queue,
            writing: Mutex::new(writing),
            open,
        })
    }

    /// The draw of a session whose decisions are kept.
    pub(crate) fn keeps(&self, session: &Session) -> Option<[u8; 8]> {
        if self.one_in == 0 {
            return None;
        }
        Some(session.draw()).filter(|draw| keeps(*draw, self.one_in))
    }

    /// Keeps a decision, or counts it if too many wait. O(1).
    pub(crate) fn take(&self, taken: Taken) {
        match self.queue.try_send(Message::Taken(Box::new(taken))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counters.dropped.count();
            }
        }
    }

    /// Writes what waits, and the last block. It takes as long as a write of a few MiB.
    pub(crate) fn close(&self) {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(writing) = writing else { return };
        if self.queue.send(Message::End).is_err() || writing.join().is_err() {
            tracing::error!("the thread of the ledger has panicked");
        }
    }

    /// The files that there are, oldest first.
    pub(crate) fn shown(&self) -> io::Result<LedgerOut> {
        let mut files = Vec::new();
        for number in numbers(&self.folder)? {
            let name = file_name(number);
            let Ok(metadata) = fs::metadata(self.folder.join(&name)) else { continue };
            let open_len = self.open_len(number);
            let bytes = open_len.unwrap_or(metadata.len());
            files.push(LedgerFile { name, bytes, open: open_len.is_some() });
        }
        Ok(LedgerOut { one_in: self.one_in, public_key: self.public_key.clone(), files })
    }

    /// A file, by the name that [`Decisions::shown`] gives; none if there is none.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        // Nothing but a number goes into a path.
        let Some(number) = number_of(name) else { return Ok(None) };
        match fs::read(self.folder.join(file_name(number))) {
            Ok(mut bytes) => {
                // A block that is being written is not whole.
                let whole = self.open_len(number).map_or(bytes.len(), |len| Bytes(len).as_usize());
                bytes.truncate(whole);
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Decisions {
    /// Bytes of whole blocks, if the file is the one that is written to.
    fn open_len(&self, number: u64) -> Option<u64> {
        let open = *self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.filter(|(file, _)| *file == number).map(|(_, len)| len)
    }
}

/// The files as their one writer has them.
struct Files {
    folder: PathBuf,
    files_max: usize,
    file_size: Bytes,
    key: Ed25519KeyPair,
    counters: Arc<Counters>,
    clock: Clock,
    ledger: Ledger,
    /// None before the first block of a file.
    open: Option<File>,
    /// The same for those who read.
    shown: Arc<Mutex<Open>>,
    /// Decisions that wait for their seal.
    unsealed: u64,
    /// The last block could not be written: that was said.
    is_failing: bool,
}

impl Files {
    fn run(&mut self, taken: &Receiver<Message>) {
        self.begin();
        let mut sealed = Instant::now();
        loop {
            let next = match taken.try_recv() {
                Err(TryRecvError::Empty) if self.ledger.is_idle() => {
                    let next = taken.recv().unwrap_or(Message::End);
                    sealed = Instant::now();
                    Some(next)
                }
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Message::End),
                Ok(next) => Some(next),
            };
            let is_over = matches!(next, Some(Message::End));
            match next {
                Some(Message::Taken(taken)) => self.put(&taken),
                Some(Message::End) => {}
                // Woken for each decision, it would cost more than all that it does.
                None => std::thread::sleep(REST),
            }
            let is_full = self.file_size <= self.ledger.len() || self.ledger.is_full();
            if is_over {
                if !self.ledger.is_empty() {
                    self.seal(true);
                }
                return;
            }
            let is_due = SEAL_EVERY <= sealed.elapsed();
            if is_full || SEAL_AT <= self.ledger.waiting() || is_due {
                sealed = Instant::now();
                if !self.ledger.is_idle() {
                    self.seal(is_full);
                }
            }
        }
    }

    /// The first file of this process comes after those that there are.
    fn begin(&mut self) {
        let last = numbers(&self.folder).ok().and_then(|all| all.last().copied());
        self.ledger = Ledger::new(*self.ledger.config(), last.map_or(0, |last| last + 1));
    }

    fn put(&mut self, taken: &Taken) {
        let near = taken.routes.locate(&taken.client).sites;
        self.ledger.put(&Decision {
            kind: taken.kind,
            at: self.clock.unix(),
            draw: taken.draw,
            plain: taken.plain,
            version: &taken.version,
            view: &taken.view,
            near: &near,
            among: taken.among.as_deref(),
            list: &taken.list,
        });
        self.unsealed += 1;
    }

    /// Adds a block to the file. If that fails the file is left as it is, and the next block begins
    /// another one.
    fn seal(&mut self, is_last: bool) {
        let number = self.ledger.file();
        let sign = |hash: &[u8; ledger::HASH_LEN]| {
            let signature = self.key.sign(&ledger::message(hash));
            signature.as_ref().try_into().expect("Ed25519 signatures have 64 bytes")
        };
        let block = self.ledger.seal(self.clock.unix(), is_last, sign);
        let count = std::mem::take(&mut self.unsealed);
        match self.write(number, &block, is_last) {
            Ok(()) => {
                self.counters.logged.add(count);
                self.is_failing = false;
                self.show(number, Bytes::of(block.len()), is_last);
            }
            Err(error) => {
                self.show(number, Bytes(0), true);
                self.counters.lost.add(count);
                if !self.is_failing {
                    let folder = self.folder.display();
                    tracing::warn!(%folder, %error, "the ledger cannot be written: is there room?");
                }
                self.is_failing = true;
                self.open = None;
                self.ledger = Ledger::new(*self.ledger.config(), number + 1);
            }
        }
    }

    /// So much more of a file is whole, or it is not written to any more.
    fn show(&self, number: u64, more: Bytes, is_last: bool) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shown.filter(|(file, _)| *file == number).map_or(0, |(_, len)| len);
        *shown = (!is_last).then_some((number, before + more.0));
    }

    fn write(&mut self, number: u64, block: &[u8], is_last: bool) -> io::Result<()> {
        let file = match &mut self.open {
            Some(file) => file,
            closed @ None => {
                fs::create_dir_all(&self.folder)?;
                prune(&self.folder, self.files_max)?;
                let path = self.folder.join(file_name(number));
                let file =
                    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
                closed.insert(file)
            }
        };
        file.write_all(block)?;
        if is_last {
            file.sync_all()?;
            self.open = None;
        }
        Ok(())
    }
}

/// Removes the oldest files, so that there is room for one more.
fn prune(folder: &Path, files_max: usize) -> io::Result<()> {
    let all = numbers(folder)?;
    for number in all.iter().take((all.len() + 1).saturating_sub(files_max)) {
        fs::remove_file(folder.join(file_name(*number)))?;
    }
    Ok(())
}

/// The numbers of the files in a folder, in their order; none if there is no folder.
fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(entry?.file_name().to_str().and_then(number_of));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn file_name(number: u64) -> String {
    format!("{number:010}.ledger")
}

fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".ledger")?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}

/// The key that seals, which seals nothing else. Made on the first start.
fn key(state: &Path) -> Result<Ed25519KeyPair, SecretError> {
    let text = match KEY.read(state)? {
        Some(text) => text,
        None => {
            let text = hex(&random::<32>());
            KEY.write(state, &text)?;
            text
        }
    };
    let mut seed = [0; 32];
    if !parse_hex(text.trim(), &mut seed) {
        return Err(KEY.damaged(state, "32 bytes in hex are wanted"));
    }
    Ok(Ed25519KeyPair::from_seed_unchecked(&seed).expect("any 32 bytes are a seed"))
}

const KEY: SecretFile = SecretFile {
    name: "ledger.key",
    exposed: "delete it, and start again: files of before cannot be told from forged ones",
    damaged: "delete it, and start again: seals of before are not known then",
};

/// Decisions that may wait: a second of 10,000 playbacks begun, at about 1 KiB each. A full queue
/// drops the newest.
const QUEUE_MAX: usize = 8192;

/// How long the thread rests when the queue is empty and a block waits for its seal; the queue has
/// room for 800,000 a second. With neither, it sleeps until a decision comes.
const REST: Duration = Duration::from_millis(10);

/// A block is sealed after this, or when it has grown to `SEAL_AT`: a seal costs some 30 µs.
const SEAL_EVERY: Duration = Duration::from_secs(1);
const SEAL_AT: Bytes = Bytes::kib(64);

#[cfg(test)]
mod tests {
    use super::*;

    const LISTS: steering::Config =
        steering::Config { pathways_min: 2, pathways_max: 4, explains: false };

    #[test]
    fn the_oldest_files_go_and_the_newest_stay() {
        let folder = tempfile::tempdir().unwrap();
        for number in [3, 4, 12, 13] {
            fs::write(folder.path().join(file_name(number)), b"").unwrap();
        }
        fs::write(folder.path().join("notes"), b"").unwrap();
        prune(folder.path(), 3).unwrap();
        assert_eq!(numbers(folder.path()).unwrap(), [12, 13], "there is room for one more");
        prune(folder.path(), 3).unwrap();
        assert_eq!(numbers(folder.path()).unwrap(), [12, 13]);
        assert!(folder.path().join("notes").exists(), "that is not ours");
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_written_again_when_it_can() {
        let (place, decisions) = opened("");
        let folder = place.path().join("state/ledger");
        fs::write(&folder, b"in the way").unwrap();
        decisions.take(taken());
        let lost = || decisions.counters.lost.value();
        while lost() == 0 {
            std::thread::yield_now();
        }
        fs::remove_file(&folder).unwrap();
        decisions.take(taken());
        decisions.close();
        assert_eq!((lost(), decisions.counters.logged.value()), (1, 1));
        let shown = decisions.shown().unwrap();
        assert_eq!(shown.files.len(), 1);
        assert!(!shown.files[0].open);
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_a_full_file_is_followed_by_another() {
        let (_place, decisions) = opened("file_size = \"64 KiB\"\nfiles = 2");
        let count = 6 * QUEUE_MAX;
        for _ in 0..count {
            decisions.take(taken());
        }
        decisions.close();
        decisions.take(taken());
        let Counters { logged, dropped, lost } = &*decisions.counters;
        let all = logged.value() + dropped.value() + lost.value();
        assert_eq!((lost.value(), all), (0, Bytes::of(count).0 + 1), "each is counted once");
        assert!(0 < dropped.value(), "one came after the end");
        let files = decisions.shown().unwrap().files;
        assert_eq!(files.len(), 2, "{files:?}");
        let [first, second] =
            [&files[0], &files[1]].map(|file| decisions.read(&file.name).unwrap().unwrap());
        let open = |bytes| ledger::open(bytes, false, |_, _| true).unwrap();
        let (first, second) = (open(&first), open(&second));
        assert_eq!((second.file, second.before), (first.file + 1, first.hash));
    }

    fn opened(settings: &str) -> (tempfile::TempDir, Decisions) {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        fs::create_dir(&state).unwrap();
        let file = place.path().join("control.toml");
        fs::write(&file, format!("state = {state:?}\n[ledger]\n{settings}")).unwrap();
        let config = config::Config::load(&file, std::iter::empty()).unwrap();
        (place, Decisions::open(&config, LISTS, Clock::start()).unwrap())
    }

    fn taken() -> Taken {
        let view = Arc::<FleetView>::default();
        Taken {
            kind: Kind::Begun,
            draw: [7; 8],
            plain: false,
            client: "10.0.0.0/24".parse().unwrap(),
            version: "film-1".parse().unwrap(),
            view,
            routes: routes::Table::default(),
            among: None,
            list: RankedList::default(),
        }
    }
}
