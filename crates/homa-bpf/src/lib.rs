//! Programs for the kernel's virtual machine (eBPF) that network devices run on each frame (XDP), without a
//! compiler and without a library: assembled here, loaded by bpf(2), attached by links.
//!
//! - [`assembler`]: a program written as calls, one per instruction, with labels for jumps.
//! - [`frame`]: offsets of headers in a frame, and the bounds check that the verifier requires.
//! - [`map`]: memory shared by programs and processes, and the sockets and cores that frames are redirected
//!   to.
//! - [`program`]: loading a program, its name and statistics, and running it on a frame without a device.
//! - [`link`]: a program attached to a device while a descriptor is open.
//! - [`attach`]: like [`link`], in the best mode that the device supports, detached on drop.
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
//!   time, a program can depend on the configuration, and its tests run it in the kernel
//!   (`BPF_PROG_TEST_RUN`). Jumps only go forward, so every program ends.
//! - **Links attach programs** (`BPF_LINK_CREATE`). A link ends with its descriptor, and therefore with the
//!   process, however the process ends.
//! - **System calls are in one file** (`sys`). The other files declare the structures of their commands; each
//!   `unsafe` block says what the kernel reads and writes.
//! - **Kinds of maps and programs are those that XDP needs.** Map keys are 32-bit numbers; a map of any other
//!   shape is refused with EINVAL before the kernel copies a key or a value.
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
