//! Opening, naming and shutting down sockets, and their options.

use std::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};

use super::descriptors::opened;
use super::on_socket_int;
use crate::abi::IPPROTO_HOMA;
use crate::descriptor_table::{ProcessState, is_homa};
use crate::ffi_border::{Refusal, answer_int};
use crate::memory;
use crate::real;
use crate::socket::Socket;

/// Flags that may be combined with the type argument of socket.
const KIND_FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let kind_alone = kind & !KIND_FLAGS;
    let ours = kind_alone == libc::SOCK_DGRAM || kind_alone == libc::SOCK_STREAM;
    if protocol != IPPROTO_HOMA || (domain != libc::AF_INET && domain != libc::AF_INET6) || !ours {
        // A raw socket of this protocol is not a Homa socket; the transport opens such sockets itself.
        // SAFETY: the caller meets the requirements of libc's socket.
        return opened(unsafe { real::socket(domain, kind, protocol) });
    }
    answer_int(|| {
        if kind_alone == libc::SOCK_STREAM {
            return Err(Refusal::plain(libc::EPROTONOSUPPORT));
        }
        let (socket, fd) = Socket::open(&ProcessState::get().hosts, domain, kind & KIND_FLAGS)?;
        ProcessState::get().insert(fd, socket).inspect_err(|_| {
            // SAFETY: the descriptor is new, and was not returned to the program.
            unsafe { real::close(fd) };
        })?;
        Ok(fd)
    })
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::bind(fd, address, length) };
    }
    on_socket_int(fd, |socket| socket.bind(address, length))
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::connect(fd, address, length) };
    }
    on_socket_int(fd, |_| {
        if length as usize > size_of::<libc::sockaddr_storage>() {
            return Err(Refusal::plain(libc::EINVAL));
        }
        // Like the kernel, reads the address but does not use it: each message carries its own address.
        memory::check(address as usize, length as usize, false)
    })
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::listen(fd, backlog) };
    }
    on_socket_int(fd, |_| Err(Refusal::plain(libc::EOPNOTSUPP)))
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return opened(unsafe { real::accept(fd, address, length) });
    }
    on_socket_int(fd, |_| Err(Refusal::plain(libc::EOPNOTSUPP)))
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return opened(unsafe { real::accept4(fd, address, length, flags) });
    }
    let errno = if flags & !KIND_FLAGS == 0 { libc::EOPNOTSUPP } else { libc::EINVAL };
    on_socket_int(fd, |_| Err(Refusal::plain(errno)))
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::getsockname(fd, address, length) };
    }
    on_socket_int(fd, |socket| {
        let room = memory::read(length)?;
        if room > i32::MAX as socklen_t {
            return Err(Refusal::plain(libc::EINVAL));
        }
        let written = socket.name().write(socket.family, address, room as usize)?;
        memory::write(length, written as socklen_t)
    })
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::getpeername(fd, address, length) };
    }
    on_socket_int(fd, |_| Err(Refusal::plain(libc::ENOTCONN)))
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::setsockopt(fd, level, name, value, length) };
    }
    on_socket_int(fd, |socket| socket.set_option(level, name, value, length))
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::getsockopt(fd, level, name, value, length) };
    }
    on_socket_int(fd, |socket| socket.get_option(level, name, value, length))
}

/// # Safety
/// Same as for the libc function of this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if !is_homa(fd) {
        // SAFETY: the caller meets the requirements of the libc function.
        return unsafe { real::shutdown(fd, how) };
    }
    on_socket_int(fd, |socket| {
        socket.shut_down();
        Ok(())
    })
}
