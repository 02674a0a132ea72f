//! Opens a device with a configuration: the program, the frames, and a socket for each queue and driver.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use homa_bpf::attach::{self, Attachment};
use homa_bpf::link::Place;
use homa_bpf::{is_no_permission, map};

use super::program::{self, LocalAddresses};
use super::queue::{Completions, Queue};
use super::socket::{BindOptions, QueueRings, RingSizes, Role, SetupError, SetupStep, XdpSocket};
use super::sole_or_shared::SoleOrShared;
use super::umem::{HELD_BY_BURSTS, Umem};
use super::{XdpConfig, queues};
use crate::l2::LinkError;
use crate::l2::device::Device;
use crate::l2::frame::ETHERNET_BYTES;

/// Bytes before a received frame that the kernel reserves for programs (`XDP_PACKET_HEADROOM`).
const HEADROOM_BYTES: usize = 256;

/// Frame lengths that the kernel accepts with pages of 4 KiB.
const FRAME_BYTES: [usize; 2] = [2_048, 4_096];

/// Entries of a transmit ring: enough for the bursts of one drive round. More would not help, since the
/// protocol orders queued packets better than a ring does.
const SEND_FRAMES: u32 = 512;

/// Before this kernel version, two cores that received in generic mode for two sockets of one queue could
/// take the same frame from the queue's fill ring, because the lock was per socket instead of per queue. On
/// such kernels one socket receives all packets of a queue.
const SHARED_GENERIC: (u32, u32) = (6, 15);

/// How packets are placed in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) frame_bytes: usize,
    /// Whether a packet may span several frames.
    pub(super) several: bool,
}

impl Layout {
    /// Returns the layout for a device with this MTU.
    fn for_mtu(mtu: usize) -> Layout {
        let longest = mtu + ETHERNET_BYTES;
        let fits = FRAME_BYTES.into_iter().find(|bytes| longest <= bytes - HEADROOM_BYTES);
        Layout { frame_bytes: fits.unwrap_or(FRAME_BYTES[1]), several: fits.is_none() }
    }

    /// Returns the maximum length of a device's frame that fits into one frame of the shared memory.
    pub(super) fn one_frame_max() -> usize {
        FRAME_BYTES[1] - HEADROOM_BYTES
    }
}

/// The parts that make up the drivers of a device.
#[derive(Debug)]
pub(super) struct OpenedDevice {
    /// Keeps the program attached.
    pub(super) attachment: Attachment,
    pub(super) place: Place,
    /// The queues of each driver.
    pub(super) queues: Vec<Vec<Queue>>,
    pub(super) umem: Arc<Umem>,
    pub(super) layout: Layout,
}

/// A device and the configuration to open it with.
pub(super) struct OpenRequest<'a> {
    pub(super) config: &'a XdpConfig,
    pub(super) device: &'a Device,
    pub(super) ours: LocalAddresses,
}

impl OpenRequest<'_> {
    fn index(&self) -> u32 {
        self.device.interface().index
    }

    fn name(&self) -> String {
        self.device.interface().name.clone()
    }

    /// Opens everything. On an error, everything opened so far is closed.
    pub(super) fn open(&self, queues: &[u32]) -> Result<OpenedDevice, LinkError> {
        let layout = Layout::for_mtu(self.device.mtu());
        let umem = Arc::new(self.frames(layout, queues.len() as u32)?);
        let last = queues.iter().max().map_or(0, |&queue| queue);
        let drivers = self.ours.sockets;
        let map = program::sockets(program::place_of(last + 1, 0, drivers)).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EINVAL | libc::ENOSYS) => LinkError::NoXdp { name: self.name() },
                _ => self.refused("making a map of sockets", error),
            }
        })?;
        let program = program::load(&program::build(&self.ours, map.as_raw_fd()));
        let program = program.map_err(|error| self.refused("loading the XDP program", error))?;
        let (attachment, place) = self.attach(&program)?;
        let steers = place == Place::Native || kernel_is_at_least(SHARED_GENERIC);
        let mut opened: Vec<Vec<Queue>> = (0..drivers).map(|_| Vec::with_capacity(queues.len())).collect();
        for &queue in queues {
            let first = opened[0].first().map(|queue: &Queue| &queue.socket);
            let sockets = self.sockets_of(queue, &umem, first, place, layout)?;
            for number in 0..drivers {
                let taker = if steers { number } else { queue % drivers };
                let socket = sockets[taker as usize].socket.fd();
                map::put_socket(map.as_fd(), program::place_of(queue, number, drivers), socket)
                    .map_err(|error| self.refused("entering a socket into the map", error))?;
            }
            opened.iter_mut().zip(sockets).for_each(|(queues, queue)| queues.push(queue));
        }
        Ok(OpenedDevice { attachment, place, queues: opened, umem, layout })
    }

    /// Opens the sockets of a queue, one for each driver.
    fn sockets_of(
        &self,
        queue: u32,
        umem: &Umem,
        first: Option<&XdpSocket>,
        place: Place,
        layout: Layout,
    ) -> Result<Vec<Queue>, LinkError> {
        let drivers = self.ours.sockets;
        let role = first.map_or(Role::First, Role::SharesFrames);
        let (socket, rings) = self.socket(queue, umem, role, place, layout)?;
        let rings = rings.expect("the first socket of a queue has its rings");
        let mut sockets = vec![socket];
        for _ in 1..drivers {
            sockets.push(self.socket(queue, umem, Role::SharesQueue(&sockets[0]), place, layout)?.0);
        }
        let fill = SoleOrShared::for_drivers(drivers, rings.fill);
        let completions =
            SoleOrShared::for_drivers(drivers, Completions::new(rings.completion, drivers, SEND_FRAMES));
        let parts = sockets.into_iter().zip(fill).zip(completions);
        // The first driver fills the ring initially. Each later driver only replaces the frames that it
        // takes.
        let missing = |driver| if driver == 0 { self.config.receive_frames() } else { 0 };
        Ok(parts
            .enumerate()
            .map(|(driver, ((socket, fill), completions))| {
                Queue::new(socket, fill, completions, missing(driver))
            })
            .collect())
    }

    fn socket(
        &self,
        queue: u32,
        umem: &Umem,
        role: Role<'_>,
        place: Place,
        layout: Layout,
    ) -> Result<(XdpSocket, Option<QueueRings>), LinkError> {
        let sizes = RingSizes {
            receive: self.config.receive_frames(),
            send: SEND_FRAMES,
            // The ring is large enough that the frames of a driver that does not poll never fill it.
            completion: (SEND_FRAMES * self.ours.sockets).next_power_of_two(),
        };
        let mut wishes = self.bind_options(place, layout);
        loop {
            match XdpSocket::open((self.index(), queue), umem, role, wishes, sizes) {
                Ok(opened) => return Ok(opened),
                // Kernels before 6.6 do not support packets that span several frames, but all packets of this
                // device fit into one frame.
                Err(SetupError { step: SetupStep::Bind, error })
                    if wishes.several_frames
                        && !layout.several
                        && error.raw_os_error() == Some(libc::EINVAL) =>
                {
                    wishes.several_frames = false;
                }
                Err(failed) => return Err(self.no_socket(queue, failed, wishes, umem)),
            }
        }
    }

    fn bind_options(&self, place: Place, layout: Layout) -> BindOptions {
        let copy_flag = match self.config.zero_copy {
            // A program in the kernel's receive path runs on packets that the device has already handed over.
            _ if place == Place::Generic => libc::XDP_COPY,
            None => 0,
            Some(true) => libc::XDP_ZEROCOPY,
            Some(false) => libc::XDP_COPY,
        };
        // Packets longer than the MTU are dropped in any case, but they must arrive here to be counted.
        BindOptions { copy_flag, several_frames: layout.several || place == Place::Generic }
    }

    /// Allocates a frame for each fill ring entry, plus frames that may be held and frames for sending.
    fn frames(&self, layout: Layout, queues: u32) -> Result<Umem, LinkError> {
        let drivers = self.ours.sockets;
        let held = self.config.kept_frames.saturating_add(HELD_BY_BURSTS * drivers);
        let receive = u64::from(self.config.receive_frames()) * u64::from(queues) + u64::from(held);
        let send = SEND_FRAMES * drivers;
        let bytes = (receive + u64::from(send)).saturating_mul(layout.frame_bytes as u64);
        if bytes > u64::from(u32::MAX) {
            return Err(self.no_memory(bytes as usize));
        }
        Umem::new(layout.frame_bytes, receive as u32, send, held)
            .map(|umem| umem.shared_by(drivers))
            .map_err(|_| self.no_memory(bytes as usize))
    }

    fn no_memory(&self, bytes: usize) -> LinkError {
        let setting = "receive_frames, kept_frames, or the number of queues or endpoints";
        LinkError::NoMemory { name: self.name(), bytes, setting }
    }

    /// Attaches the program in the configured mode, or by default in the best mode that the device supports.
    fn attach(&self, program: &OwnedFd) -> Result<(Attachment, Place), LinkError> {
        let (mut native, name) = (None, self.name());
        for &place in attach::places(self.config.mode) {
            match attach::attach(program, self.index(), place) {
                Ok(attachment) => {
                    if let Some(error) = native {
                        tracing::warn!(
                            "{name} takes no XDP program in its driver ({error}), as at its MTU of {}: packets of it come \
                             through the kernel's generic mode, which any device has",
                            self.device.mtu()
                        );
                    }
                    return Ok((attachment, place));
                }
                Err(error) if attach::is_taken(&error) => return Err(self.taken()),
                Err(error) if is_no_permission(&error) => {
                    return Err(self.refused("attaching the XDP program", error));
                }
                Err(error) => native = Some(error),
            }
        }
        let error = native.expect("at least one place was tried");
        Err(self.refused("attaching the XDP program", error))
    }

    /// Returns the error for a device that already runs another program.
    fn taken(&self) -> LinkError {
        let id = queues::attached_program(self.index());
        let program = match (id, id.and_then(homa_bpf::program::name_of)) {
            (Some(id), Some(name)) => format!("{name} (id {id})"),
            (Some(id), None) => format!("id {id}"),
            (None, _) => "which has no name".to_owned(),
        };
        LinkError::ProgramAttached { name: self.name(), program }
    }

    fn no_socket(&self, queue: u32, failed: SetupError, wishes: BindOptions, umem: &Umem) -> LinkError {
        let name = self.name();
        match (failed.step, failed.error.raw_os_error()) {
            (SetupStep::Open, Some(libc::EAFNOSUPPORT)) => LinkError::NoXdp { name },
            (SetupStep::Register, Some(libc::ENOBUFS)) => {
                LinkError::Locked { name, kib: umem.area().len().div_ceil(1 << 10) }
            }
            (SetupStep::Bind, Some(libc::EBUSY)) => LinkError::QueueTaken { name, queue },
            (SetupStep::Bind, Some(libc::EINVAL)) if wishes.several_frames => LinkError::MtuTooLarge {
                name,
                mtu: self.device.mtu(),
                most: Layout::one_frame_max() - ETHERNET_BYTES,
            },
            (SetupStep::Bind, Some(libc::EOPNOTSUPP | libc::EINVAL))
                if wishes.copy_flag == libc::XDP_ZEROCOPY =>
            {
                LinkError::NoZeroCopy { name }
            }
            (SetupStep::Open, _) => self.refused("opening a socket", failed.error),
            (SetupStep::Register, _) => self.refused("registering frames", failed.error),
            (SetupStep::Rings, _) => self.refused("mapping the rings", failed.error),
            (SetupStep::Bind, _) => self.refused("binding to a queue", failed.error),
        }
    }

    fn refused(&self, step: &'static str, source: io::Error) -> LinkError {
        let name = self.name();
        if is_no_permission(&source) {
            return LinkError::no_capability(
                "AF_XDP",
                name,
                "capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF",
                "cap_net_raw,cap_net_admin,cap_bpf",
            );
        }
        LinkError::System { name, step, source }
    }
}

/// Whether the kernel has this version (major and minor) or a later one.
fn kernel_is_at_least(version: (u32, u32)) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.is_ok_and(|release| version_of(&release).is_some_and(|running| running >= version))
}

fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_kernels_are_compared_as_numbers() {
        for (release, version) in [
            ("6.15.0", Some((6, 15))),
            ("5.4.0-150-generic\n", Some((5, 4))),
            ("6.9-rc1", Some((6, 9))),
            ("unknown", None),
        ] {
            assert_eq!(version_of(release), version, "{release}");
        }
        assert!(kernel_is_at_least((2, 6)) && !kernel_is_at_least((1_000, 0)));
    }

    #[test]
    fn a_packet_takes_one_frame_where_one_can_hold_it() {
        for (mtu, frame_bytes, several) in [
            (1_280, 2_048, false),
            (1_500, 2_048, false),
            (1_778, 2_048, false),
            (1_779, 4_096, false),
            (3_826, 4_096, false),
            (3_827, 4_096, true),
            (9_000, 4_096, true),
        ] {
            assert_eq!(Layout::for_mtu(mtu), Layout { frame_bytes, several }, "MTU {mtu}");
        }
    }
}
