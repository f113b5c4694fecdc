//! The system calls that a recorder needs.

use std::collections::BTreeMap;

use nix::libc::{self, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

use super::Needs;

/// Calls that are allowed whatever their arguments are.
const PLAIN: &[c_long] = &[
    // Files. Landlock decides which ones.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fchmod,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_umask,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads, and waiting for each other.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_gettid,
    libc::SYS_membarrier,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    // Signals to this process.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    // Clocks.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    // Sockets that are open.
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    // Who we are, and what the machine is.
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
];

/// What a server needs besides: to give files of the state folder to its owner, and to be told of
/// Ctrl-C.
const OF_SERVERS: &[c_long] = &[libc::SYS_fchown, libc::SYS_pipe2];

/// What looks names of other servers up.
const OF_RESOLVERS: &[c_long] = &[libc::SYS_bind, libc::SYS_connect, libc::SYS_sendmmsg];

/// Older names of some of these, which newer machines do not have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_accept,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Requests that `ioctl` may have: sizes of terminals, and whether a file blocks.
const IOCTLS: [u64; 5] =
    [libc::TCGETS, libc::TIOCGWINSZ, libc::FIONBIO, libc::FIONREAD, libc::FIOCLEX];
/// And for interfaces: all requests that have this in the second byte.
const OF_INTERFACES: u64 = 0x8900;
const SECOND_BYTE: u64 = 0xFF00;

/// The kernel's number; libc does not have it everywhere.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// A rule whose conditions all have to hold: the number of an argument, how it is compared, and
/// with what.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, seccompiler::BackendError> {
    rule_of(SeccompCmpArgLen::Dword, conditions)
}

/// The same for arguments of 32 or 64 bits.
fn rule_of(
    len: SeccompCmpArgLen,
    conditions: &[(u8, SeccompCmpOp, u64)],
) -> Result<SeccompRule, seccompiler::BackendError> {
    let each = |(number, op, value): &(u8, SeccompCmpOp, u64)| {
        SeccompCondition::new(*number, len.clone(), op.clone(), *value)
    };
    SeccompRule::new(conditions.iter().map(each).collect::<Result<_, _>>()?)
}

fn flag(value: i32) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn rules(needs: &Needs) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        PLAIN.iter().chain(OLDER).map(|&call| (call, Vec::new())).collect();
    // No executable memory.
    let execute = flag(libc::PROT_EXEC);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![rule(&[(2, MaskedEq(execute), 0)])?]);
    }
    // Threads, no processes. The newer call has its flags behind a pointer; without it, libraries
    // use the older one.
    let thread = flag(libc::CLONE_THREAD);
    rules.insert(libc::SYS_clone, vec![rule(&[(0, MaskedEq(thread), thread)])?]);
    // Limits are read, not set. The new values are behind a pointer, all of whose bits count.
    let null = rule_of(SeccompCmpArgLen::Qword, &[(2, Eq, 0)])?;
    rules.insert(libc::SYS_prlimit64, vec![null]);
    // Threads have names, and libraries read the auxiliary vector.
    let prctls = [rule(&[(0, Eq, flag(libc::PR_SET_NAME))])?, rule(&[(0, Eq, PR_GET_AUXV)])?];
    rules.insert(libc::SYS_prctl, prctls.into());
    // A process that aborts sends itself a signal.
    let own = u64::from(std::process::id());
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        rules.insert(call, vec![rule(&[(0, Eq, own)])?]);
    }
    let mut ioctls = Vec::new();
    for request in IOCTLS {
        ioctls.push(rule(&[(1, Eq, request)])?);
    }
    let mut families = Vec::new();
    if std::env::var_os("NOTIFY_SOCKET").is_some() {
        // To tell systemd when the recorder ends.
        families.push(libc::AF_UNIX);
    }
    if needs.interfaces {
        families.extend([libc::AF_PACKET, libc::AF_NETLINK]);
        ioctls.push(rule(&[(1, MaskedEq(SECOND_BYTE), OF_INTERFACES)])?);
        rules.insert(libc::SYS_bind, Vec::new());
    }
    if needs.state.is_some() {
        rules.extend(OF_SERVERS.iter().map(|&call| (call, Vec::new())));
    }
    if needs.resolves {
        families.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_UNIX]);
        rules.extend(OF_RESOLVERS.iter().map(|&call| (call, Vec::new())));
    }
    let mut sockets = Vec::new();
    for family in families {
        sockets.push(rule(&[(0, Eq, flag(family))])?);
    }
    if !needs.ports.is_empty() {
        // Landlock decides which ports.
        for family in [libc::AF_INET, libc::AF_INET6] {
            let stream = MaskedEq(0xF);
            sockets.push(rule(&[(0, Eq, flag(family)), (1, stream, flag(libc::SOCK_STREAM))])?);
        }
        rules.insert(libc::SYS_connect, Vec::new());
    }
    // A call with an empty list of rules would be allowed with any arguments.
    if !sockets.is_empty() {
        rules.insert(libc::SYS_socket, sockets);
    }
    rules.insert(libc::SYS_ioctl, ioctls);
    Ok(rules)
}

/// The program that the kernel runs for each call, and how many calls it allows; or why there is
/// none.
fn program(needs: &Needs) -> Result<(BpfProgram, usize), String> {
    let Ok(machine) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Err(format!("there is none for {}", std::env::consts::ARCH));
    };
    let rules = rules(needs).map_err(|error| error.to_string())?;
    let count = rules.len();
    let refuse = SeccompAction::Errno(u32::try_from(libc::ENOSYS).unwrap_or(1));
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, machine);
    let program: Result<BpfProgram, _> = filter.and_then(TryInto::try_into);
    Ok((program.map_err(|error| error.to_string())?, count))
}

/// Allows what is needed and nothing else; returns how many calls these are, or why it failed.
pub(super) fn restrict(needs: &Needs) -> Result<usize, String> {
    let (program, count) = program(needs)?;
    apply_filter_all_threads(&program).map_err(|error| error.to_string())?;
    Ok(count)
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// A program's verdict on a call, run as the kernel would: the words are those of `struct
    /// seccomp_data`.
    fn ask(program: &BpfProgram, data: [u32; 16]) -> u32 {
        let (mut value, mut at) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
            match step.code {
                0x20 => value = data[step.k as usize / 4],
                0x54 => value &= step.k,
                0x05 => at += step.k as usize,
                0x15 => at += jump(value == step.k),
                0x25 => at += jump(value > step.k),
                0x35 => at += jump(value >= step.k),
                0x06 => return step.k,
                other => panic!("{other:#x} is not known"),
            }
        }
    }

    #[test]
    fn limits_are_not_set_wherever_the_new_ones_are() {
        const ALLOW: u32 = 0x7FFF_0000;
        let archive = std::path::PathBuf::from("archive");
        let (interfaces, ports) = (true, vec![1]);
        let needs = Needs { archive, interfaces, ports, state: None, resolves: false };
        let (program, _) = program(&needs).unwrap();
        let machine: u32 = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };
        let asked = |pointer: u64| {
            let mut data = [0; 16];
            data[0] = u32::try_from(libc::SYS_prlimit64).unwrap();
            data[1] = machine;
            let half = |n: u64| u32::try_from(n & 0xFFFF_FFFF).unwrap();
            [data[8], data[9]] = [pointer, pointer >> 32].map(half);
            ask(&program, data)
        };
        assert_eq!(asked(0), ALLOW);
        for pointer in [1, 0xFFFF_FFFF, 1 << 32, 0x7FFF_0000_0000, u64::MAX] {
            assert_ne!(asked(pointer), ALLOW, "{pointer:#x}");
        }
    }
}
