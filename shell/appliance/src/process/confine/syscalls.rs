//! Which system calls the process may make (seccomp).
//!
//! Three filters, each of which can only refuse more:
//!
//! ```text
//! the list      what is not in it is answered ENOSYS, as by a kernel that has no such call:
//!               libraries know that answer and do without
//! alarms        what only an intruder calls: the process ends (SIGSYS)
//! close_rings   once a thread has its ring, or needs none: no new ones
//! ```
//!
//! What is done through a ring is no system call and passes all of this. So each ring is made for
//! seven operations (`uring::Ring`), and nobody can make another.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

/// Why system calls are not restricted.
#[derive(Debug, thiserror::Error)]
pub enum SyscallError {
    #[error("cannot restrict system calls on this processor: {0}")]
    Build(#[from] BackendError),
    #[error("cannot restrict system calls: {0}")]
    Apply(#[from] seccompiler::Error),
}

/// Conditions on the arguments of one call; all must hold.
type Rule = Vec<SeccompCondition>;

/// Allowed whatever the arguments: what strace shows of the demo, of the tests and of an installed
/// appliance, and the same calls as libraries of other versions make them.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // The ring of a worker; until `close_rings`, to make it.
    libc::SYS_io_uring_enter, libc::SYS_io_uring_setup, libc::SYS_io_uring_register,
    // Files. Which, is Landlock's to say.
    libc::SYS_openat, libc::SYS_close, libc::SYS_read, libc::SYS_write, libc::SYS_readv,
    libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_lseek, libc::SYS_fstat,
    libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_statfs, libc::SYS_fstatfs,
    libc::SYS_getdents64, libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_ftruncate,
    libc::SYS_fallocate, libc::SYS_flock, libc::SYS_fcntl, libc::SYS_renameat,
    libc::SYS_renameat2, libc::SYS_unlinkat, libc::SYS_mkdirat, libc::SYS_readlinkat,
    libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_fchmod, libc::SYS_fchmodat,
    libc::SYS_getcwd,
    // Connections, in and out. Not `bind`: all ports are bound before.
    libc::SYS_listen, libc::SYS_accept4, libc::SYS_connect, libc::SYS_shutdown,
    libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg, libc::SYS_recvfrom,
    libc::SYS_recvmsg, libc::SYS_recvmmsg, libc::SYS_getsockopt, libc::SYS_setsockopt,
    libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_ppoll, libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_eventfd2, libc::SYS_pipe2,
    // Memory. Not executable: see `conditional`.
    libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk, libc::SYS_membarrier,
    // Threads, waiting, signals to itself.
    libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity, libc::SYS_exit,
    libc::SYS_exit_group, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn, libc::SYS_sigaltstack, libc::SYS_restart_syscall,
    libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_clock_gettime,
    libc::SYS_clock_getres, libc::SYS_gettimeofday,
    // What it may know of itself and of the machine.
    libc::SYS_getpid, libc::SYS_gettid, libc::SYS_getppid, libc::SYS_getuid, libc::SYS_geteuid,
    libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getrusage, libc::SYS_uname,
    libc::SYS_getrandom,
    // More of these filters.
    libc::SYS_seccomp,
];

/// The same by their older names, which aarch64 never had.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_HERE: &[c_long] = &[
    libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink,
    libc::SYS_rename, libc::SYS_unlink, libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_chmod,
    libc::SYS_poll, libc::SYS_epoll_wait, libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[];

/// Nobody calls these by mistake.
#[rustfmt::skip]
const ALARMS: &[c_long] = &[
    libc::SYS_execve, libc::SYS_execveat, libc::SYS_ptrace, libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev, libc::SYS_kexec_load, libc::SYS_init_module,
    libc::SYS_finit_module, libc::SYS_delete_module, libc::SYS_bpf, libc::SYS_mount,
    libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_unshare, libc::SYS_setns,
    libc::SYS_setuid, libc::SYS_setgid, libc::SYS_setresuid, libc::SYS_setresgid,
    libc::SYS_setgroups, libc::SYS_capset, libc::SYS_keyctl, libc::SYS_add_key,
    libc::SYS_userfaultfd, libc::SYS_perf_event_open, libc::SYS_open_by_handle_at,
    libc::SYS_mknodat, libc::SYS_reboot, libc::SYS_settimeofday, libc::SYS_clock_settime,
];

/// Restricts this thread and those that it starts.
pub(super) fn restrict() -> Result<(), SyscallError> {
    apply_filter(&the_list()?)?;
    apply_filter(&alarms()?)?;
    Ok(())
}

fn the_list() -> Result<BpfProgram, BackendError> {
    let always = ALLOWED.iter().chain(ALLOWED_HERE).map(|call| (*call, Vec::new()));
    let mut rules: BTreeMap<c_long, Vec<Rule>> = always.collect();
    rules.extend(conditional()?);
    let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    filter(rules, unknown, SeccompAction::Allow)
}

fn alarms() -> Result<BpfProgram, BackendError> {
    let rules = ALARMS.iter().map(|call| (*call, Vec::new())).collect();
    filter(rules, SeccompAction::Allow, SeccompAction::KillProcess)
}

/// From here on, this thread and those that it starts make no ring. Without effect on those that
/// there are.
pub fn close_rings() -> Result<(), SyscallError> {
    let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_register];
    let rules = calls.map(|call| (call, Vec::new())).into();
    let refuse = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    apply_filter(&filter(rules, SeccompAction::Allow, refuse)?)?;
    Ok(())
}

fn filter(
    rules: BTreeMap<c_long, Vec<Rule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let mut table = BTreeMap::new();
    for (call, conditions) in rules {
        let rules: Result<_, _> = conditions.into_iter().map(SeccompRule::new).collect();
        table.insert(call, rules?);
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(table, otherwise, matched, arch)?.try_into()
}

/// Calls that are allowed with some arguments only.
fn conditional() -> Result<BTreeMap<c_long, Vec<Rule>>, BackendError> {
    let (write, exec) = (bits(libc::PROT_WRITE), bits(libc::PROT_EXEC));
    let thread = bits(libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND);
    let mut rules: BTreeMap<c_long, Vec<Rule>> = BTreeMap::new();
    let mut allow = |call, rule| rules.entry(call).or_default().push(rule);
    // Memory that is written is never run, and none becomes runnable later. What is left is
    // libraries, which the C library loads to find addresses.
    allow(libc::SYS_mmap, vec![masked(2, exec, 0)?]);
    allow(libc::SYS_mmap, vec![masked(2, write | exec, exec)?]);
    allow(libc::SYS_mprotect, vec![masked(2, exec, 0)?]);
    // Threads and no processes. clone3 has its flags in memory, where no filter sees them: the C
    // library takes clone where there is no clone3.
    allow(libc::SYS_clone, vec![masked(0, thread, thread)?]);
    // TCP, the agent, and UDP for names.
    for (family, kind) in [
        (libc::AF_INET, libc::SOCK_STREAM),
        (libc::AF_INET6, libc::SOCK_STREAM),
        (libc::AF_UNIX, libc::SOCK_STREAM),
        (libc::AF_INET, libc::SOCK_DGRAM),
        (libc::AF_INET6, libc::SOCK_DGRAM),
    ] {
        let kind = masked(1, SOCKET_KIND, bits(kind))?;
        allow(libc::SYS_socket, vec![equal(0, bits(family))?, kind]);
    }
    for request in [libc::FIONBIO, libc::FIONREAD, libc::TCGETS] {
        allow(libc::SYS_ioctl, vec![equal(1, request)?]);
    }
    for option in [
        libc::PR_SET_NAME,
        libc::PR_GET_NAME,
        libc::PR_SET_VMA,
        libc::PR_SET_NO_NEW_PRIVS,
        PR_GET_AUXV,
    ] {
        allow(libc::SYS_prctl, vec![equal(0, bits(option))?]);
    }
    // Limits are read and not set; the only process that is aborted is this one.
    allow(libc::SYS_prlimit64, vec![equal(2, 0)?]);
    allow(libc::SYS_tgkill, vec![equal(0, u64::from(std::process::id()))?]);
    Ok(rules)
}

/// What the kernel told the process at its start (linux/prctl.h, since 6.4): rustix asks for it.
const PR_GET_AUXV: i32 = 0x4155_5856;

/// What of `socket`'s second argument is the kind; the rest are flags (SOCK_TYPE_MASK of Linux).
const SOCKET_KIND: u64 = 0xf;

fn equal(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, value)
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, BackendError> {
    let compared = SeccompCmpOp::MaskedEq(mask);
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, compared, value)
}

fn bits(value: i32) -> u64 {
    u64::from(value.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;
    const NO_SUCH_CALL: u32 = 0x0005_0000 + 38;

    /// What the kernel does for a call, by running its program: the classic BPF that seccompiler
    /// makes is loads, comparisons with jumps, masks and returns.
    fn answer(program: &BpfProgram, call: c_long, arguments: &[u64]) -> u32 {
        let mut data = Vec::new();
        data.extend(u32::try_from(call).unwrap().to_le_bytes());
        let audit_arch: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
        data.extend(audit_arch.to_le_bytes());
        data.extend(0_u64.to_le_bytes());
        data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
        data.resize(64, 0);
        let (mut at, mut a) = (0, 0_u32);
        loop {
            let step = &program[at];
            at += 1;
            let taken = match step.code {
                0x20 => {
                    let from = usize::try_from(step.k).unwrap();
                    a = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
                    continue;
                }
                0x54 => {
                    a &= step.k;
                    continue;
                }
                0x06 => return step.k,
                0x05 => {
                    at += usize::try_from(step.k).unwrap();
                    continue;
                }
                0x15 => a == step.k,
                0x25 => a > step.k,
                0x35 => a >= step.k,
                other => panic!("no such step: {other:#x}"),
            };
            at += usize::from(if taken { step.jt } else { step.jf });
        }
    }

    fn check(call: c_long, arguments: &[u64], expected: u32) {
        let answers = [the_list().unwrap(), alarms().unwrap()]
            .map(|program| answer(&program, call, arguments));
        // The kernel takes the answer of highest precedence: as a signed number, the smallest.
        let answer = answers.into_iter().min_by_key(|answer| answer.cast_signed()).unwrap();
        assert_eq!(answer, expected, "call {call} with {arguments:x?}: {answer:#x}");
    }

    #[test]
    fn what_only_an_intruder_calls_ends_the_process() {
        for call in [libc::SYS_execve, libc::SYS_ptrace, libc::SYS_process_vm_writev] {
            check(call, &[], KILL);
        }
        ALARMS.iter().for_each(|call| check(*call, &[], KILL));
        let forgotten = ALARMS.iter().find(|call| ALLOWED.contains(call));
        assert_eq!(forgotten, None, "allowed and an alarm");
    }

    #[test]
    fn what_is_not_in_the_list_does_not_exist() {
        for call in [libc::SYS_bind, libc::SYS_kill, libc::SYS_clone3, libc::SYS_symlinkat, 100_000]
        {
            check(call, &[], NO_SUCH_CALL);
        }
        check(libc::SYS_openat, &[], ALLOW);
        check(libc::SYS_io_uring_enter, &[], ALLOW);
    }

    #[test]
    fn sockets_are_tcp_udp_or_local() {
        let socket = |family: i32, kind: i32, expected| {
            let flags = bits(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
            check(libc::SYS_socket, &[bits(family), bits(kind) | flags], expected);
        };
        socket(libc::AF_INET6, libc::SOCK_STREAM, ALLOW);
        socket(libc::AF_UNIX, libc::SOCK_STREAM, ALLOW);
        socket(libc::AF_INET, libc::SOCK_DGRAM, ALLOW);
        socket(libc::AF_INET, libc::SOCK_RAW, NO_SUCH_CALL);
        socket(libc::AF_PACKET, libc::SOCK_RAW, NO_SUCH_CALL);
        socket(libc::AF_NETLINK, libc::SOCK_RAW, NO_SUCH_CALL);
        socket(libc::AF_VSOCK, libc::SOCK_STREAM, NO_SUCH_CALL);
    }

    #[test]
    fn memory_is_written_or_run_and_processes_are_not_made() {
        let (read, write, exec) =
            (bits(libc::PROT_READ), bits(libc::PROT_WRITE), bits(libc::PROT_EXEC));
        check(libc::SYS_mmap, &[0, 1, read | write], ALLOW);
        check(libc::SYS_mmap, &[0, 1, read | exec], ALLOW);
        check(libc::SYS_mmap, &[0, 1, write | exec], NO_SUCH_CALL);
        check(libc::SYS_mprotect, &[0, 1, read], ALLOW);
        check(libc::SYS_mprotect, &[0, 1, read | exec], NO_SUCH_CALL);
        let thread = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
        check(libc::SYS_clone, &[bits(thread)], ALLOW);
        check(libc::SYS_clone, &[bits(libc::CLONE_VM | libc::CLONE_VFORK)], NO_SUCH_CALL);
        check(libc::SYS_clone, &[bits(libc::CLONE_NEWUSER)], NO_SUCH_CALL);
    }

    #[test]
    fn signals_and_limits_are_its_own() {
        let own = u64::from(std::process::id());
        check(libc::SYS_tgkill, &[own, 1, 6], ALLOW);
        check(libc::SYS_tgkill, &[own + 1, 1, 9], NO_SUCH_CALL);
        check(libc::SYS_prlimit64, &[0, 7, 0, 4096], ALLOW);
        check(libc::SYS_prlimit64, &[0, 7, 4096, 0], NO_SUCH_CALL);
    }
}
