//! The ledger of this process: decisions go through a bounded queue to a thread of its own, which
//! writes files of bounded size and number.
//!
//! ```text
//! request ── take ──> [ queue of QUEUE_MAX ] ──> thread: locate, put; each second, or at 64 KiB,
//!              └ full: counted, dropped              a sealed block ──> STATE/ledger/N.ledger
//!                                                                     ended ──> archive, if any
//! ```
//!
//! A request pays for a copy of some numbers and two pointers, and none of its memory is left for
//! the thread to free, but for a picture that was replaced meanwhile. Files are not flushed to the
//! drive block by block: what the last seconds decided is lost in a power cut, and the file has no
//! last block then.

mod archive;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use director::Snapshot;
use identity::secret_file::{SecretError, SecretFile};
use ledger::{Answered, Decision, Kind, Ledger, keeps};
use model::id::{AssetVersionId, hex, parse_hex};
use model::topology::Prefix;
use model::units::{Bytes, UnixSeconds};
use wire::v1::fleet::{LedgerFile, LedgerOut};

use crate::clock::Clock;
use crate::config;
use crate::members::authority::random;
use crate::metrics::Counter;
use crate::state::documents::{DocumentError, Documents};
use archive::Archive;

model::metrics! {
    /// What the thread does with decisions, in counters or numbers.
    pub(crate) struct LedgerCounts {
        /// Decisions that were written to the ledger.
        logged: Counter("decisions_logged_total"),
        /// Decisions that the ledger lacks because too many came at once.
        dropped: Counter("decisions_dropped_total"),
        /// Decisions that the ledger lacks because its files could not be written.
        lost: Counter("decisions_lost_total"),
        /// Files of the ledger that are in the archive.
        archived: Counter("ledger_files_archived_total"),
        /// Tries to bring a file of the ledger into the archive that came to nothing.
        archive_failed: Counter("ledger_archive_failed_total"),
        /// Files of the ledger that the archive lacks: they made room for newer ones before they
        /// could be brought there.
        unarchived: Counter("ledger_files_unarchived_total"),
    }
}

/// Requests count those that are dropped; the archive its copies, and what went without one while
/// it was copied; the thread all others.
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
    standing: Arc<Standing>,
    archive: Option<Arc<Archive>>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are large, and a box would be freed there"
)]
enum Message {
    Taken(Taken),
    /// There are no more.
    End,
}

/// What is known of the files by all who have to do with them. Held while a file is removed or
/// looked for, and not while one is read, written or copied.
#[derive(Debug, Default)]
struct Standing(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The file that is written to now, and how much of it is whole blocks; none before the first.
    open: Option<(u64, u64)>,
    /// Files below this number are written to no more.
    ended: u64,
    /// Of those, the ones below this are in the archive; none if there is no archive.
    archived: Option<u64>,
    /// It is being copied into the archive.
    copied: Option<u64>,
}

impl Standing {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// True of a file that should be in the archive, is not, and is on no way there.
    fn lacks(&self, number: u64) -> bool {
        self.archived.is_some_and(|below| below <= number) && self.copied != Some(number)
    }
}

/// Why the ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error(transparent)]
    Key(#[from] SecretError),
    #[error("[ledger] archive: {0}")]
    Archive(#[from] DocumentError),
}

/// A decision on its way to the thread.
pub(crate) struct Taken {
    pub(crate) kind: Kind,
    pub(crate) at: UnixSeconds,
    pub(crate) draw: [u8; 8],
    pub(crate) plain: bool,
    pub(crate) client: Prefix,
    pub(crate) version: AssetVersionId,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) answered: Answered,
}

impl Decisions {
    /// Starts the thread, with the next file. Without decisions to be kept there is none.
    pub(crate) fn open(
        config: &config::Config,
        steering: steering::Config,
        clock: Clock,
    ) -> Result<Self, LedgerError> {
        let config::Ledger { one_in, files, file_size, folder, archive, file_age } = &config.ledger;
        let folder = folder.clone().unwrap_or_else(|| config.folder().join("ledger"));
        let key = key(config.folder())?;
        let public_key = hex(key.public_key().as_ref());
        let counters = Arc::new(Counters::default());
        let (queue, taken) = sync_channel(if *one_in == 0 { 0 } else { QUEUE_MAX });
        let place = archive.as_ref().map(|place| Documents::open(place.0.clone(), &config.s3));
        let standing = Arc::new(Standing::default());
        let archive = place.transpose()?.flatten().map(|place| {
            let (folder, key, counters) = (folder.clone(), public_key.clone(), counters.clone());
            // A folder that hangs keeps the file that was on its way to it, and no second one.
            let place = place.with_turns(1);
            Arc::new(Archive::open(place, folder, key, counters, standing.clone()))
        });
        if *one_in == 0 {
            standing.known().ended = u64::MAX;
        }
        let writing = (0 < *one_in).then(|| {
            let mut files = Files {
                folder: folder.clone(),
                files_max: *files,
                file_size: file_size.0,
                key,
                counters: counters.clone(),
                clock,
                ledger: Ledger::new(steering, 0),
                file_age: archive.is_some().then(|| Duration::from_nanos(file_age.0.0)),
                began: Instant::now(),
                open: None,
                standing: standing.clone(),
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
            standing,
            archive,
        })
    }

    /// Brings files that have ended into the archive, if there is one.
    pub(crate) async fn archive(&self) {
        if let Some(archive) = &self.archive {
            archive.run().await;
        }
    }

    /// True if the decisions of a session with this draw are kept.
    pub(crate) fn keeps(&self, draw: [u8; 8]) -> bool {
        self.one_in != 0 && keeps(draw, self.one_in)
    }

    /// Keeps a decision, or counts it if too many wait. O(1).
    pub(crate) fn take(&self, taken: Taken) {
        match self.queue.try_send(Message::Taken(taken)) {
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
        let open = self.standing.known().open;
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
    /// A file that is as old is ended; none for any age.
    file_age: Option<Duration>,
    /// When the first decision of the file came.
    began: Instant,
    /// None before the first block of a file.
    open: Option<File>,
    /// What readers and the archive know of the files.
    standing: Arc<Standing>,
    /// Decisions that wait for their seal.
    unsealed: u64,
    /// The last block could not be written: that was said.
    is_failing: bool,
}

impl Files {
    fn run(&mut self, taken: &Receiver<Message>) {
        self.begin();
        let (mut sealed, mut looked) = (Instant::now(), 0);
        loop {
            let next = match taken.try_recv() {
                Err(TryRecvError::Empty) if self.ledger.is_idle() => {
                    let next = self.wait(taken);
                    sealed = Instant::now();
                    next
                }
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Message::End),
                Ok(next) => Some(next),
            };
            let (is_over, is_resting) = (matches!(next, Some(Message::End)), next.is_none());
            match next {
                Some(Message::Taken(taken)) => self.put(&taken),
                Some(Message::End) => {}
                // Woken for each decision, it would cost more than all that it does.
                None => std::thread::sleep(REST),
            }
            // A look at the clock would cost a tenth of a decision.
            looked = if is_resting { 0 } else { (looked + 1) % LOOK_EVERY };
            let is_full = self.file_size <= self.ledger.len() || self.ledger.is_full();
            let is_full = is_full || looked == 0 && self.age_left() == Some(Duration::ZERO);
            if is_over {
                if !self.ledger.is_empty() {
                    self.seal(true);
                }
                return;
            }
            let is_due = looked == 0 && SEAL_EVERY <= sealed.elapsed();
            if is_full || SEAL_AT <= self.ledger.waiting() || is_due {
                sealed = Instant::now();
                if !self.ledger.is_idle() || is_full {
                    self.seal(is_full);
                }
            }
        }
    }

    /// The next message; none if the file is old enough before one comes.
    fn wait(&self, taken: &Receiver<Message>) -> Option<Message> {
        let Some(left) = self.age_left() else {
            return Some(taken.recv().unwrap_or(Message::End));
        };
        match taken.recv_timeout(left) {
            Ok(next) => Some(next),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Message::End),
        }
    }

    /// How long the file may get more; none for any time, as while it has nothing.
    fn age_left(&self) -> Option<Duration> {
        let age = self.file_age.filter(|_| !self.ledger.is_empty())?;
        Some(age.saturating_sub(self.began.elapsed()))
    }

    /// The first file of this process comes after those that there are, and were.
    fn begin(&mut self) {
        let last = numbers(&self.folder).ok().and_then(|all| all.last().copied());
        let mut known = self.standing.known();
        // Also where somebody took them away: numbers of before are in the archive.
        let first = last.map_or(0, |last| last + 1).max(known.archived.unwrap_or(0));
        self.ledger = Ledger::new(*self.ledger.config(), first);
        known.ended = first;
    }

    fn put(&mut self, taken: &Taken) {
        if self.ledger.is_empty() {
            self.began = Instant::now();
        }
        let Taken { kind, at, draw, plain, ref client, ref version, .. } = *taken;
        let Snapshot { view, routes, .. } = &*taken.snapshot;
        let near = &routes.locate(client).sites;
        let answered = &taken.answered;
        self.ledger.put(&Decision { kind, at, draw, plain, version, view, near, answered });
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
        self.standing.known().ended = self.ledger.file();
    }

    /// So much more of a file is whole, or it is not written to any more.
    fn show(&self, number: u64, more: Bytes, is_last: bool) {
        let mut known = self.standing.known();
        let before = known.open.filter(|(file, _)| *file == number).map_or(0, |(_, len)| len);
        known.open = (!is_last).then_some((number, before + more.0));
    }

    fn write(&mut self, number: u64, block: &[u8], is_last: bool) -> io::Result<()> {
        let file = match &mut self.open {
            Some(file) => file,
            closed @ None => {
                fs::create_dir_all(&self.folder)?;
                let (known, counters) = (self.standing.known(), &self.counters);
                prune(&self.folder, self.files_max, |number| {
                    if known.lacks(number) {
                        counters.unarchived.count();
                    }
                })?;
                drop(known);
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
fn prune(folder: &Path, files_max: usize, removed: impl Fn(u64)) -> io::Result<()> {
    let all = numbers(folder)?;
    for number in all.iter().take((all.len() + 1).saturating_sub(files_max)) {
        fs::remove_file(folder.join(file_name(*number)))?;
        removed(*number);
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

/// Decisions that may wait: nearly a second of 10,000 playbacks begun, in 2 MiB that are there from
/// the start. A full queue drops the newest.
const QUEUE_MAX: usize = 8192;

/// How long the thread rests when the queue is empty and a block waits for its seal; the queue has
/// room for 800,000 a second. With neither, it sleeps until a decision comes.
const REST: Duration = Duration::from_millis(10);

/// So many decisions that come together are taken between two looks at the clock.
const LOOK_EVERY: u32 = 16;

/// A block is sealed after this, or when it has grown to `SEAL_AT`: a seal costs some 30 µs.
const SEAL_EVERY: Duration = Duration::from_secs(1);
const SEAL_AT: Bytes = Bytes::kib(64);

#[cfg(test)]
mod tests {
    use model::view::FleetView;
    use steering::RankedList;

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
        prune(folder.path(), 3, drop).unwrap();
        assert_eq!(numbers(folder.path()).unwrap(), [12, 13], "there is room for one more");
        prune(folder.path(), 3, drop).unwrap();
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
        let Counters { logged, dropped, lost, .. } = &*decisions.counters;
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

    #[tokio::test]
    async fn each_file_that_has_ended_is_in_the_archive_once_under_a_name_of_its_own() {
        let place = prepared("file_size = \"64 KiB\"");
        fs::create_dir(place.path().join("archive")).unwrap();
        let decisions = reopened(&place);
        assert!(!copies(&decisions).await, "nothing has ended");
        write_files(&decisions, 3);
        decisions.close();
        let files = decisions.shown().unwrap().files;
        let all = u64::try_from(files.len()).unwrap();
        assert!(3 < all, "the last one ended with the process: {files:?}");
        while copies(&decisions).await {}
        assert_eq!(decisions.counters.archived.value(), all);
        let archived = archived(&place, &decisions);
        for (file, (name, bytes)) in files.iter().zip(&archived) {
            assert!(name.starts_with(file.name.strip_suffix(".ledger").unwrap()), "{name}");
            assert_eq!(decisions.read(&file.name).unwrap().as_ref(), Some(bytes));
        }
        assert_eq!(archived.len(), files.len());

        let again = reopened(&place);
        assert!(!copies(&again).await, "a restart knows of it");
        again.close();
        fs::remove_file(place.path().join("state/ledger/archived")).unwrap();
        let again = reopened(&place);
        write_files(&again, 0);
        again.close();
        while copies(&again).await {}
        assert_eq!(again.counters.archived.value(), all + 1, "copied again");
        assert_eq!(self::archived(&place, &again).len(), files.len() + 1, "to the same names");
    }

    #[tokio::test]
    async fn with_the_archive_away_files_stay_as_far_as_there_is_room_and_the_rest_is_counted() {
        let place = prepared("file_size = \"64 KiB\"\nfiles = 3");
        let decisions = reopened(&place);
        write_files(&decisions, 2);
        let archive = decisions.archive.as_ref().unwrap();
        let reason = archive.copy_next().await.unwrap_err();
        assert!(reason.ends_with("archive/: there is no such folder"), "{reason}");
        let (oldest, _) = archive.next().unwrap().unwrap();
        write_files(&decisions, 6);
        decisions.close();
        let counted = || decisions.counters.unarchived.value();
        let before = counted();
        assert!(2 < before, "{before}");
        archive.end_copy(oldest, false);
        assert_eq!(counted(), before + 1, "who copied it counts it");
        assert_eq!(decisions.counters.archive_failed.value(), 2);
        fs::create_dir(place.path().join("archive")).unwrap();
        while copies(&decisions).await {}
        let ended = decisions.standing.known().ended;
        assert_eq!(counted() + decisions.counters.archived.value(), ended, "each is in one count");
        assert!(archived(&place, &decisions).len() >= 2);
        assert_eq!(decisions.counters.lost.value(), 0);
    }

    #[tokio::test]
    async fn two_processes_with_one_key_by_mistake_do_not_write_over_each_other() {
        let places = ["", ""].map(prepared);
        let key = places[0].path().join("state/ledger.key");
        let first = reopened(&places[0]);
        fs::copy(key, places[1].path().join("state/ledger.key")).unwrap();
        let archive = tempfile::tempdir().unwrap();
        let second = reopened(&places[1]);
        for (count, (place, decisions)) in (1..).zip(places.iter().zip([first, second])) {
            std::os::unix::fs::symlink(archive.path(), place.path().join("archive")).unwrap();
            (0..count).for_each(|_| decisions.take(taken()));
            decisions.close();
            while copies(&decisions).await {}
            assert_eq!(decisions.counters.archived.value(), 1);
        }
        let keys: Vec<_> = fs::read_dir(archive.path()).unwrap().collect();
        let [Ok(of_key)] = &keys[..] else { panic!("{keys:?}") };
        assert_eq!(fs::read_dir(of_key.path()).unwrap().count(), 2, "of number 0 both");
    }

    #[test]
    fn with_an_archive_a_file_that_is_old_ends_though_nothing_more_is_decided() {
        let place = prepared("");
        let file = place.path().join("control.toml");
        let mut config = config::Config::load(&file, std::iter::empty()).unwrap();
        config.ledger.file_age.0 = model::units::Nanos::millis(1200);
        let decisions = Decisions::open(&config, LISTS, Clock::start()).unwrap();
        decisions.take(taken());
        while decisions.standing.known().ended == 0 {
            std::thread::yield_now();
        }
        decisions.close();
        let [file] = &decisions.shown().unwrap().files[..] else { panic!("one file") };
        let bytes = decisions.read(&file.name).unwrap().unwrap();
        assert!(ledger::open(&bytes, false, |_, _| true).is_ok(), "it has a last block");
    }

    async fn copies(decisions: &Decisions) -> bool {
        decisions.archive.as_ref().unwrap().copy_next().await.unwrap()
    }

    /// Decides until so many more files have ended, and once more.
    fn write_files(decisions: &Decisions, count: u64) {
        let until = decisions.standing.known().ended + count;
        while decisions.standing.known().ended < until {
            (0..QUEUE_MAX / 2).for_each(|_| decisions.take(taken()));
        }
        decisions.take(taken());
    }

    fn archived(place: &tempfile::TempDir, decisions: &Decisions) -> Vec<(String, Vec<u8>)> {
        let folder = place.path().join("archive").join(&decisions.public_key);
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let mut all: Vec<_> = entries
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
            })
            .collect();
        all.sort();
        all
    }

    fn opened(settings: &str) -> (tempfile::TempDir, Decisions) {
        let place = prepared(settings);
        let file = place.path().join("control.toml");
        let text = fs::read_to_string(&file).unwrap();
        let text: String = text.split_inclusive('\n').filter(|l| !l.contains("archive")).collect();
        fs::write(file, text).unwrap();
        let decisions = reopened(&place);
        (place, decisions)
    }

    /// Settings with an archive, which is not there yet.
    fn prepared(settings: &str) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let [state, archive] = ["state", "archive"].map(|name| place.path().join(name));
        fs::create_dir(&state).unwrap();
        let settings = format!("state = {state:?}\n[ledger]\narchive = {archive:?}\n{settings}");
        fs::write(place.path().join("control.toml"), settings).unwrap();
        place
    }

    fn reopened(place: &tempfile::TempDir) -> Decisions {
        let file = place.path().join("control.toml");
        let config = config::Config::load(&file, std::iter::empty()).unwrap();
        Decisions::open(&config, LISTS, Clock::start()).unwrap()
    }

    fn taken() -> Taken {
        Taken {
            kind: Kind::Begun,
            at: UnixSeconds(9),
            draw: [7; 8],
            plain: false,
            client: "10.0.0.0/24".parse().unwrap(),
            version: "film-1".parse().unwrap(),
            snapshot: Arc::default(),
            answered: Answered::of(&FleetView::default(), &RankedList::default(), None),
        }
    }
}
