//! Published results for the same parameters: the notes of Linux Homa, of Homa in RAMCloud, and a patch for
//! receive steering. The networks measured there have 10 to 100 Gbit/s.

use serde_json::{Value, json};

/// A published result.
pub struct Note {
    /// The settings or experiments to which the result applies.
    pub about: &'static [&'static str],
    /// Source and date.
    pub source: &'static str,
    /// The result.
    pub found: &'static str,
}

const SWEEP: &str = "Linux Homa's notes, January 2021 (40 hosts, 25 Gbit/s, MTU 3000)";
const RAMCLOUD: &str = "notes on Homa in RAMCloud (10 Gbit/s)";

/// All published results.
pub const NOTES: &[Note] = &[
    Note {
        about: &["unsched_bytes", "unsched_from_rtt", "min_unsched_bytes", "max_unsched_bytes"],
        source: SWEEP,
        found: "60 KB was best, with little to lose: less than 10 % at 40 KB",
    },
    Note {
        about: &["unsched_bytes", "unsched_from_rtt", "rtt_slack_packets"],
        source: RAMCLOUD,
        found: "a round trip must include the packet's way, the answer's time and the grant's way, 8 us. Too high a value hurt the tail of \
                short messages, too low a value left gaps after the first grant; 14 us sustained 90 % load",
    },
    Note {
        about: &["window", "max_incoming"],
        source: "Linux Homa's notes, August 2022 (2 hosts, 25 Gbit/s)",
        found: "with a window of 60 KB two hosts reached some 10 Gbit/s: packets often took 30 us or more one way, and the outstanding grants \
                did not cover that time",
    },
    Note {
        about: &["duty_cycle", "window"],
        source: SWEEP,
        found: "limiting a message to 40 % of the link made short messages 25 % faster in W4 and 40 % faster in W5",
    },
    Note {
        about: &[
            "fifo_share",
            "grant_fifo_fraction",
            "pacer_fifo_fraction",
            "fifo_grant_increment",
            "starve",
        ],
        source: SWEEP,
        found: "no effect on the P99 of short messages except in W3, where it was 10 % worse; it had halved the P99 of the largest messages \
                in an earlier W4 with longer messages",
    },
    Note {
        about: &["max_nic_backlog_ns"],
        source: SWEEP,
        found: "without a limit the P99 of short messages was 5 to 10 times as long. Values from 1 to 10 us made no difference there; for the median \
                shorter was better, 1 us a little better than 2",
    },
    Note {
        about: &["max_nic_backlog_ns"],
        source: RAMCLOUD,
        found: "a sender whose estimate of the card's queue wrapped below zero filled that queue, and every packet's delay rose while long \
                messages were sent",
    },
    Note {
        about: &["poll_us"],
        source: SWEEP,
        found: "0 to 50 us were the same for W4 and W5; in W2 and W3 the P99 of short messages was 10 to 20 % better with 50 us than without",
    },
    Note {
        about: &["poll_us"],
        source: "Linux Homa's notes, July and October 2020",
        found: "without load an RPC is 4 us faster with polling, and its tail up to 25 us, mostly for short messages. 500 us helped W4 and hurt W1 and \
                W3, where polling threads took cores from threads with work",
    },
    Note {
        about: &["wake_order"],
        source: "Linux Homa's notes",
        found: "waking the thread that fell asleep last was 0.2 to 0.5 us faster at low load, where a few threads of a pool then do all work",
    },
    Note {
        about: &["endpoints", "client_threads", "client-threads"],
        source: SWEEP,
        found: "three client ports were enough: W2 did not keep up with one or two, W3 not with one. More made little difference",
    },
    Note {
        about: &["server_ports", "server_threads", "server-ports"],
        source: SWEEP,
        found: "little depends on the number of ports; three with two receivers each were the best choice. Two receivers a port had a P99 of \
                short messages 1.5 to 2 times better than four in W2 and W3; in W5 three were 10 % better than two",
    },
    Note {
        about: &["server_threads", "port_receivers", "server-ports", "client-threads"],
        source: "Linux Homa's notes, March 2020",
        found: "several receivers at a port instead of one, at clients and servers, reduced the slowdown of short messages in W5 from 7 and 65 (P50 and \
                P99) to 2.5 and 7.5",
    },
    Note {
        about: &["link_margin", "link_mbps"],
        source: "Linux Homa's notes, October 2020",
        found: "assuming 1 % less than the link's rate instead of 5 % less made large messages up to twice as fast; short ones changed little, \
                and rather for the worse",
    },
    Note {
        about: &["max_segmented_bytes"],
        source: SWEEP,
        found: "batches of 10 KB looked best, longer ones much the same; with 5 KB the P99 of short messages was 10 to 20 % worse",
    },
    Note {
        about: &["max_segmented_bytes", "mtu"],
        source: "Linux Homa's notes, November 2022",
        found: "segmenting 64 KB into jumbo frames in software took 17 us on an AMD processor, mostly for allocating packets",
    },
    Note {
        about: &["batch_cap"],
        source: SWEEP,
        found: "larger is better: at 5 packets a batch the P99 of short messages was 10 to 15 % worse. Very large batches seemed to delay \
                grants, so 10 was thought best",
    },
    Note {
        about: &["batch_cap", "min_grant_increment"],
        source: "Linux Homa's notes, November 2019",
        found: "the kernel collects packets before it delivers them, which delays grants; limiting this did not change throughput",
    },
    Note {
        about: &["batch_cap", "min_grant_increment"],
        source: RAMCLOUD,
        found: "grants sent at the end of a batch of packets, not after each one, made the transport faster",
    },
    Note {
        about: &["defer_min_bytes"],
        source: SWEEP,
        found: "values from 100 to 2000 bytes made hardly any difference",
    },
    Note {
        about: &["ready_order"],
        source: "Linux Homa's notes, October 2020",
        found: "delivering the shortest complete message first had no clear benefit, and keeping messages in that order cost throughput",
    },
    Note {
        about: &["priorities", "switch_priorities", "num_priorities"],
        source: RAMCLOUD,
        found: "a run of Homa with one level was planned, to separate the effects of grants and of priorities; there are no figures",
    },
    Note {
        about: &["max_overcommit"],
        source: "the defaults of Linux Homa",
        found: "grants go to eight messages at a time; the notes do not vary this number",
    },
    Note {
        about: &["mtu"],
        source: "Linux Homa's notes, November 2022",
        found: "one client with messages of 500 KB: 3.4 Gbit/s each way at MTU 1500 on 25 Gbit/s, 6.7 to 7.5 at MTU 9000 on 100 Gbit/s, other \
                processors; RPCs of 100 bytes took 17 and 28 us",
    },
    Note {
        about: &["rps"],
        source: "a patch to Linux's receive packet steering (a router of 2 cores with 4 threads at 25 MHz, iptables/NAT, 10 runs)",
        found: "a processor for each of a few flows, instead of a choice by hash, forwarded 41 % more with one flow, 34 % with two, 14 % with \
                four, 9 % with eight, 1.5 % with 16 and 1 % less with 32; with few flows the runs also varied less",
    },
    Note {
        about: &["rps-server-threads"],
        source: "Linux Homa's notes, November 2019 (two machines at 25 Gbit/s, lone RPCs of 100 bytes)",
        found: "without and with the kernel's steering (RPS and RFS) a round trip over Homa took 16.0 and 17.1 us with one server thread, 16.3 and \
                21.5 us with 18; over TCP 20.0 and 21.9 us, and 25.5 and 26.5 us",
    },
    Note {
        about: &["gro_policy"],
        source: SWEEP,
        found: "the usual way to choose the core for a batch of packets was always the best; others had a P99 of short messages 10 to 25 % worse",
    },
];

/// Returns the published results on a setting or an experiment.
pub fn notes_on(subject: &str) -> impl Iterator<Item = &'static Note> {
    NOTES.iter().filter(move |note| note.about.contains(&subject))
}

/// Returns the published results as text, one line each.
pub fn lines(subject: &str) -> Vec<String> {
    notes_on(subject).map(|note| format!("{}: {}", note.source, note.found)).collect()
}

/// Returns the published results as JSON.
pub fn json(subject: &str) -> Value {
    notes_on(subject).map(|note| json!({ "source": note.source, "found": note.found })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::settings::{MISSING, names};

    /// Subjects of published results that are not settings.
    const EXPERIMENTS: [&str; 6] =
        ["mtu", "client-threads", "server-ports", "starve", "rps", "rps-server-threads"];

    #[test]
    fn notes_are_about_what_there_is() {
        let known: Vec<&str> =
            names().chain(MISSING.iter().map(|&(name, _)| name)).chain(EXPERIMENTS).collect();
        for note in NOTES {
            assert!(
                !note.about.is_empty() && note.about.iter().all(|subject| known.contains(subject)),
                "{:?}",
                note.about
            );
        }
        for subject in EXPERIMENTS {
            assert_eq!(json(subject).as_array().map(Vec::len), Some(lines(subject).len()));
            assert!(!lines(subject).is_empty(), "{subject}");
        }
    }

    #[test]
    fn every_setting_of_a_host_that_was_published_about_has_its_note() {
        for setting in [
            "duty_cycle",
            "poll_us",
            "wake_order",
            "endpoints",
            "max_segmented_bytes",
            "batch_cap",
            "link_margin",
        ] {
            assert!(notes_on(setting).next().is_some(), "{setting}");
        }
    }
}
