//! What other threads tell this one.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use model::drives::DriveIndex;
use model::units::Nanos;
use model::update::Update;
use uring::Token;
use worker::Event;

use super::{BELL, EventLoop};
use crate::serving::clients::Word;
use crate::serving::listen::Listener;
use crate::serving::mailbox::Letter;

/// Letters taken per turn.
const LETTERS_MAX: usize = 512;

impl EventLoop {
    pub(super) fn letters(&mut self, watched: bool) {
        self.mailbox.silence();
        let mut left = LETTERS_MAX;
        while 0 < left
            && let Some(letter) = self.mailbox.take()
        {
            left -= 1;
            self.counters.lives();
            match letter {
                Letter::Update(update) => {
                    if let Update::DriveSetAside { drive } = update {
                        // Whoever holds it open keeps it from being unmounted.
                        self.set_directory(drive, None);
                    }
                    self.event(Event::Update(update));
                }
                Letter::Directory(drive, directory) => self.set_directory(drive, Some(directory)),
                Letter::Expected(blocks) => self.event(Event::Expected(blocks)),
                Letter::Site(Word::Drain(base_url, addresses)) => {
                    self.event(Event::Drain { base_url: &base_url, addresses: &addresses });
                }
                Letter::Site(Word::Busy(busy)) => busy.answer(&self.worker.busy(&busy.addresses)),
                Letter::Incidents => self.event(Event::Incidents),
                Letter::Listen(listeners) => self.listen(listeners),
                Letter::Stop(within) => self.stop(within),
            }
        }
        if left == 0 {
            // The rest in the next turn: viewers have theirs in between.
            self.mailbox.ring();
        }
        if !watched {
            self.ring.watch(self.mailbox.bell(), BELL);
        }
    }

    fn set_directory(&mut self, drive: DriveIndex, directory: Option<Arc<OwnedFd>>) {
        if let Some(place) = self.drives.get_mut(drive.as_usize()) {
            *place = directory;
        }
    }

    pub(super) fn listen(&mut self, listeners: Vec<Listener>) {
        for listener in listeners {
            let token = Token(u64::try_from(self.listeners.len()).expect("listeners are few"));
            self.ring.accept(listener.socket.as_fd(), token);
            self.listeners.push(listener);
        }
    }

    fn stop(&mut self, within: Nanos) {
        self.stopping = true;
        for listener in &self.listeners {
            // Ends the ring's accept, and lets new connections go to whoever listens next.
            let _ = rustix::net::shutdown(&listener.socket, rustix::net::Shutdown::Read);
        }
        let deadline = self.clock.now().instant + within;
        self.event(Event::Stop { deadline });
    }
}
