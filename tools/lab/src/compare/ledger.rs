//! Where CPU time goes: what two servers spend on each kind of work, row by row.
//!
//! ```text
//! a stack, from its innermost function outwards: the first that a row claims decides
//!     tcp_sendmsg_locked > _copy_from_iter      -> copies into the kernel
//!     tls::..::seal > memcpy                    -> records of TLS: helpers are their caller's
//!     nothing claimed                           -> rest
//! (samples of a row / all samples) x (CPU s/GB of its side) ──> rows that add up to the whole
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::flame::{self, Profile, Shape};

/// A kind of work, and whose functions do it.
struct Kind {
    name: &'static str,
    /// Beginnings of the kernel's functions, without leading underscores; spaces between them.
    kernel: &'static str,
    /// Parts of the paths of programs' functions, with spaces between them.
    program: &'static str,
}

/// A function that two rows claim is the first one's.
const KINDS: [Kind; 11] = [
    Kind {
        name: "encryption",
        kernel: "",
        program: "aes_gcm gcm128 gcm_ ghash aesni vaes AEAD_ _init_IV",
    },
    Kind {
        name: "handshakes",
        kernel: "",
        program: "rustls x25519 p256 curve25519 sha256 sha512 hkdf tls::h",
    },
    Kind { name: "records of TLS", kernel: "", program: "tls:: seal:: uring::cache" },
    Kind {
        name: "log and counters",
        kernel: "ksys_write vfs_write",
        program: "request_log journal:: tracing metrics counters",
    },
    Kind {
        name: "HTTP and tokens",
        kernel: "",
        program: "http1:: httparse playback:: ed25519 worker::answer ::request",
    },
    Kind {
        name: "pacing and timers",
        kernel: "tcp_get_info do_tcp_getsockopt do_tcp_setsockopt sk_setsockopt",
        program: "worker::pace worker::depth worker::timer tcp_info bound_unsent",
    },
    Kind {
        name: "reads, blocks in memory",
        kernel: "io_read blk bio_ submit_bio virtblk nvme iomap_ xfs_ ext4",
        program: "worker::hot Ring::buffer ideal::blocks iosched:: store:: blake3",
    },
    Kind {
        name: "copies into the kernel",
        kernel: "copy_from_ copy_user check_object_size check_heap_object",
        program: "",
    },
    Kind {
        name: "pages and buffers",
        kernel: "alloc_pages alloc_frozen alloc_skb free_frozen free_unref free_pages \
                 get_page rmqueue kmem_cache kmalloc kfree skb_release skb_defer_free \
                 skb_page_frag sk_page_frag clear_page handle_mm_fault asm_exc_page_fault",
        program: "",
    },
    Kind {
        name: "TCP in the kernel",
        kernel: "tcp_ ip_ inet skb_ sk_ sock_ lock_sock release_sock net napi \
                 process_backlog dev_ loopback_xmit validate_xmit qdisc",
        program: "",
    },
    Kind {
        name: "system calls, waiting",
        kernel: "do_syscall entry_SYSCALL x64_sys sys_ syscall ep_ do_epoll io_ schedule \
                 finish_task fdget exit_to_user",
        program: "uring:: rustix:: syscall epoll",
    },
];

const REST: &str = "rest";

/// What both sides spend on a kind of work, in CPU seconds per GB.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    name: &'static str,
    ours: f64,
    ideal: f64,
    /// Ours less the other's.
    difference: f64,
}

/// Where a side's CPU time went, and how much it was, in CPU seconds per GB.
pub(crate) type Side<'a> = (&'a Profile, f64);

/// The number of the row that claims a stack (that of `REST` is the last), and where in the stack
/// the function stands that decides.
fn kind(stack: &[String]) -> (usize, usize) {
    let claimed = stack.iter().enumerate().skip(1).rev().find_map(|(at, function)| {
        KINDS.iter().position(|kind| kind.claims(function)).map(|number| (number, at))
    });
    claimed.unwrap_or((KINDS.len(), 1))
}

impl Kind {
    fn claims(&self, function: &str) -> bool {
        match function.strip_suffix(flame::KERNEL) {
            Some(name) => {
                let name = name.trim_start_matches('_');
                self.kernel.split_whitespace().any(|start| name.starts_with(start))
            }
            None => self.program.split_whitespace().any(|part| function.contains(part)),
        }
    }
}

fn name(number: usize) -> &'static str {
    KINDS.get(number).map_or(REST, |kind| kind.name)
}

/// One for each kind of work, ours first; they add up to what the sides spend.
pub(crate) fn rows(sides: [Side<'_>; 2]) -> Vec<Row> {
    let spent = sides.map(|side| {
        let mut spent = [0.0; KINDS.len() + 1];
        for stack in &side.0.stacks {
            spent[kind(stack).0] += of_a_sample(side);
        }
        spent
    });
    let row = |number| {
        let [ours, ideal] = [spent[0][number], spent[1][number]];
        Row { name: name(number), ours, ideal, difference: ours - ideal }
    };
    (0..=KINDS.len()).map(row).collect()
}

fn of_a_sample((profile, cpu_s_per_gb): Side<'_>) -> f64 {
    cpu_s_per_gb / u32::try_from(profile.stacks.len()).map_or(f64::INFINITY, f64::from)
}

/// For people: nothing if there are no rows.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    if rows.is_empty() {
        return text;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{:<26}{:>8}{:>8}{:>12}", "CPU s/GB", "ours", "ideal", "difference");
    for row in rows {
        let Row { name, ours, ideal, difference } = row;
        let _ = writeln!(text, "{name:<26}{ours:>8.4}{ideal:>8.4}{difference:>+12.4}");
    }
    text
}

/// A function, what both sides spend in itself, and what it calls.
#[derive(Debug, Default)]
struct Frame {
    own: [f64; 2],
    calls: BTreeMap<String, Self>,
}

/// Draws the difference into the file `path`: the rows, and on each the part of its stacks that
/// both may have in common, which is the kernel's, or what the row's function calls. A box is as
/// wide as the side that spends more, red where that is ours and blue where it is the other.
pub(crate) fn draw(sides: [Side<'_>; 2], title: &str, path: &Path) -> Result<()> {
    let title = format!("{title}, CPU s/GB; red: ours spends more, blue: the other does");
    flame::draw(&tree(sides).shape("all").0, &title, path)
}

fn tree(sides: [Side<'_>; 2]) -> Frame {
    let mut root = Frame::default();
    for (number, side) in sides.into_iter().enumerate() {
        for stack in &side.0.stacks {
            let (row, decides) = kind(stack);
            let in_kernel = stack.iter().position(|name| name.ends_with(flame::KERNEL));
            let from = in_kernel.map_or(decides, |kernel| kernel.min(decides));
            let mut at = root.calls.entry(name(row).to_owned()).or_default();
            for function in stack.iter().skip(from) {
                at = at.calls.entry(function.clone()).or_default();
            }
            at.own[number] += of_a_sample(side);
        }
    }
    root
}

impl Frame {
    /// As a box, and what both sides spend in it and on it.
    fn shape(&self, name: &str) -> (Shape, [f64; 2]) {
        let (mut width, mut spent) = (self.own[0].max(self.own[1]), self.own);
        let mut upon = Vec::new();
        for (name, call) in &self.calls {
            let (shape, called) = call.shape(name);
            width += shape.width;
            spent = [spent[0] + called[0], spent[1] + called[1]];
            upon.push(shape);
        }
        let difference = spent[0] - spent[1];
        let note = format!("ours {:.4}, ideal {:.4}, {difference:+.4} s/GB", spent[0], spent[1]);
        let colour = colour(difference / width);
        (Shape { name: name.to_owned(), note, width, colour, upon }, spent)
    }
}

/// From blue (-1) by white to red (1).
fn colour(share: f64) -> String {
    let percent = 100.0 - 50.0 * share.abs().min(1.0);
    let hue = if share < 0.0 { 210 } else { 5 };
    format!("hsl({hue},85%,{percent:.0}%)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(stacks: &[&str]) -> Profile {
        let stack = |text: &&str| text.split(" > ").map(str::to_owned).collect();
        Profile { stacks: stacks.iter().map(stack).collect() }
    }

    const OURS: [&str; 5] = [
        "worker-0 > appliance::run > carry_out > __sys_sendto [k] > tcp_sendmsg [k] > \
         _copy_from_iter [k]",
        "worker-0 > appliance::run > tls::Session::seal > aws_lc_aes_gcm_encrypt",
        "worker-0 > appliance::run > tls::Session::seal > aws_lc_aes_gcm_encrypt",
        "worker-0 > appliance::run > worker::pace::due",
        "worker-0 > appliance::run",
    ];
    const IDEAL: [&str; 2] = [
        "lab > lab::ideal::serve > __sys_sendto [k] > tcp_sendmsg [k] > _copy_from_iter [k]",
        "lab > lab::ideal::serve > tls::Session::seal > aws_lc_aes_gcm_encrypt",
    ];

    #[test]
    fn the_innermost_function_that_a_row_claims_decides() {
        for (stack, wanted) in [
            (OURS[0], "copies into the kernel"),
            (OURS[1], "encryption"),
            (OURS[3], "pacing and timers"),
            (OURS[4], REST),
            ("w > a > tls::Session::seal > memcpy", "records of TLS"),
            ("w > a > rustls::server::hs > memcpy", "handshakes"),
            ("w > a > __sys_sendto [k] > tcp_write_xmit [k] > read_tsc [k]", "TCP in the kernel"),
            ("w > a > tcp_sendmsg_locked [k] > __alloc_skb [k]", "pages and buffers"),
            ("w > a > tcp_sendmsg [k] > __rmqueue_pcplist [k] > x [k]", "pages and buffers"),
            ("w > a > entry_SYSCALL_64 [k] > do_syscall_64 [k]", "system calls, waiting"),
            ("w > a > do_syscall_64 [k] > __io_read [k] > dio [k]", "reads, blocks in memory"),
            // The kernel's names are not the programs', nor the other way round.
            ("w > a > tcp_write_xmit", REST),
            ("w > a > tls::x [k]", REST),
            // A thread's name is no function.
            ("tls::thread > a", REST),
            ("w", REST),
            // Two rows claim this one.
            ("w > a > appliance::request_log::Log::line", "log and counters"),
        ] {
            let stack = &profile(&[stack]).stacks[0];
            assert_eq!(name(kind(stack).0), wanted, "{stack:?}");
        }
    }

    #[test]
    fn rows_add_up_to_what_each_side_spends() {
        let (ours, ideal) = (profile(&OURS), profile(&IDEAL));
        let rows = rows([(&ours, 0.5), (&ideal, 0.3)]);
        assert_eq!(rows.len(), KINDS.len() + 1);
        let sum = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(sum(|row| row.ours), 0.5) && close(sum(|row| row.ideal), 0.3), "{rows:?}");
        assert!(close(sum(|row| row.difference), 0.2), "{rows:?}");
        let row = |name| rows.iter().find(|row| row.name == name).unwrap();
        assert!(close(row("encryption").ours, 0.2) && close(row("encryption").ideal, 0.15));
        assert!(close(row(REST).difference, 0.1), "what nothing claims is told, too");
        let text = table(&rows);
        let line = "encryption                  0.2000  0.1500     +0.0500\n";
        assert!(text.contains(line), "{text}");
        assert_eq!(table(&[]), "");
        let json = serde_json::to_value(&rows[0]).unwrap();
        for key in ["name", "ours", "ideal", "difference"] {
            assert!(json.get(key).is_some(), "{json}");
        }
    }

    #[test]
    fn the_picture_compares_what_both_have_and_leaves_nothing_out() {
        let (ours, ideal) = (profile(&OURS), profile(&IDEAL));
        let (shape, spent) = tree([(&ours, 0.5), (&ideal, 0.3)]).shape("all");
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(spent[0], 0.5) && close(spent[1], 0.3), "{spent:?}");
        // 0.15 of the ideal's in copies, all else is ours.
        assert!(close(shape.width, 0.2 + 0.15 + 0.1 + 0.1), "{shape:?}");
        let copies = &shape.upon[0];
        assert_eq!(copies.name, "copies into the kernel");
        assert_eq!(copies.note, "ours 0.1000, ideal 0.1500, -0.0500 s/GB");
        let names: Vec<&str> = copies.upon.iter().map(|call| &*call.name).collect();
        assert_eq!(names, ["__sys_sendto [k]"], "programs have only the kernel in common");
        assert_eq!(shape.upon[1].upon[0].name, "aws_lc_aes_gcm_encrypt");
        assert_eq!((colour(1.0), colour(0.0)), ("hsl(5,85%,50%)".into(), "hsl(5,85%,100%)".into()));
        assert_eq!(colour(-0.5), "hsl(210,85%,75%)");
    }

    #[test]
    fn every_row_claims_something_and_has_a_name_of_its_own() {
        for (at, kind) in KINDS.iter().enumerate() {
            assert!(!kind.kernel.is_empty() || !kind.program.is_empty(), "{}", kind.name);
            assert!(KINDS[..at].iter().all(|other| other.name != kind.name) && kind.name != REST);
        }
    }
}
