//! Programs for the kernel's virtual machine (eBPF) that network devices run on each frame (XDP). No compiler
//! and no library is needed: programs are assembled here, loaded by bpf(2), and attached by links.
//!
//! - [`assembler`]: writes a program as calls, one per instruction, with labels for jumps.
//! - [`frame`]: offsets of headers in a frame, and the bounds check that the verifier requires.
//! - [`map`]: memory shared by programs and processes, and the sockets and cores to which frames are
//!   redirected.
//! - [`program`]: loads a program, returns its name and statistics, and runs it on a frame without a device.
//! - [`link`]: attaches a program to a device as long as a descriptor is open.
//! - [`attach`]: like [`link`], in the best mode that the device supports; detaches on drop.
//! - [`classic`]: classic BPF programs for sockets, which require no privilege.
//! - [`xdp`]: results and the context of XDP programs, and the helper that redirects frames.
//!
//! ```no_run
//! use std::os::fd::AsFd;
//!
//! use homa_bpf::assembler::{Assembler, Register};
//! use homa_bpf::program::{self, AttachPoint};
//! use homa_bpf::{Name, xdp};
//!
//! # fn main() -> std::io::Result<()> {
//! let mut assembler = Assembler::default();
//! assembler.set(Register::R0, xdp::XDP_PASS);
//! assembler.exit();
//! let program = program::load(Name::new("pass_all"), &assembler.finish(), AttachPoint::Device)?;
//! assert_eq!(program::test_run(program.as_fd(), &[0; 64])?, xdp::XDP_PASS);
//! # Ok(())
//! # }
//! ```
//!
//! # Design
//!
//! - **Programs are assembled instruction by instruction.** This needs no compiler and no object file at run
//!   time, and a program can depend on the configuration. Tests run programs in the kernel
//!   (`BPF_PROG_TEST_RUN`). Jumps only go forward, so every program ends.
//! - **Links attach programs** (`BPF_LINK_CREATE`). A link ends with its descriptor, and therefore with the
//!   process, however the process ends.
//! - **System calls are in one file** (`sys`). The other files declare the structures of their commands; each
//!   `unsafe` block says what the kernel reads and writes.
//! - **The supported kinds of maps and programs are those that XDP needs.** Map keys are 32-bit numbers; a
//!   map of any other shape is refused with EINVAL before the kernel copies a key or a value.
//!
//! XDP requires Linux 5.11 and the capabilities CAP_BPF and CAP_NET_ADMIN; [`classic`] requires neither.

pub mod assembler;
pub mod attach;
pub mod classic;
pub mod frame;
pub mod link;
pub mod map;
mod name;
pub mod program;
mod sys;
pub mod xdp;

pub use name::Name;
pub use sys::is_no_permission;
