//! The functions that this library replaces: those of libc, or of another preloaded library.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, pollfd, sighandler_t, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

/// Returns the next definition of a symbol after this library's, or null.
fn find(name: &CStr) -> *mut c_void {
    // SAFETY: `name` is a C string, and RTLD_NEXT loads no library.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// A function of libc, looked up once.
struct Function {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Function {
    const fn new(name: &'static str) -> Function {
        let name = match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name ends with its only 0"),
        };
        Function { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the address of the function, or null if libc lacks it.
    fn get(&self) -> *mut c_void {
        let mut found = self.found.load(Relaxed);
        if found.is_null() {
            found = find(self.name);
            self.found.store(found, Relaxed);
        }
        found
    }
}

/// Looks up all functions when the library is loaded, so that a signal handler never has to do so.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_FOR_ALL: extern "C" fn() = look_for_all;

/// Declares functions of libc with their types. If libc lacks one, calls fail with ENOSYS.
macro_rules! next {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        #[allow(non_upper_case_globals, reason = "they are named for the functions")]
        mod functions {
            use super::Function;

            $(pub(super) static $name: Function = Function::new(concat!(stringify!($name), "\0"));)*
        }

        extern "C" fn look_for_all() {
            $(functions::$name.get();)*
        }

        $(
            /// # Safety
            /// Same as for the libc function of this name.
            pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
                let found = functions::$name.get();
                if found.is_null() {
                    crate::ffi_border::set_errno(libc::ENOSYS);
                    return -1_isize as $ret;
                }
                // SAFETY: the symbol with this name is a function of this type.
                let function: unsafe extern "C-unwind" fn($($ty),*) -> $ret = unsafe { std::mem::transmute(found) };
                // SAFETY: the caller meets the requirements of the libc function.
                unsafe { function($($arg),*) }
            }
        )*
    };
}

next! {
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    eventfd(count: c_uint, flags: c_int) -> c_int;
    epoll_create1(flags: c_int) -> c_int;
    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    listen(fd: c_int, backlog: c_int) -> c_int;
    accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    send(fd: c_int, data: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    sendto(fd: c_int, data: *const c_void, length: size_t, flags: c_int, to: *const sockaddr, to_length: socklen_t) -> ssize_t;
    recv(fd: c_int, data: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, data: *mut c_void, length: size_t, flags: c_int, from: *mut sockaddr, from_length: *mut socklen_t) -> ssize_t;
    __recv_chk(fd: c_int, data: *mut c_void, length: size_t, room: size_t, flags: c_int) -> ssize_t;
    __recvfrom_chk(fd: c_int, data: *mut c_void, length: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_length: *mut socklen_t) -> ssize_t;
    read(fd: c_int, data: *mut c_void, length: size_t) -> ssize_t;
    __read_chk(fd: c_int, data: *mut c_void, length: size_t, room: size_t) -> ssize_t;
    readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    write(fd: c_int, data: *const c_void, length: size_t) -> ssize_t;
    writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    ioctl(fd: c_int, request: u64, argument: *mut c_void) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int;
    signal(signal: c_int, action: sighandler_t) -> sighandler_t;
    bsd_signal(signal: c_int, action: sighandler_t) -> sighandler_t;
    sysv_signal(signal: c_int, action: sighandler_t) -> sighandler_t;
    __sysv_signal(signal: c_int, action: sighandler_t) -> sighandler_t;
    sigset(signal: c_int, action: sighandler_t) -> sighandler_t;
    ssignal(signal: c_int, action: sighandler_t) -> sighandler_t;
    munmap(start: *mut c_void, length: size_t) -> c_int;
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, bytes: size_t) -> c_int;
    __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, bytes: size_t) -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_ctl(epoll: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_wait(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int;
    epoll_pwait(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    epoll_pwait2(epoll: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
}
