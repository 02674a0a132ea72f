//! Compares the C interface with the Rust API below it, in one process: alternating turns of round trips over
//! loopback, and a million calls.
//!
//! ```text
//! cargo bench -p homa-c                       round trips of 100 and 1,000,000 bytes: medians of turns, in about 10 s
//! cargo bench -p homa-c -- --calls 1000000    this many calls from C: memory and descriptors before and after
//! cargo bench -p homa-c -- --library PATH     round trips with the shared library of another build, to compare the two
//! ```
//!
//! The shared library is loaded as for a C program, and called through its symbols. Each side has its own
//! client and server; one side sleeps while the other is measured.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use std::{env, fs, mem, ptr, thread};

use homa::kernel_api::{Arrival, Socket};
use homa::{Bytes, Client, Host, ServerAddr};

/// Number of turns of each side.
const TURNS: usize = 31;

/// Size of requests and responses in bytes, and number of calls in each turn.
const ROUND_TRIPS: [(usize, usize); 2] = [(100, 2_000), (1_000_000, 40)];

/// Number of calls in flight in the second part, and number of calls before the first memory measurement.
const IN_FLIGHT: u64 = 8;
const WARM_UP: u64 = 20_000;

/// Number of memory measurements during the many calls, not counting the first.
const PARTS: u64 = 10;

const FOREVER: u64 = u64::MAX;
const SERVER_PORT: u16 = 99;

/// A handle, or memory for one.
type Handle = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
struct Address {
    ip: [u8; 16],
    scope: u32,
    udp_port: u16,
    port: u16,
}

/// The functions of libhoma that the benchmark uses.
#[derive(Clone, Copy)]
struct LibhomaFunctions {
    last_error: unsafe extern "C" fn() -> *const c_char,
    options_new: unsafe extern "C" fn(*mut Handle) -> i32,
    options_set: unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> i32,
    options_free: unsafe extern "C" fn(Handle) -> i32,
    host_open: unsafe extern "C" fn(Handle, *mut Handle) -> i32,
    socket_open: unsafe extern "C" fn(Handle, u16, *mut Handle) -> i32,
    socket_address: unsafe extern "C" fn(Handle, *mut Address) -> i32,
    call: unsafe extern "C" fn(Handle, *const Address, *const c_void, usize, u64, *mut Handle) -> i32,
    start: unsafe extern "C" fn(Handle, *const Address, *const c_void, usize, u64, u64, *mut u64) -> i32,
    receive: unsafe extern "C" fn(Handle, u64, *mut Handle) -> i32,
    reply: unsafe extern "C" fn(Handle, Handle, *const c_void, usize) -> i32,
    message_data: unsafe extern "C" fn(Handle, *mut usize) -> *const c_void,
    message_free: unsafe extern "C" fn(Handle) -> i32,
}

/// Returns the function with this name.
///
/// # Safety
/// `F` is the type of the function.
unsafe fn symbol<F: Copy>(library: *mut c_void, name: &str) -> F {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    let text = CString::new(name).expect("a name has no zero byte");
    // SAFETY: `library` is an open library, and `text` is a zero-terminated string.
    let found = unsafe { libc::dlsym(library, text.as_ptr()) };
    assert!(!found.is_null(), "libhoma has no {name}");
    // SAFETY: `F` is the type of the function by this function's safety contract.
    unsafe { mem::transmute_copy(&found) }
}

impl LibhomaFunctions {
    fn load(library: PathBuf) -> LibhomaFunctions {
        let path = CString::new(library.into_os_string().into_encoded_bytes()).expect("no zero byte");
        // SAFETY: `path` is a zero-terminated string.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        // SAFETY: the types are those of homa.h.
        unsafe {
            LibhomaFunctions {
                last_error: symbol(library, "homa_last_error"),
                options_new: symbol(library, "homa_options_new"),
                options_set: symbol(library, "homa_options_set"),
                options_free: symbol(library, "homa_options_free"),
                host_open: symbol(library, "homa_host_open"),
                socket_open: symbol(library, "homa_socket_open"),
                socket_address: symbol(library, "homa_socket_address"),
                call: symbol(library, "homa_call"),
                start: symbol(library, "homa_start"),
                receive: symbol(library, "homa_receive"),
                reply: symbol(library, "homa_reply"),
                message_data: symbol(library, "homa_message_data"),
                message_free: symbol(library, "homa_message_free"),
            }
        }
    }

    fn must(&self, result: i32) {
        if result != 0 {
            // SAFETY: the text remains valid until this thread's next call of the function.
            let text = unsafe { CStr::from_ptr((self.last_error)()) };
            panic!("libhoma: {}", text.to_string_lossy());
        }
    }

    /// Returns the handle that a function writes to its result pointer.
    fn made(&self, make: impl FnOnce(*mut Handle) -> i32) -> Handle {
        let mut handle = ptr::null_mut();
        self.must(make(&raw mut handle));
        handle
    }
}

/// Builds the shared library as it is installed, and returns its path.
fn library() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["rustc", "--quiet", "--release", "--package", "homa-c", "--lib"])
        // As the Makefile does: with the rlib there is no link-time optimization.
        .args(["--crate-type", "cdylib,staticlib"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let target = target.parent().expect("cargo's own directory lies in its target directory");
    let status = cargo.arg("--target-dir").arg(target).status().expect("cargo runs");
    assert!(status.success(), "the library does not build");
    target.join("release/libhoma_c.so")
}

/// A socket of libhoma. Its handle is never closed; it lives until the process ends.
#[derive(Clone, Copy)]
struct LibhomaSocket {
    api: LibhomaFunctions,
    socket: Handle,
}

// SAFETY: homa.h permits any thread to use a handle.
unsafe impl Send for LibhomaSocket {}

impl LibhomaSocket {
    /// Opens a socket on a host of its own.
    fn open(api: LibhomaFunctions, port: u16) -> LibhomaSocket {
        // SAFETY: the handles come from the library, the texts are zero-terminated, and all result pointers
        // have room.
        let socket = unsafe {
            let options = api.made(|room| (api.options_new)(room));
            api.must((api.options_set)(options, c"bind".as_ptr(), c"127.0.0.1:0".as_ptr()));
            let host = api.made(|room| (api.host_open)(options, room));
            api.must((api.options_free)(options));
            api.made(|room| (api.socket_open)(host, port, room))
        };
        LibhomaSocket { api, socket }
    }

    fn address(&self) -> Address {
        let mut address = Address { ip: [0; 16], scope: 0, udp_port: 0, port: 0 };
        // SAFETY: the socket is open, and `address` has room for an address.
        self.api.must(unsafe { (self.api.socket_address)(self.socket, &raw mut address) });
        address
    }

    fn serve(self) {
        let api = self.api;
        loop {
            // SAFETY: the handles are open, and the bytes belong to the request, which is freed after the
            // reply.
            unsafe {
                let request = api.made(|room| (api.receive)(self.socket, FOREVER, room));
                let mut length = 0;
                let data = (api.message_data)(request, &raw mut length);
                api.must((api.reply)(self.socket, request, data, length));
                api.must((api.message_free)(request));
            }
        }
    }

    /// Makes one call, and reads the address of the response's bytes, as every program does.
    fn call(&self, to: &Address, request: &[u8]) {
        let api = &self.api;
        // SAFETY: the socket is open, and `request` lives until the call returns.
        unsafe {
            let response = api.made(|room| {
                (api.call)(self.socket, to, request.as_ptr().cast(), request.len(), FOREVER, room)
            });
            let mut length = 0;
            (api.message_data)(response, &raw mut length);
            assert_eq!(length, request.len());
            api.must((api.message_free)(response));
        }
    }

    /// Measures the time to look up a message by its handle, in nanoseconds.
    fn look_ns(&self, to: &Address) -> f64 {
        const LOOKS: u32 = 1_000_000;
        let api = &self.api;
        // SAFETY: the socket is open, `request` lives until the call returns, and the message is freed after
        // the last lookup.
        unsafe {
            let message =
                api.made(|room| (api.call)(self.socket, to, c"look".as_ptr().cast(), 4, FOREVER, room));
            let start = Instant::now();
            for _ in 0..LOOKS {
                let mut length = 0;
                assert!(!(api.message_data)(message, &raw mut length).is_null());
            }
            let ns = start.elapsed().as_nanos() as f64 / f64::from(LOOKS);
            api.must((api.message_free)(message));
            ns
        }
    }

    /// Makes this number of calls, several in flight.
    fn call_many(&self, to: &Address, request: &[u8], calls: u64) {
        let api = &self.api;
        let (data, length) = (request.as_ptr().cast(), request.len());
        let mut started = 0;
        for ended in 0..calls {
            // SAFETY: the socket is open, `request` lives until the call returns, and the id may be NULL.
            unsafe {
                while started < calls && started - ended < IN_FLIGHT {
                    api.must((api.start)(self.socket, to, data, length, FOREVER, started, ptr::null_mut()));
                    started += 1;
                }
                let response = api.made(|room| (api.receive)(self.socket, FOREVER, room));
                let mut length = 0;
                (api.message_data)(response, &raw mut length);
                assert_eq!(length, request.len());
                api.must((api.message_free)(response));
            }
        }
    }
}

/// Opens a client and an echo server of the C interface.
fn c_side(api: LibhomaFunctions) -> (LibhomaSocket, Address) {
    let server = LibhomaSocket::open(api, SERVER_PORT);
    let to = server.address();
    thread::spawn(move || server.serve());
    (LibhomaSocket::open(api, 0), to)
}

/// Opens a host that lives until the process ends, like that of the C side.
fn rust_host() -> &'static Host {
    let bind = "127.0.0.1:0".parse().expect("an address");
    Box::leak(Box::new(Host::builder().address(bind).bind().expect("a host")))
}

/// Opens a client and an echo server of the Rust API.
fn rust_side() -> (Client, ServerAddr) {
    let answering = rust_host();
    let server = answering.server(SERVER_PORT).expect("a server port");
    thread::spawn(move || {
        while let Ok(mut rpc) = server.recv().wait() {
            let request = rpc.take_payload();
            rpc.reply(request).expect("the client waits");
        }
    });
    (rust_host().client().expect("a client port"), ServerAddr::new(answering.local_addr(), SERVER_PORT))
}

/// Opens a calling socket and an echoing socket of the Rust API.
fn socket_side() -> (Socket, ServerAddr) {
    let answering = rust_host();
    let server = answering.socket(Some(SERVER_PORT)).expect("a server port");
    thread::spawn(move || {
        while let Ok(Arrival::Request { mut rpc, .. }) = server.recv(None) {
            let request = rpc.take_payload();
            rpc.reply(request).expect("the client waits");
        }
    });
    (rust_host().socket(None).expect("a client port"), ServerAddr::new(answering.local_addr(), SERVER_PORT))
}

/// Returns the median time of this number of calls, in microseconds.
fn turn(calls: usize, call: &dyn Fn()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        call();
        start.elapsed().as_nanos() as f64 / 1e3
    };
    median((0..calls).map(time).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The sides that are compared. The Rust client lends its bytes. A Rust socket, on which libhoma is built,
/// copies the request.
const SIDES: [&str; 3] = ["Client, us", "Socket, us", "libhoma, us"];

fn compare(api: LibhomaFunctions) {
    let (rust, rust_to) = rust_side();
    let (socket, socket_to) = socket_side();
    let (c, c_to) = c_side(api);
    println!("{:>10} {:>12} {:>12} {:>12} {:>16}", "bytes", SIDES[0], SIDES[1], SIDES[2], "libhoma/Client");
    for (bytes, calls) in ROUND_TRIPS {
        let data = Bytes::from(vec![7_u8; bytes]);
        let by_client = || {
            let response = rust.call(rust_to, data.clone()).wait().expect("an answer");
            assert_eq!(response.len(), bytes);
        };
        let by_socket = || {
            let id = socket.start(socket_to, socket.message(&[&data]), 0, true).expect("a call");
            let outcome = socket.recv_private(id, None).expect("its end");
            assert_eq!(outcome.result.map(|response| response.len()), Ok(bytes));
        };
        let by_libhoma = || c.call(&c_to, &data);
        let sides: [&dyn Fn(); 3] = [&by_client, &by_socket, &by_libhoma];
        let mut times = [const { Vec::new() }; 3];
        for index in 0..TURNS * sides.len() {
            // Over all turns, each side follows each other side equally often.
            let side = if (index / sides.len()).is_multiple_of(2) { index % 3 } else { 2 - index % 3 };
            times[side].push(turn(calls, sides[side]));
        }
        let ratios = times[2].iter().zip(&times[0]).map(|(c, rust)| c / rust).collect();
        let [client, socket, libhoma] = times.map(median);
        println!("{bytes:>10} {client:>12.2} {socket:>12.2} {libhoma:>12.2} {:>16.3}", median(ratios));
    }
    println!("a look at a message: {:.1} ns", c.look_ns(&c_to));
}

/// Returns the resident memory in KiB, and open descriptors.
fn resources() -> (u64, usize) {
    let status = fs::read_to_string("/proc/self/status").expect("a process has a status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has memory");
    let kib = line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number");
    (kib, fs::read_dir("/proc/self/fd").expect("it has descriptors").count())
}

fn grow(api: LibhomaFunctions, calls: u64) {
    let (client, to) = c_side(api);
    let request = [7; 100];
    client.call_many(&to, &request, WARM_UP);
    println!("{:>10} {:>14} {:>12}", "calls", "resident, KiB", "descriptors");
    let start = Instant::now();
    for part in 0..=PARTS {
        let (kib, descriptors) = resources();
        println!("{:>10} {kib:>14} {descriptors:>12}", WARM_UP + calls / PARTS * part);
        if part < PARTS {
            client.call_many(&to, &request, calls / PARTS);
        }
    }
    println!("{:.1} s", start.elapsed().as_secs_f64());
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => compare(LibhomaFunctions::load(library())),
        ["--library", path] => compare(LibhomaFunctions::load(PathBuf::from(path))),
        ["--calls", calls] => {
            grow(LibhomaFunctions::load(library()), calls.parse().expect("--calls takes a number"))
        }
        _ => panic!("use no argument, --calls N or --library PATH"),
    }
}
