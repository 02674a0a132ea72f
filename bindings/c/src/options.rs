//! Options of a host, by name. Each is either the `homa serve` option of the same name, or is marked as
//! having no counterpart.

use std::ffi::{CStr, CString, c_char};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use homa::driver::xdp::XdpMode;
use homa::{DriverChoice, HostConfig};

use crate::border::{Failure, answer, room, text};
use crate::handle::{find, take, write_handle};
use crate::result::homa_result;

/// Options of a host. Opaque. Names and values are texts: later versions can add options, and programs can
/// pass their users' options on. Every function may be called with it from any thread at any time.
pub struct homa_options {
    _opaque: [u8; 0],
}

pub(crate) struct Options {
    config: Mutex<HostConfig>,
}

impl Options {
    pub(crate) fn config(&self) -> HostConfig {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An option.
#[repr(C)]
pub struct homa_option {
    /// Its name, such as "poll-us". It remains valid until the process ends.
    pub name: *const c_char,
    /// Its meaning and its permitted values. It remains valid until the process ends.
    pub meaning: *const c_char,
    /// The default value; empty if there is none. It remains valid until the process ends.
    pub value: *const c_char,
}

struct Setting {
    name: &'static str,
    meaning: &'static str,
    get: fn(&HostConfig) -> String,
    /// Sets the value. The error is the text after "the option ... is ...: ".
    set: fn(&mut HostConfig, &str) -> Result<(), String>,
}

/// Drivers by their names.
const DRIVERS: [(&str, DriverChoice); 5] = [
    ("udp", DriverChoice::Udp),
    ("raw", DriverChoice::Raw),
    ("linux-udp", DriverChoice::LinuxUdp),
    ("packet", DriverChoice::Packet),
    ("xdp", DriverChoice::Xdp),
];

const XDP_MODES: [(&str, XdpMode); 3] =
    [("auto", XdpMode::Auto), ("native", XdpMode::Native), ("generic", XdpMode::Generic)];

const FLAGS: [(&str, bool); 2] = [("true", true), ("false", false)];

const SETTINGS: [Setting; 20] = [
    Setting {
        name: "bind",
        meaning: "The IP address of the host, and its UDP port if the driver uses one, as in \
                  10.0.0.7:14600 or [::]:0. Port 0: any free port.",
        get: |config| config.address.to_string(),
        set: |config, text| {
            config.address =
                text.parse().map_err(|_| "write an IP address and a UDP port, like 10.0.0.7:14600")?;
            Ok(())
        },
    },
    Setting {
        name: "driver",
        meaning: "The driver of packets: udp, without privileges; raw, raw IP (protocol 146) like Linux \
                  Homa, needs CAP_NET_RAW; linux-udp, UDP port 54321 like Linux Homa's UDP form; packet, a network device, needs CAP_NET_RAW; xdp, the receive \
                  queues of a device (AF_XDP), needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF. Peers need \
                  the same protocol: udp, packet and xdp all use UDP.",
        get: |config| name_of(&DRIVERS, config.driver),
        set: |config, text| choose(&DRIVERS, text).map(|driver| config.driver = driver),
    },
    Setting {
        name: "interface",
        meaning: "The network device for the drivers packet and xdp. Empty: the one with the address of \
                  bind.",
        get: |config| config.packet.interface.clone().unwrap_or_default(),
        set: |config, text| {
            config.packet.interface = (!text.is_empty()).then(|| text.to_owned());
            config.xdp.interface.clone_from(&config.packet.interface);
            Ok(())
        },
    },
    Setting {
        name: "queues",
        meaning: "Receive queues for the driver xdp, as in 0-3,6; packets on other queues are lost. Empty: \
                  all.",
        get: |config| {
            let queues = config.xdp.queues.iter().flatten().map(u32::to_string);
            queues.collect::<Vec<_>>().join(",")
        },
        set: |config, text| {
            config.xdp.queues = if text.is_empty() { None } else { Some(queues(text)?) };
            Ok(())
        },
    },
    Setting {
        name: "xdp-mode",
        meaning: "Where the kernel runs the program of the driver xdp: native, in the device's driver; \
                  generic, on any device; auto, native if the device supports it.",
        get: |config| name_of(&XDP_MODES, config.xdp.mode),
        set: |config, text| choose(&XDP_MODES, text).map(|mode| config.xdp.mode = mode),
    },
    Setting {
        name: "segment-dir",
        meaning: "The directory of the file by which processes share an address over raw IP and with \
                  the driver linux-udp; it must be \
                  the same for all of them, and in memory. The command homa has no such option.",
        get: |config| config.segment_dir.display().to_string(),
        set: |config, text| {
            config.segment_dir = text.into();
            Ok(())
        },
    },
    Setting {
        name: "endpoints",
        meaning: "Endpoints of the host, 1 to 64, each with a packet path, a lock and its part of the \
                  client ports: about one for each core that the network traffic can saturate. A socket \
                  with a server port is in all endpoints, and each of its threads waits at one; any other \
                  socket is in one endpoint.",
        get: |config| config.endpoints.to_string(),
        set: |config, text| {
            config.endpoints = number(text, 1, HostConfig::MAX_ENDPOINTS as u64)? as usize;
            Ok(())
        },
    },
    Setting {
        name: "poll-us",
        meaning: "How long a waiting thread polls before it sleeps in the kernel, since the last packet, \
                  in microseconds, up to 1000000; 0: it sleeps at once.",
        get: |config| config.poll.as_micros().to_string(),
        set: |config, text| {
            config.poll = Duration::from_micros(number(text, 0, 1_000_000)?);
            Ok(())
        },
    },
    Setting {
        name: "wake-order",
        meaning: "Which sleeping thread is woken if several could do the work: lifo, the last to fall \
                  asleep; fifo, the first; least-recent, the one whose core was idle for longest.",
        get: |config| config.wake_order.to_string(),
        set: |config, text| {
            config.wake_order = text.parse().map_err(|error: homa::steer::SteerError| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "batch-cap",
        meaning: "Maximum receive batch, 1 to 32 packets; replies are sent after the whole batch.",
        get: |config| config.batch_cap.to_string(),
        set: |config, text| {
            let packets = number(text, 1, homa::driver::BURST_PACKETS as u64)? as u32;
            config.batch_cap =
                homa::steer::batch::BatchCap::new(packets).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "low-latency",
        meaning: "true: keep the processors out of deep sleep while RPCs are in flight, which needs write \
                  access to /dev/cpu_dma_latency.",
        get: |config| name_of(&FLAGS, config.low_latency),
        set: |config, text| choose(&FLAGS, text).map(|flag| config.low_latency = flag),
    },
    Setting {
        name: "link-mbps",
        meaning: "Link speed in Mbit/s. Empty: as reported by the network device; if it reports none, \
                  nothing is paced.",
        get: |config| config.protocol.link_mbps.map(|mbps| mbps.to_string()).unwrap_or_default(),
        set: |config, text| {
            let mbps = if text.is_empty() { None } else { Some(number(text, 1, u32::MAX.into())?) };
            config.protocol.link_mbps = mbps.map(|mbps| mbps as u32);
            Ok(())
        },
    },
    Setting {
        name: "max-message",
        meaning: "Maximum bytes of a message to send or receive, 1 to 2147483647.",
        get: |config| config.protocol.max_message.to_string(),
        set: |config, text| {
            let bytes = number(text, 1, i32::MAX as u64)?;
            let protocol = &mut config.protocol;
            protocol.max_message = bytes as u32;
            // There must be room for several messages.
            let room = ROOM_MESSAGES * bytes;
            protocol.max_incoming_bytes = protocol.max_incoming_bytes.max(room);
            protocol.max_outgoing_bytes = protocol.max_outgoing_bytes.max(room);
            config.max_queued_request_bytes = config.max_queued_request_bytes.max(room);
            Ok(())
        },
    },
    Setting {
        name: "max-resends",
        meaning: "RESENDs that a call sends without any answer before it fails because its server is down, 1 \
                  to 255. They are at most 50 ms apart. More of them suit servers that may stand still for \
                  seconds. The command homa has no such option.",
        get: |config| config.protocol.max_resends.to_string(),
        set: |config, text| {
            config.protocol.max_resends = number(text, 1, u8::MAX.into())? as u32;
            Ok(())
        },
    },
    Setting {
        name: "linger-ms",
        meaning: "Maximum time for which the end of the host waits until its last responses are \
                  acknowledged, in milliseconds, up to 3600000. The command homa has no such option.",
        get: |config| config.linger.as_millis().to_string(),
        set: |config, text| {
            config.linger = Duration::from_millis(number(text, 0, 3_600_000)?);
            Ok(())
        },
    },
    Setting {
        name: "trace-records",
        meaning: "Events in the time trace of each endpoint, up to 16777216, rounded up to a power of two, \
                  32 bytes of memory each; 0: no trace. See homa_trace_save().",
        get: |config| config.trace_records.to_string(),
        set: |config, text| {
            config.trace_records = number(text, 0, 1 << 24)? as usize;
            Ok(())
        },
    },
    Setting {
        name: "trace-slower-than",
        meaning: "Freeze the trace when a call takes at least this long, as in 1ms or 250us. Empty: never.",
        get: |config| {
            let bound = config.trace_freeze_slower_than;
            bound.map(|bound| format!("{}ns", bound.as_nanos())).unwrap_or_default()
        },
        set: |config, text| {
            config.trace_freeze_slower_than = if text.is_empty() { None } else { Some(duration(text)?) };
            Ok(())
        },
    },
    Setting {
        name: "trace-freeze-peers",
        meaning: "true: when a slow call or homa_trace_freeze() freezes the trace, make all peers freeze \
                  theirs at the same moment.",
        get: |config| name_of(&FLAGS, config.trace_freeze_peers),
        set: |config, text| choose(&FLAGS, text).map(|flag| config.trace_freeze_peers = flag),
    },
    Setting {
        name: "trace-obey-freeze",
        meaning: "false: do not freeze the trace at the request of a peer. The command homa has no such \
                  option.",
        get: |config| name_of(&FLAGS, config.trace_obey_freeze),
        set: |config, text| choose(&FLAGS, text).map(|flag| config.trace_obey_freeze = flag),
    },
    Setting {
        name: "trace-device-times",
        meaning: "true: record also the times at which the kernel received each packet from the device and \
                  gave each sent packet to the device (not with the driver xdp). Also record the priority \
                  of received packets; drivers that see the IP header always do.",
        get: |config| name_of(&FLAGS, config.trace_device_times),
        set: |config, text| choose(&FLAGS, text).map(|flag| config.trace_device_times = flag),
    },
];

/// Minimum number of messages of the largest size for which a host reserves room: as many as `homa serve`.
const ROOM_MESSAGES: u64 = 512;

fn name_of<T: Copy + PartialEq>(names: &[(&str, T)], value: T) -> String {
    names.iter().find(|(_, known)| *known == value).map(|(name, _)| (*name).to_owned()).unwrap_or_default()
}

fn choose<T: Copy>(names: &[(&str, T)], text: &str) -> Result<T, String> {
    names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        format!("choose {}", names.join(" or "))
    })
}

/// Parses a whole number between two inclusive bounds.
fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("write a whole number, {least} to {most}"))
}

/// Parses a list of queues, as in 0-3,6.
fn queues(text: &str) -> Result<Vec<u32>, String> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(u32::from(first)..=u32::from(last))
    };
    let parts: Option<Vec<_>> = text.split(',').map(part).collect();
    Ok(parts.ok_or("write numbers and ranges of them, as in 0-3,6")?.into_iter().flatten().collect())
}

/// Parses a time with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let read = units.iter().find_map(|(unit, scale)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        Some(number * scale).filter(|ns| (0.0..1e18).contains(ns))
    });
    read.map(|ns| Duration::from_nanos(ns as u64))
        .ok_or_else(|| "write a number and ns, us, ms or s, as in 1ms".to_owned())
}

/// Sets one option.
fn set(config: &mut HostConfig, name: &str, value: &str) -> Result<(), Failure> {
    let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
        let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        return Err(Failure::argument(format!("there is no option {name:?}: choose {}", names.join(", "))));
    };
    let wrong = |remedy| Failure::argument(format!("the option {name} is {value:?}: {remedy}"));
    (setting.set)(config, value).map_err(wrong)
}

/// Creates options with defaults that suit most programs.
///
/// On success `*options` is a handle that belongs to the caller until homa_options_free().
///
/// HOMA_ARGUMENT: `options` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_options_new(options: *mut *mut homa_options) -> homa_result {
    answer(|| {
        room(options, "options")?;
        // SAFETY: `options` is not NULL, and homa.h requires room for a pointer.
        unsafe { write_handle(options, Arc::new(Options { config: Mutex::new(HostConfig::default()) })) }
    })
}

/// Sets an option, by its name and the text of its value, such as "poll-us" and "20". The options are those
/// of `homa serve`; homa_option_list() lists them.
///
/// `name` and `value` are only read, and are not kept.
///
/// HOMA_ARGUMENT: an argument is NULL, `options` is not a valid handle, there is no option of this name, or
/// it does not permit the value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_options_set(
    options: *mut homa_options,
    name: *const c_char,
    value: *const c_char,
) -> homa_result {
    answer(|| {
        let options = find(options, "options")?;
        // SAFETY: homa.h requires that both are NULL or zero-terminated strings.
        let (name, value) = unsafe { (text(name, "name")?, text(value, "value")?) };
        set(&mut options.config.lock().unwrap_or_else(PoisonError::into_inner), name, value)
    })
}

/// Frees options. A host that was opened with them keeps the values of that moment. NULL does nothing.
///
/// HOMA_ARGUMENT: `options` is not a valid handle, or was freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_options_free(options: *mut homa_options) -> homa_result {
    answer(|| take(options, "options").map(drop))
}

/// Returns the names, meanings and defaults as C strings.
fn texts() -> &'static [[CString; 3]] {
    static TEXTS: OnceLock<Vec<[CString; 3]>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let (config, text) = (HostConfig::default(), |text: &str| CString::new(text).unwrap_or_default());
        let texts =
            |setting: &Setting| [text(setting.name), text(setting.meaning), text(&(setting.get)(&config))];
        SETTINGS.iter().map(texts).collect()
    })
}

/// Lists all options, for the help text of a program.
///
/// `into` has room for `room` options and belongs to the caller; at most `room` are written. `*count` is the
/// number of options in this version of the library. To learn it, call the function with `room` 0; `into` may
/// then be NULL. `count` may be NULL.
///
/// HOMA_ARGUMENT: `into` is NULL although there is room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_option_list(
    into: *mut homa_option,
    room: usize,
    count: *mut usize,
) -> homa_result {
    answer(|| {
        if into.is_null() && room > 0 {
            return Err(Failure::null("into"));
        }
        let shown = |text: &'static CString| -> *const c_char { CStr::as_ptr(text) };
        for (index, [name, meaning, value]) in texts().iter().take(room).enumerate() {
            let option = homa_option { name: shown(name), meaning: shown(meaning), value: shown(value) };
            // SAFETY: `index` is below `room`, and homa.h requires room for `room` options.
            unsafe { into.add(index).write(option) };
        }
        if !count.is_null() {
            // SAFETY: `count` is not NULL, and homa.h requires room for a number.
            unsafe { count.write(SETTINGS.len()) };
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, value: &str) -> String {
        let failure = set(&mut HostConfig::default(), name, value).err();
        failure.map(|failure| failure.text.into_owned()).unwrap_or_default()
    }

    #[test]
    fn what_an_option_says_can_be_said_to_it() {
        let mut config = HostConfig::default();
        for (name, value) in [
            ("bind", "[::1]:7"),
            ("driver", "xdp"),
            ("interface", "eth0"),
            ("queues", "0,1,2,6"),
            ("xdp-mode", "generic"),
            ("segment-dir", "/run"),
            ("endpoints", "3"),
            ("poll-us", "7"),
            ("wake-order", "least-recent"),
            ("batch-cap", "4"),
            ("low-latency", "true"),
            ("link-mbps", "25000"),
            ("max-resends", "255"),
            ("max-message", "100000000"),
            ("linger-ms", "9"),
            ("trace-records", "0"),
            ("trace-slower-than", "1500ns"),
            ("trace-freeze-peers", "true"),
            ("trace-obey-freeze", "false"),
            ("trace-device-times", "true"),
        ] {
            let setting = SETTINGS.iter().find(|setting| setting.name == name).unwrap();
            let before = (setting.get)(&config);
            assert_ne!(before, value, "{name} has this value already");
            assert!(set(&mut config, name, &before).is_ok(), "{name} takes no {before:?}");
            assert!(set(&mut config, name, value).is_ok(), "{name}");
            assert_eq!((setting.get)(&config), value, "{name}");
        }
        assert_eq!(config.xdp.interface.as_deref(), Some("eth0"));
        assert!(config.protocol.max_incoming_bytes >= 512 * 100_000_000);
        assert_eq!(config.trace_freeze_slower_than, Some(Duration::from_nanos(1_500)));
    }

    #[test]
    fn wrong_values_are_named_with_the_remedy() {
        for (name, value, remedy) in [
            ("color", "red", "choose bind, driver, "),
            ("driver", "tcp", "choose udp or raw or linux-udp or packet or xdp"),
            ("bind", "here", "10.0.0.7:14600"),
            ("queues", "3-1", "0-3,6"),
            ("endpoints", "65", "1 to 64"),
            ("poll-us", "-1", "0 to 1000000"),
            ("batch-cap", "33", "1 to 32"),
            ("wake-order", "random", "lifo"),
            ("max-message", "2147483648", "1 to 2147483647"),
            ("low-latency", "yes", "true or false"),
            ("trace-slower-than", "soon", "1ms"),
        ] {
            let text = refused(name, value);
            assert!(text.contains(remedy) && text.contains(name), "{name}: {text}");
        }
    }
}
