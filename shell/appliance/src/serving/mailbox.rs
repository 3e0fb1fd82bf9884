//! How other threads speak to a worker: a bounded queue and an eventfd that wakes its ring.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use model::expected::FirstBlocks;
use model::extent::DriveIndex;
use model::units::Nanos;
use model::update::Update;
use rustix::event::{EventfdFlags, eventfd};

use crate::serving::clients::Word;
use crate::serving::listen::Listener;

/// Letters that wait. A sender blocks when there are so many; only storage threads send many, and
/// they may wait for a worker, never the other way round.
const LETTERS_MAX: usize = 4096;

/// Something for a worker.
#[derive(Debug)]
pub enum Letter {
    /// There is more or less to serve.
    Update(Update),
    /// The directory of a drive that is used again.
    Directory(DriveIndex, Arc<OwnedFd>),
    /// Blocks that viewers are expected to want.
    Expected(Arc<[FirstBlocks]>),
    /// What the site's other appliances need to know or to have done.
    Site(Word),
    /// Write down how the responses go that are under way.
    Incidents,
    /// Accept connections from these too.
    Listen(Vec<Listener>),
    /// Be done within this time.
    Stop(Nanos),
}

/// The writing end; any thread.
#[derive(Clone, Debug)]
pub struct Sender {
    letters: SyncSender<Letter>,
    bell: Arc<OwnedFd>,
}

/// The worker's end.
#[derive(Debug)]
pub struct Mailbox {
    letters: Receiver<Letter>,
    bell: Arc<OwnedFd>,
}

/// A mailbox and its writing end.
pub fn mailbox() -> std::io::Result<(Sender, Mailbox)> {
    let (sender, receiver) = sync_channel(LETTERS_MAX);
    let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
    Ok((Sender { letters: sender, bell: bell.clone() }, Mailbox { letters: receiver, bell }))
}

impl Sender {
    /// Delivers a letter and wakes the worker; waits while the box is full. A worker that has
    /// ended takes none, which is as good as delivered.
    pub fn send(&self, letter: Letter) {
        self.put(letter);
        self.ring();
    }

    /// The same, and lets the worker sleep unless the box is full: to wake it is a system call, and
    /// one is enough for all that come together. The last is followed by `ring`.
    pub fn put(&self, letter: Letter) {
        if let Err(TrySendError::Full(letter)) = self.letters.try_send(letter) {
            self.ring();
            let _ = self.letters.send(letter);
        }
    }

    /// Wakes the worker.
    pub fn ring(&self) {
        // It fails only if the counter would overflow, and then the bell is ringing already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl Mailbox {
    /// What to poll.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Silences the bell; call before taking letters.
    pub fn silence(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// Rings the bell that was silenced: there may be more letters.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// The next letter, if one is there.
    pub fn take(&self) -> Option<Letter> {
        self.letters.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the bell was rung since it was silenced.
    fn rung(mailbox: &Mailbox) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&mailbox.bell, &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }

    #[test]
    fn letters_that_come_together_wake_the_worker_once() {
        let (sender, mailbox) = mailbox().unwrap();
        (0..100).for_each(|_| sender.put(Letter::Incidents));
        assert_eq!(rung(&mailbox), 0);
        sender.ring();
        assert_eq!(rung(&mailbox), 1);
        assert_eq!(std::iter::from_fn(|| mailbox.take()).count(), 100);
    }

    #[test]
    fn who_finds_the_box_full_wakes_the_worker_and_waits() {
        let (sender, mailbox) = mailbox().unwrap();
        (0..LETTERS_MAX).for_each(|_| sender.put(Letter::Incidents));
        let late = std::thread::spawn(move || sender.put(Letter::Stop(Nanos(7))));
        while rung(&mailbox) == 0 {
            std::thread::yield_now();
        }
        let mut last = None;
        while !matches!(last, Some(Letter::Stop(Nanos(7)))) {
            last = mailbox.take().or(last);
        }
        late.join().unwrap();
    }
}
