//! The way out for lines. Their reader may be slow, or stopped: that holds nobody up for long.
//!
//! ```text
//! line ──> room within 100 ms? ──> written
//!             │ no
//!             └──> dropped, and so are those after it, at once, until there is room again:
//!                  then a line says how many are missing
//! ```
//!
//! Without it a journal whose disk hangs stops a thread with its next line, and with it all whom
//! that thread keeps waiting. A log in a file on a disk that hangs does so still: a file always
//! says that it has room.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// For a journal that is only busy. Once in a stop: whoever comes next does not wait.
const PATIENCE: Duration = Duration::from_millis(100);

/// What has room for something has room for this: a page of a pipe (pipe(7)), and a part of what a
/// socket must have free before it says so.
const PART_LEN: usize = 4096;

/// Takes lines, each in one `write`, and never fails.
#[derive(Debug)]
pub(crate) struct Outlet<F> {
    to: F,
    /// Lines dropped since the last that was written.
    lost: u64,
    /// The last was not written to its end.
    is_torn: bool,
}

impl<F: AsFd + Write> Outlet<F> {
    /// To a pipe, a socket, a terminal or a file.
    pub(crate) fn new(to: F) -> Self {
        Self { to, lost: 0, is_torn: false }
    }

    /// True if all of it was taken.
    fn give(&mut self, text: &[u8], patience: Duration) -> bool {
        let end: &[u8] = if self.is_torn { b"\n" } else { b"" };
        let text = [end, text].concat();
        for (index, part) in text.chunks(PART_LEN).enumerate() {
            if !self.has_room(patience) || self.to.write_all(part).is_err() {
                self.is_torn |= index != 0;
                return false;
            }
            self.is_torn = false;
        }
        true
    }

    fn has_room(&self, within: Duration) -> bool {
        let timeout = Timespec::try_from(within).expect("a part of a second");
        let mut fds = [PollFd::new(&self.to, PollFlags::OUT)];
        loop {
            match poll(&mut fds, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(count) => return count != 0,
                // Writing says what is wrong.
                Err(_) => return true,
            }
        }
    }
}

impl<F: AsFd + Write> Write for Outlet<F> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut patience = PATIENCE;
        if self.lost != 0 {
            patience = Duration::ZERO;
            let note =
                format!("{} lines of the log are missing here: nobody took them\n", self.lost);
            if self.give(note.as_bytes(), patience) {
                (self.lost, patience) = (0, PATIENCE);
            }
        }
        if self.lost != 0 || !self.give(line, patience) {
            self.lost += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, Read as _};
    use std::sync::mpsc;
    use std::time::Instant;

    const LINES: usize = 1000;

    /// Writes lines of this length that nobody takes; then somebody does, and one more is written.
    fn taken_late(len: usize) -> (Vec<String>, u64) {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut outlet = while_nobody_reads(&reader, writer, len);
        let lost = outlet.lost;
        let all = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        let began = Instant::now();
        while outlet.lost != 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "there is room again");
            std::thread::yield_now();
            outlet.write_all(b"after\n").unwrap();
        }
        drop(outlet);
        (all.join().unwrap().lines().map(str::to_owned).collect(), lost)
    }

    fn while_nobody_reads(_: &PipeReader, to: PipeWriter, len: usize) -> Outlet<PipeWriter> {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let mut outlet = Outlet::new(to);
            let line = format!("{}\n", "x".repeat(len));
            (0..LINES).for_each(|_| outlet.write_all(line.as_bytes()).unwrap());
            done.send(outlet).unwrap();
        });
        is_done.recv_timeout(Duration::from_secs(60)).expect("nobody waits for whoever reads")
    }

    #[test]
    fn a_log_that_nobody_takes_holds_nobody_up_and_says_what_is_missing() {
        let (lines, lost) = taken_late(999);
        let written = lines.iter().filter(|line| line.len() == 999).count();
        assert_eq!(u64::try_from(LINES - written), Ok(lost));
        assert!(60 < written && lost != 0, "a pipe has room for 64 KiB");
        let note = &lines[written];
        assert!(note.ends_with("lines of the log are missing here: nobody took them"), "{note}");
        assert_eq!(lines.last().unwrap(), "after");
    }

    #[test]
    fn a_line_that_was_taken_in_part_is_ended_before_the_next() {
        let (lines, _) = taken_late(50_000);
        assert_eq!(lines[0].len(), 50_000);
        assert!((1..50_000).contains(&lines[1].len()), "torn");
        assert!(lines[2].contains("are missing here"), "{}", lines[2]);
        assert_eq!(lines.last().unwrap(), "after");
    }
}
