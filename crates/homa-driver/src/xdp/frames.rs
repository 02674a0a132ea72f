//! Receives all frames of a device, and sends frames, through AF_XDP, in slots that several devices share.

use std::io;
use std::net::UdpSocket;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use homa_bpf::attach::{self, Attachment};
use homa_bpf::link::Place;
use homa_bpf::map;

use super::XdpMode;
use super::program;
use super::queue::{Completions, KickOutcome, Queue};
use super::queues;
use super::socket::{BindOptions, RingSizes, Role, SetupError, SetupStep, XdpSocket};
use super::sole_or_shared::SoleOrShared;
use crate::frames::{Frame, FrameStats, FramesError, Slots};
use crate::l2::interface::NamedInterface;

/// Entries of the transmit ring of each queue.
pub(crate) const SEND_FRAMES: u32 = 512;

/// Bytes before a received frame that the kernel reserves for programs (`XDP_PACKET_HEADROOM`).
pub(crate) const HEADROOM_BYTES: usize = 256;

/// Number of fill ring entries that are filled together.
const REFILL: u32 = 32;

#[derive(Debug)]
pub(crate) struct XdpPort {
    /// Keeps the program attached.
    _attachment: Attachment,
    queues: Vec<Queue>,
    place: Place,
    longest: usize,
    stats: FrameStats,
}

impl XdpPort {
    /// Returns the number of receive queues of a device.
    pub(crate) fn queues_of(device: &NamedInterface) -> u32 {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
        socket.map_or(1, |socket| queues::receive_queues(socket.as_fd(), &device.name))
    }

    /// Opens a device. `first` is a device that already uses the same slots.
    pub(crate) fn open(
        device: &NamedInterface,
        slots: &mut Slots,
        first: Option<&XdpPort>,
        receive_frames: u32,
        mode: XdpMode,
    ) -> Result<XdpPort, FramesError> {
        let fail = |step| move |source| open_error(device, step, source);
        let count = XdpPort::queues_of(device);
        let map = program::sockets(count).map_err(fail("making a map of sockets"))?;
        let program = program::load(&program::redirect_all(map.as_raw_fd()))
            .map_err(fail("loading the XDP program"))?;
        let (attachment, place) = attach_to(&program, device, mode)?;
        let mut queues: Vec<Queue> = Vec::new();
        for queue in 0..count {
            let sizes = RingSizes { receive: receive_frames, send: SEND_FRAMES, completion: SEND_FRAMES };
            // In native mode the kernel may let the device itself read and write the slots.
            let copy_flag = if place == Place::Generic { libc::XDP_COPY } else { 0 };
            let wishes = BindOptions { copy_flag, several_frames: false };
            let first = queues.first().or(first.and_then(|port| port.queues.first()));
            let role = first.map_or(Role::First, |first| Role::SharesFrames(&first.socket));
            let (socket, rings) = XdpSocket::open((device.index, queue), slots.umem(), role, wishes, sizes)
                .map_err(|failed| no_socket(device, failed))?;
            let rings = rings.expect("the first socket of a queue has its rings");
            let completions = SoleOrShared::Sole(Completions::new(rings.completion, 1, SEND_FRAMES));
            queues.push(Queue::new(socket, SoleOrShared::Sole(rings.fill), completions, receive_frames));
        }
        let longest = device.state.mtu + crate::frames::HEADER_BYTES;
        let mut port =
            XdpPort { _attachment: attachment, queues, place, longest, stats: FrameStats::default() };
        // The kernel drops a frame for a socket whose fill ring is empty. Until a socket is in the map, it
        // gets no frames.
        port.refill(slots, 1);
        for (number, queue) in (0..).zip(&port.queues) {
            map::put_socket(map.as_fd(), number, queue.socket.fd())
                .map_err(fail("entering a socket into the map"))?;
        }
        Ok(port)
    }

    pub(crate) fn is_native(&self) -> bool {
        self.place == Place::Native
    }

    /// Appends up to `most` received frames.
    pub(crate) fn receive(&mut self, slots: &mut Slots, most: usize, into: &mut Vec<Frame>) -> usize {
        let mut count = 0;
        for queue in &mut self.queues {
            let missing = queue.missing;
            while count < most {
                let Some(part) = queue.socket.receive.pop() else { break };
                queue.missing += 1;
                let frame = slots.received(part.addr, part.len);
                if frame.length() > self.longest || part.options & libc::XDP_PKT_CONTD != 0 {
                    self.stats.too_long += 1;
                    slots.give_back(frame);
                    continue;
                }
                into.push(frame);
                count += 1;
            }
            if queue.missing != missing {
                queue.socket.receive.release();
            }
        }
        self.stats.received += count as u64;
        self.refill(slots, REFILL);
        count
    }

    /// Fills the empty entries of each fill ring that has at least `least` of them.
    fn refill(&mut self, slots: &mut Slots, least: u32) {
        for queue in &mut self.queues {
            if queue.missing < least {
                continue;
            }
            let wanted = queue.missing.min(slots.free() as u32);
            let (count, wake) = queue.fill.with(|fill| {
                let count = fill.room(wanted).min(wanted);
                for _ in 0..count {
                    let slot = slots.take().expect("as many were free");
                    fill.push(slots.umem().address(slot));
                }
                fill.publish();
                (count, count > 0 && fill.needs_wakeup())
            });
            queue.missing -= count;
            if wake {
                // If the device is down, it reads the ring when it is up again.
                let _ = queue.socket.kick_receive();
            }
        }
    }

    /// Puts a frame into the transmit ring.
    pub(crate) fn send(&mut self, slots: &mut Slots, frame: Frame) -> Result<(), Frame> {
        // Only one queue is used, so that frames keep their order.
        let queue = &mut self.queues[0];
        if queue.socket.send.room(1) == 0 {
            reap(queue, slots);
            if queue.socket.send.room(1) == 0 {
                return Err(frame);
            }
        }
        let (addr, len) = slots.give(frame);
        queue.socket.send.push(libc::xdp_desc { addr, len, options: 0 });
        queue.unseen = true;
        self.stats.sent += 1;
        Ok(())
    }

    /// Makes the kernel send queued frames, and reclaims the slots of frames that were sent.
    pub(crate) fn flush(&mut self, slots: &mut Slots) {
        let queue = &mut self.queues[0];
        if !queue.unseen {
            return;
        }
        queue.socket.send.publish();
        match queue.kick(&mut self.stats.send_calls) {
            Ok(KickOutcome::Done | KickOutcome::Later) => (),
            // The ring holds these frames until the device is up again, possibly forever. Frames that no
            // longer fit are refused.
            Ok(KickOutcome::Down) | Err(_) => self.stats.refused += 1,
        }
        reap(queue, slots);
    }

    pub(crate) fn stats(&self) -> FrameStats {
        let receive_drops = self.queues.iter().map(|queue| queue.socket.drops()).sum();
        FrameStats { receive_drops, ..self.stats }
    }

    pub(crate) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.socket.fd()).collect()
    }
}

/// Reclaims the slots of frames that were sent.
fn reap(queue: &mut Queue, slots: &mut Slots) {
    let (umem, free) = slots.parts();
    queue.completions.with(|completions| completions.take(umem, 0, free));
}

/// Attaches the program as the mode specifies, or in the best mode that the device supports.
fn attach_to(
    program: &OwnedFd,
    device: &NamedInterface,
    mode: XdpMode,
) -> Result<(Attachment, Place), FramesError> {
    let mut refusal = None;
    for &place in attach::places(mode) {
        match attach::attach(program, device.index, place) {
            Ok(attachment) => return Ok((attachment, place)),
            Err(error) if attach::is_taken(&error) => {
                return Err(FramesError::Taken { name: device.name.clone(), source: error });
            }
            Err(error) => refusal = Some(error),
        }
    }
    Err(open_error(device, "attaching the XDP program", refusal.expect("at least one place was tried")))
}

fn no_socket(device: &NamedInterface, failed: SetupError) -> FramesError {
    let (name, mtu) = (device.name.clone(), device.state.mtu);
    match (failed.step, failed.error.raw_os_error()) {
        (SetupStep::Bind, Some(libc::EBUSY)) => FramesError::Taken { name, source: failed.error },
        (SetupStep::Open, _) | (SetupStep::Bind, Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            FramesError::NoXdp { name, mtu, source: failed.error }
        }
        (step, _) => {
            let step = match step {
                SetupStep::Register => "registering frames",
                SetupStep::Rings => "mapping the rings",
                _ => "binding to a queue",
            };
            open_error(device, step, failed.error)
        }
    }
}

fn open_error(device: &NamedInterface, step: &'static str, source: io::Error) -> FramesError {
    let (name, mtu) = (device.name.clone(), device.state.mtu);
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            FramesError::NoPrivilege { name, what: "the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF" }
        }
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => FramesError::NoXdp { name, mtu, source },
        _ => FramesError::System { name, step, source },
    }
}
