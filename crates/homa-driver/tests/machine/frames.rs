//! Devices whose frames are all received, in a network namespace. Needs root.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use homa_driver::frames::{FramePath, Frames, FramesConfig};
use homa_driver::xdp::XdpMode;
use homa_testkit::namespace::{V4, pair};

/// Frames arrive at each moment of opening a device.
#[test]
fn no_frame_is_dropped_while_a_device_is_opened() {
    const OPENINGS: u32 = 10;
    // The ring has room for every frame that is sent while a device is opened.
    const SENT: usize = 4_000;
    const RING: u32 = 8_192;
    let Some([near, far]) = pair(1_500) else { return };
    let socket = far.run(|| UdpSocket::bind((V4[1], 0)).unwrap());
    for path in [FramePath::Ring, FramePath::Xdp(XdpMode::Generic), FramePath::Auto] {
        let config = FramesConfig { path, receive_frames: RING, ..FramesConfig::new(vec!["v0".into()]) };
        let mut duration = Duration::ZERO;
        let mut received = 0;
        for opening in 0..OPENINGS {
            let (socket, config, delay) =
                (socket.try_clone().unwrap(), config.clone(), duration * opening / OPENINGS);
            let sender = thread::spawn(move || {
                thread::sleep(delay);
                for _ in 0..SENT {
                    socket.send_to(b"frame", (V4[0], 9)).unwrap();
                }
            });
            let begin = Instant::now();
            let mut frames = near.run(move || Frames::open(&config)).unwrap();
            duration = duration.max(begin.elapsed());
            sender.join().unwrap();
            received += frames.receive(0, SENT, &mut Vec::new());
            assert_eq!(frames.stats(0).receive_drops, 0, "{path:?}");
        }
        assert!(received > 0, "{path:?}");
    }
}
