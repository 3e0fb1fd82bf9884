//! The ring: operations in, typed completions out.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::register::Restriction;
use io_uring::types::{DestinationSlot, Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use model::handle::{BufferId, FileSlot};
use model::units::{Bytes, Nanos};

use crate::arena::Arena;

/// Sizes of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Submission queue entries. When it is full it is submitted at once, so this bounds a batch.
    pub entries: u32,
    /// Buffers for direct reads.
    pub buffer_count: u16,
    pub buffer_len: Bytes,
    /// Files that can be open at once.
    pub file_slots: u16,
    /// Whether files are read past the page cache.
    pub direct_reads: bool,
    /// Most opens and reads at once that may block in the kernel. Each of these has a thread of the
    /// kernel then, which is made when it is needed; with fewer threads, those that never end would
    /// keep the others from being tried (the kernel's own limit is four for each CPU).
    pub blocking_max: u32,
}

/// The caller's name for an operation; comes back with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

/// An error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

/// Why a ring cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    #[error(
        "io_uring: {step} failed: {error}; Linux 6.1 or later is needed, with io_uring allowed"
    )]
    Setup {
        /// The step of the setup that failed.
        step: &'static str,
        error: io::Error,
    },
}

/// How long a turn may wait for the first completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    No,
    /// So long at most.
    For(Nanos),
}

/// A watch that goes on, to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch(u64);

/// An operation that ended.
#[derive(Debug)]
pub enum Completion {
    /// A connection arrived, or accepting failed. `more` is false when accepting has ended.
    Accepted {
        token: Token,
        socket: Result<OwnedFd, Errno>,
        /// More may come without asking again.
        more: bool,
    },
    /// Something came to a socket that is watched.
    Readable {
        token: Token,
        /// The other side will send no more, or the watch is over: no later completion says so.
        ended: bool,
        /// The watch goes on.
        more: bool,
    },
    /// A socket has room for more, or its connection failed.
    Room { token: Token, result: Result<(), Errno> },
    /// All of the data was taken by the kernel, or the connection failed.
    Sent {
        token: Token,
        /// The memory, for the next one.
        data: Vec<u8>,
        result: Result<(), Errno>,
    },
    /// A file is open in its slot, or is not.
    Opened { token: Token, slot: FileSlot, result: Result<(), Errno> },
    /// A drive answered; the buffer may be looked at again.
    Read {
        token: Token,
        buffer: BufferId,
        /// Bytes read: fewer than asked at the end of a file.
        result: Result<usize, Errno>,
    },
    /// A file slot is free again.
    FileClosed { slot: FileSlot },
}

/// The memory that the ring keeps for an operation until the kernel is done with it.
#[derive(Debug)]
enum Kept {
    Vacant { next: usize },
    Accept { token: Token },
    Watch { token: Token },
    Unwatch,
    Room { token: Token },
    Send { token: Token, data: Vec<u8>, len: u32 },
    Open { token: Token, slot: FileSlot, _name: CString, _directory: Arc<OwnedFd> },
    Read { token: Token, buffer: BufferId },
    CloseFile { slot: FileSlot },
}

/// Longest wait of a turn while the kernel has no room for all that was started.
const TRY_AGAIN: Nanos = Nanos::millis(5);

/// End of the list of vacant entries.
const NO_ENTRY: usize = usize::MAX;

/// One thread's ring: single issuer, completions run when asked for (measured: 5 to 15 % cheaper).
/// A ring is used on the thread that made it.
pub struct Ring {
    ring: IoUring<squeue::Entry>,
    arena: Arena,
    kept: Vec<Kept>,
    vacant: usize,
    in_flight: usize,
    /// What the kernel had no room for when it was started, in order. Invariant: at most
    /// `in_flight`.
    waiting: VecDeque<squeue::Entry>,
    direct_reads: bool,
    /// Of each slot: what is done with its file may block whoever asks.
    blocks: Vec<bool>,
}

impl Ring {
    /// A ring with its buffers and file table registered.
    pub fn new(config: Config) -> Result<Self, RingError> {
        let setup = |step| move |error| RingError::Setup { step, error };
        let ring = IoUring::<squeue::Entry>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_r_disabled()
            .setup_cqsize(config.entries * 4)
            .build(config.entries)
            .map_err(setup("setup"))?;
        let arena =
            Arena::new(config.buffer_count, config.buffer_len).map_err(setup("mapping buffers"))?;
        let submitter = ring.submitter();
        // SAFETY: the arena outlives the registration: `Drop` of Ring waits for reads or leaks it.
        unsafe { submitter.register_buffers(&arena.iovecs()) }
            .map_err(setup("registering buffers (may so much memory be locked? LimitMEMLOCK=)"))?;
        submitter
            .register_files_sparse(u32::from(config.file_slots))
            .map_err(setup("registering file slots (is RLIMIT_NOFILE high enough?)"))?;
        // The second is for sockets and the like: 0 leaves it as it is.
        submitter
            .register_iowq_max_workers(&mut [config.blocking_max.max(1), 0])
            .map_err(setup("allowing threads for what blocks"))?;
        submitter.register_restrictions(&mut restrictions()).map_err(setup("restricting"))?;
        submitter.register_enable_rings().map_err(setup("enabling"))?;
        // How many operations are under way at once is a matter of chance: memory for as many as
        // the ring takes is there from the beginning, and more comes with more connections.
        let entries = usize::try_from(config.entries).expect("an index fits");
        let (kept, direct_reads) = (Vec::with_capacity(entries), config.direct_reads);
        let blocks = vec![false; usize::from(config.file_slots)];
        let (vacant, in_flight) = (NO_ENTRY, 0);
        let waiting = VecDeque::with_capacity(entries);
        Ok(Self { ring, arena, kept, vacant, in_flight, waiting, direct_reads, blocks })
    }

    /// Accepts connections until it fails or the listener is shut down.
    pub fn accept(&mut self, listener: BorrowedFd<'_>, token: Token) {
        let fd = Fd(listener.as_raw_fd());
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let entry = opcode::AcceptMulti::new(fd).flags(flags).build();
        self.start(Kept::Accept { token }, entry);
    }

    /// Reports whenever something comes to `socket`, once for all that came before a turn. What was
    /// reported is not reported again: a caller that does not read all must remember that there is
    /// more. Cheaper than to ask again for each request (measured: 2 % of one for 64 KiB).
    pub fn watch(&mut self, socket: BorrowedFd<'_>, token: Token) -> Watch {
        let flags = libc::POLLIN | libc::POLLRDHUP;
        let flags = u32::from(flags.unsigned_abs());
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), flags).multi(true).build();
        Watch(self.start(Kept::Watch { token }, entry))
    }

    /// Ends a watch; its last completion comes in a later turn.
    pub fn unwatch(&mut self, watch: Watch) {
        let entry = opcode::AsyncCancel::new(watch.0).build();
        self.start(Kept::Unwatch, entry);
    }

    /// Reports once when `socket` has room for more: when half of what it may hold unsent has gone.
    pub fn await_room(&mut self, socket: BorrowedFd<'_>, token: Token) {
        let flags = u32::from(libc::POLLOUT.unsigned_abs());
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), flags).build();
        self.start(Kept::Room { token }, entry);
    }

    /// Sends all of `data[part]`, however long the other side takes.
    pub fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        data: Vec<u8>,
        part: Range<usize>,
        token: Token,
    ) {
        let part = &data[part];
        let len = u32::try_from(part.len()).expect("what is sent at once is far below 4 GiB");
        let entry = opcode::Send::new(Fd(socket.as_raw_fd()), part.as_ptr(), len)
            .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
            .build();
        // The heap block behind `data` stays where it is when the Vec moves.
        self.start(Kept::Send { token, data, len }, entry);
    }

    /// Opens `name` below `directory` for reading, into an empty slot. Where the file system
    /// `blocks` whoever asks until it answers, as FUSE does, a thread of the kernel asks. The
    /// directory stays open until it has: its number could be another's by then.
    pub fn open(
        &mut self,
        directory: Arc<OwnedFd>,
        name: CString,
        (slot, blocks): (FileSlot, bool),
        token: Token,
    ) {
        self.blocks[usize::from(slot.0)] = blocks;
        let target = DestinationSlot::try_from_slot_target(u32::from(slot.0))
            .expect("a u16 slot is below the kernel's limit");
        let direct = if self.direct_reads { libc::O_DIRECT } else { 0 };
        let entry = opcode::OpenAt::new(Fd(directory.as_raw_fd()), name.as_ptr())
            .flags(libc::O_RDONLY | direct | libc::O_NOATIME)
            .file_index(Some(target))
            .build()
            .flags(asked_by(blocks));
        // The heap block behind `name` stays where it is when the CString moves.
        self.start(Kept::Open { token, slot, _name: name, _directory: directory }, entry);
    }

    /// Closes the file in `slot`.
    pub fn close_file(&mut self, slot: FileSlot) {
        let entry = opcode::Close::new(Fixed(u32::from(slot.0))).build();
        self.start(Kept::CloseFile { slot }, entry);
    }

    /// Reads `len` bytes at `offset` into the buffer; all three aligned for direct I/O.
    pub fn read(
        &mut self,
        slot: FileSlot,
        offset: Bytes,
        len: Bytes,
        buffer: BufferId,
        token: Token,
    ) {
        assert!(len.as_usize() <= self.arena.buffer_len(), "a read fits its buffer");
        let address = self.arena.lend(buffer);
        let len = u32::try_from(len.0).expect("bounded by the buffer's length");
        let piece = self.arena.piece(buffer);
        let entry = opcode::ReadFixed::new(Fixed(u32::from(slot.0)), address, len, piece)
            .offset(offset.0)
            .build()
            .flags(asked_by(self.blocks[usize::from(slot.0)]));
        self.start(Kept::Read { token, buffer }, entry);
    }

    /// The bytes that were read into the buffer. Panics while a read into it is under way.
    pub fn buffer(&self, buffer: BufferId) -> &[u8] {
        self.arena.bytes(buffer)
    }

    /// Operations under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Submits what was started, waits if asked and nothing is ready, and appends at most `most`
    /// completions. Enters the kernel once, which also runs the work it deferred; more often after
    /// the kernel had no room for all.
    pub fn turn(
        &mut self,
        wait: Wait,
        most: usize,
        out: &mut Vec<Completion>,
    ) -> Result<(), RingError> {
        let has_all = self.submit_waiting();
        let ready = !self.ring.completion().is_empty();
        let entered = match wait {
            Wait::For(span) if !ready => {
                let span = if has_all { span } else { span.min(TRY_AGAIN) };
                let whole = span.as_seconds();
                let nanos = u32::try_from(span.0 % 1_000_000_000).expect("below a billion");
                let timeout = Timespec::new().sec(whole).nsec(nanos);
                let args = SubmitArgs::new().timespec(&timeout);
                self.ring.submitter().submit_with_args(1, &args)
            }
            Wait::For(_) | Wait::No => self.ring.submit(),
        };
        match entered {
            Ok(_) => {}
            // Time is up, a signal came, or completions must be taken first: all are a turn's end.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) => {}
            Err(error) => return Err(RingError::Setup { step: "entering", error }),
        }
        for _ in 0..most {
            let Some(entry) = self.ring.completion().next() else { break };
            if let Some(completion) = self.finish(&entry) {
                out.push(completion);
            }
        }
        Ok(())
    }

    /// What waits for room goes to the kernel, as far as it takes it; true if that was all.
    fn submit_waiting(&mut self) -> bool {
        while let Some(entry) = self.waiting.front() {
            // SAFETY: as in `start`.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                self.waiting.pop_front();
            } else if !matches!(self.ring.submit(), Ok(1..)) {
                return false;
            }
        }
        true
    }

    /// Its name in the ring.
    fn start(&mut self, kept: Kept, entry: squeue::Entry) -> u64 {
        let index = if self.vacant == NO_ENTRY {
            self.kept.push(kept);
            self.kept.len() - 1
        } else {
            let index = self.vacant;
            let Kept::Vacant { next } = std::mem::replace(&mut self.kept[index], kept) else {
                unreachable!("the list of vacant entries holds vacant entries");
            };
            self.vacant = next;
            index
        };
        self.in_flight += 1;
        let name = u64::try_from(index).expect("an index is below 2^64");
        let entry = entry.user_data(name);
        // SAFETY: what the entry points to is in `kept` or in the arena until it completes; a
        // socket that was closed meanwhile is an error to the kernel, no danger.
        let is_full =
            !self.waiting.is_empty() || unsafe { self.ring.submission().push(&entry) }.is_err();
        if is_full {
            // The kernel takes the batch, or has no memory for it now (EAGAIN): then it is asked
            // again in the next turn, which says so if it is anything worse.
            self.waiting.push_back(entry);
            self.submit_waiting();
        }
        name
    }

    fn finish(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let index = usize::try_from(entry.user_data()).expect("it was an index");
        let more = cqueue::more(entry.flags());
        let result = u32::try_from(entry.result()).map_err(|_| Errno(-entry.result()));
        if more {
            return Some(match self.kept[index] {
                Kept::Accept { token } => {
                    Completion::Accepted { token, socket: result.map(own_socket), more }
                }
                Kept::Watch { token } => {
                    Completion::Readable { token, ended: is_end(result), more }
                }
                _ => unreachable!("only accepting and watching go on"),
            });
        }
        let vacant = Kept::Vacant { next: self.vacant };
        let kept = std::mem::replace(&mut self.kept[index], vacant);
        self.vacant = index;
        self.in_flight -= 1;
        match kept {
            Kept::Accept { token } => {
                Some(Completion::Accepted { token, socket: result.map(own_socket), more })
            }
            Kept::Watch { token } => {
                Some(Completion::Readable { token, ended: is_end(result), more })
            }
            Kept::Unwatch => None,
            Kept::Room { token } => {
                Some(Completion::Room { token, result: result.and_then(has_room) })
            }
            Kept::Send { token, data, len } => {
                // A peer that resets half-way leaves a count, not an error.
                let whole = |sent| if sent == len { Ok(()) } else { Err(Errno(libc::EPIPE)) };
                Some(Completion::Sent { token, data, result: result.and_then(whole) })
            }
            Kept::Open { token, slot, .. } => {
                Some(Completion::Opened { token, slot, result: result.map(|_| ()) })
            }
            Kept::Read { token, buffer } => {
                self.arena.take_back(buffer);
                let result = result.map(|len| usize::try_from(len).expect("a buffer's length"));
                Some(Completion::Read { token, buffer, result })
            }
            Kept::CloseFile { slot } => Some(Completion::FileClosed { slot }),
            Kept::Vacant { .. } => unreachable!("an operation completes once"),
        }
    }
}

/// All that this ring will ever do. A filter of system calls does not see what goes through a ring,
/// so the kernel is told to refuse the rest: sockets, connections, renames, and registering more.
fn restrictions() -> [Restriction; 8] {
    let flags = squeue::Flags::FIXED_FILE.union(squeue::Flags::ASYNC).bits();
    [
        Restriction::sqe_op(opcode::AcceptMulti::CODE),
        Restriction::sqe_op(opcode::PollAdd::CODE),
        Restriction::sqe_op(opcode::AsyncCancel::CODE),
        Restriction::sqe_op(opcode::Send::CODE),
        Restriction::sqe_op(opcode::OpenAt::CODE),
        Restriction::sqe_op(opcode::Close::CODE),
        Restriction::sqe_op(opcode::ReadFixed::CODE),
        Restriction::sqe_flags_allowed(flags),
    ]
}

/// What poll saw means that no more will come.
fn is_end(seen: Result<u32, Errno>) -> bool {
    let ends = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
    seen.is_ok_and(|seen| seen & u32::from(ends.unsigned_abs()) != 0)
}

/// A connection that was reset has room, too, as poll says it.
fn has_room(seen: u32) -> Result<(), Errno> {
    let failed = libc::POLLHUP | libc::POLLERR;
    let has_failed = seen & u32::from(failed.unsigned_abs()) != 0;
    if has_failed { Err(Errno(libc::EPIPE)) } else { Ok(()) }
}

/// An operation that may block its thread is done by one of the kernel's.
fn asked_by(blocks: bool) -> squeue::Flags {
    if blocks { squeue::Flags::ASYNC } else { squeue::Flags::empty() }
}

fn own_socket(fd: u32) -> OwnedFd {
    let fd = i32::try_from(fd).expect("descriptors are small");
    // SAFETY: the kernel made this descriptor for us in the accept that just completed.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

impl Drop for Ring {
    /// Gives operations half a second to end. What has not by then keeps its memory for good: the
    /// process is about to exit, and the kernel must not find that memory in other use.
    fn drop(&mut self) {
        let mut done = Vec::new();
        for _ in 0..50 {
            let holds = |kept: &Kept| matches!(kept, Kept::Send { .. } | Kept::Open { .. });
            if !self.arena.is_lent() && !self.kept.iter().any(holds) {
                return;
            }
            if self.turn(Wait::For(Nanos::millis(10)), usize::MAX, &mut done).is_err() {
                break;
            }
        }
        std::mem::forget(std::mem::take(&mut self.kept));
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn ring() -> Ring {
        let buffer_len = Bytes::kib(64);
        let (entries, buffer_count, file_slots) = (8, 4, 4);
        let (direct_reads, blocking_max) = (true, 8);
        let config =
            Config { entries, buffer_count, buffer_len, file_slots, direct_reads, blocking_max };
        Ring::new(config).unwrap()
    }

    fn next(ring: &mut Ring) -> Completion {
        let mut out = Vec::new();
        for _ in 0..100 {
            ring.turn(Wait::For(Nanos::millis(100)), 1, &mut out).unwrap();
            if let Some(completion) = out.pop() {
                return completion;
            }
        }
        panic!("nothing completed in ten seconds");
    }

    fn directory(path: &std::path::Path) -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open(path).unwrap().into())
    }

    #[test]
    fn a_file_is_opened_read_past_its_end_and_closed() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let content: Vec<u8> = (0..10_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        std::fs::write(dir.path().join("f"), &content).unwrap();
        let mut ring = ring();
        let slot = FileSlot(2);
        ring.open(directory(dir.path()), c"f".to_owned(), (slot, true), Token(1));
        let opened = next(&mut ring);
        assert!(matches!(opened, Completion::Opened { result: Ok(()), token: Token(1), .. }));
        ring.read(slot, Bytes(4096), Bytes(8192), BufferId(3), Token(2));
        let Completion::Read { result, buffer, .. } = next(&mut ring) else { panic!() };
        assert_eq!(result, Ok(10_000 - 4096));
        assert_eq!(ring.buffer(buffer)[..10_000 - 4096], content[4096..]);
        ring.close_file(slot);
        assert!(matches!(next(&mut ring), Completion::FileClosed { slot: FileSlot(2) }));
        assert_eq!(ring.in_flight(), 0);
    }

    #[test]
    fn a_full_socket_tells_when_half_of_it_has_gone_or_its_client() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        crate::bound_unsent(socket.as_fd(), Bytes::kib(256)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut ring = ring();
        ring.await_room(socket.as_fd(), Token(3));
        let is_room = |completion, wanted| match completion {
            Completion::Room { token, result } => (token, result) == (wanted, Ok(())),
            other => panic!("{other:?}"),
        };
        assert!(is_room(next(&mut ring), Token(3)), "it is empty");
        while socket.write(&[0; 65_536]).is_ok() {}
        ring.await_room(socket.as_fd(), Token(4));
        let mut out = Vec::new();
        ring.turn(Wait::For(Nanos::millis(50)), 1, &mut out).unwrap();
        assert!(out.is_empty(), "{out:?}");
        let reader =
            std::thread::spawn(move || client.read_exact(&mut vec![0; 1 << 18]).map(|()| client));
        assert!(is_room(next(&mut ring), Token(4)));
        let client = reader.join().unwrap().unwrap();
        let unsent = crate::tcp_info(socket.as_fd()).unwrap().unsent;
        assert!(unsent < Bytes::kib(128), "{unsent}");
        while socket.write(&[0; 65_536]).is_ok() {}
        ring.await_room(socket.as_fd(), Token(5));
        drop(client); // With bytes unread: a reset.
        let Completion::Room { token: Token(5), result } = next(&mut ring) else { panic!() };
        assert_eq!(result, Err(Errno(libc::EPIPE)), "a reset is no room");
        assert_eq!(ring.in_flight(), 0);
    }

    #[test]
    fn a_ring_refuses_what_it_was_not_made_for() {
        let mut ring = ring();
        let entry = opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build();
        ring.start(Kept::Watch { token: Token(1) }, entry);
        ring.ring.submit().unwrap();
        let refused = ring.ring.completion().next().unwrap();
        assert_eq!(refused.result(), -libc::EACCES);
        assert_eq!(ring.in_flight(), 1, "it came past `finish`");
        let again = ring.ring.submitter().register_files_sparse(1).unwrap_err();
        assert_eq!(again.raw_os_error(), Some(libc::EACCES));
    }

    #[test]
    fn what_is_missing_is_an_error_with_its_number() {
        let mut ring = ring();
        ring.open(
            directory("/".as_ref()),
            c"no such file".to_owned(),
            (FileSlot(0), false),
            Token(1),
        );
        let Completion::Opened { result, .. } = next(&mut ring) else { panic!() };
        assert_eq!(result, Err(Errno(libc::ENOENT)));
    }

    #[test]
    #[should_panic(expected = "the kernel has this buffer")]
    fn a_buffer_in_flight_cannot_be_looked_at() {
        let mut ring = ring();
        ring.read(FileSlot(0), Bytes(0), Bytes(4096), BufferId(0), Token(1));
        ring.buffer(BufferId(0));
    }

    #[test]
    fn connections_arrive_talk_and_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut ring = ring();
        ring.accept(listener.as_fd(), Token(1));
        let mut clients: Vec<TcpStream> = Vec::new();
        let mut sockets = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(address).unwrap());
            let Completion::Accepted { socket, more, .. } = next(&mut ring) else { panic!() };
            assert!(more);
            sockets.push(socket.unwrap());
        }
        let watch = ring.watch(sockets[0].as_fd(), Token(7));
        let seen = |ring: &mut Ring| match next(ring) {
            Completion::Readable { token: Token(7), ended, more } => (ended, more),
            other => panic!("{other:?}"),
        };
        clients[0].write_all(b"hello").unwrap();
        assert_eq!(seen(&mut ring), (false, true));
        clients[0].write_all(b"again, though nobody read").unwrap();
        assert_eq!(seen(&mut ring), (false, true));
        clients[0].write_all(b"and with the last bytes").unwrap();
        clients[0].shutdown(std::net::Shutdown::Write).unwrap();
        while seen(&mut ring) != (true, true) {}
        ring.unwatch(watch);
        while seen(&mut ring).1 {}

        let long = vec![5; 8 << 20];
        let len = long.len();
        ring.send(sockets[1].as_fd(), long, 1 << 20..len, Token(8));
        let client = clients.remove(1);
        let reader = std::thread::spawn(move || {
            let mut client = client;
            let mut received = vec![0; 7 << 20];
            client.read_exact(&mut received).map(|()| received.iter().all(|byte| *byte == 5))
        });
        let Completion::Sent { result, data, .. } = next(&mut ring) else { panic!() };
        assert_eq!((result, data.len()), (Ok(()), 8 << 20));
        assert!(reader.join().unwrap().unwrap());

        rustix::net::shutdown(&listener, rustix::net::Shutdown::Read).unwrap();
        let Completion::Accepted { socket, more, .. } = next(&mut ring) else { panic!() };
        assert!(socket.is_err() && !more);
    }

    #[test]
    fn data_that_was_not_all_taken_is_not_called_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let mut ring = ring();
        ring.send(socket.as_fd(), vec![5; 32 << 20], 0..32 << 20, Token(1));
        let mut out = Vec::new();
        ring.turn(Wait::No, 1, &mut out).unwrap();
        client.read_exact(&mut vec![0; 1 << 20]).unwrap();
        drop(client); // With bytes unread: a reset.
        let Completion::Sent { result, .. } = next(&mut ring) else { panic!() };
        assert!(result.is_err(), "{result:?}");
    }

    #[test]
    fn more_operations_than_entries_are_submitted_in_batches() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut ring = ring();
        for token in 0..100 {
            ring.watch(reader.as_fd(), Token(token));
        }
        writer.write_all(b"x").unwrap();
        let mut seen: Vec<u64> = (0..100)
            .map(|_| match next(&mut ring) {
                Completion::Readable { token, .. } => token.0,
                other => panic!("{other:?}"),
            })
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<u64>>());
    }

    #[test]
    fn a_directory_that_is_let_go_before_its_file_is_open_does_not_become_another() {
        for blocks in [false, true] {
            let [first, second] = [1, 2].map(|content| {
                let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
                std::fs::write(dir.path().join("f"), [content; 4096]).unwrap();
                dir
            });
            let mut ring = ring();
            let old = directory(first.path());
            let number = old.as_raw_fd();
            ring.open(old, c"f".to_owned(), (FileSlot(0), blocks), Token(1));
            // A drive is set aside, and another comes into use, in the same turn. Whoever else
            // opens something meanwhile gets a number that is free, too.
            let others: Vec<_> = (0..64).map(|_| directory(second.path())).collect();
            let is_open = !others.iter().any(|other| other.as_raw_fd() == number);
            let opened = next(&mut ring);
            assert!(matches!(opened, Completion::Opened { result: Ok(()), .. }), "{opened:?}");
            ring.read(FileSlot(0), Bytes(0), Bytes(4096), BufferId(0), Token(2));
            let Completion::Read { buffer, .. } = next(&mut ring) else { panic!() };
            assert_eq!((ring.buffer(buffer)[0], is_open), (1, true), "blocks: {blocks}");
        }
    }

    /// From now on the kernel has no memory for a batch that this thread hands over without waiting
    /// for anything (EAGAIN).
    fn refuse_batches() {
        const ENTER: u32 = 426;
        let [load, is, ret] = [libc::BPF_LD | libc::BPF_W, libc::BPF_JMP | libc::BPF_JEQ, 0x06]
            .map(|code| u16::try_from(code).unwrap());
        let load = load | u16::try_from(libc::BPF_ABS).unwrap();
        let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let refuse = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EAGAIN).unwrap();
        let mut steps = [
            step(load, 0, 0, 0),   // The number of the call.
            step(is, 0, 3, ENTER), // Another: allowed.
            step(load, 0, 0, 32),  // Its third argument: how many completions to wait for.
            step(is, 0, 1, 0),
            step(ret, 0, 0, refuse),
            step(ret, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let len = u16::try_from(steps.len()).unwrap();
        let program = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
        // SAFETY: the program and its steps live until the kernel has copied them.
        let set = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
    }

    #[test]
    fn what_the_kernel_has_no_memory_for_waits_and_keeps_its_order() {
        let thread = std::thread::spawn(|| {
            let (reader, mut writer) = io::pipe().unwrap();
            let mut ring = ring();
            refuse_batches();
            for token in 0..100 {
                ring.watch(reader.as_fd(), Token(token));
            }
            assert_eq!((ring.in_flight(), ring.waiting.len()), (100, 92));
            writer.write_all(b"x").unwrap();
            let seen: Vec<u64> = (0..100)
                .map(|_| match next(&mut ring) {
                    Completion::Readable { token, .. } => token.0,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(seen, (0..100).collect::<Vec<u64>>());
        });
        thread.join().unwrap();
    }
}
