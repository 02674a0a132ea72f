//! Settings from a program's bytes, with small limits that a short program reaches.

use homa_proto::{Config, FinishedPolicy, MS, SEC, US};

use super::input::Input;

/// Returns settings that `Config::validate` accepts.
pub fn config(input: &mut Input<'_>) -> Config {
    let num_priorities = input.one_of(&[8, 1, 2, 4, 7]);
    let resend_interval_ns = input.one_of(&[5 * MS, 1, 200 * US, MS]);
    let config = Config {
        seed: input.number::<1>(),
        unsched_bytes: input.one_of(&[10_000, 1, 1_424, 3_000, 40_000]),
        window: input.one_of(&[0, 1, 1_424, 20_000]),
        max_incoming: input.one_of(&[40_000, 1, 2_000, 15_000]),
        max_overcommit: input.one_of(&[8, 1, 2]),
        min_grant_increment: input.one_of(&[1_000, 0, 10_000]),
        fifo_grant_increment: input.one_of(&[5_000, 0, 1, 50_000]),
        grant_fifo_fraction: input.one_of(&[50, 0, 499]),
        pacer_fifo_fraction: input.one_of(&[50, 0, 499]),
        num_priorities,
        max_sched_prio: input.one_of(&[3, 0, 1, 7]).min(num_priorities - 1),
        cutoff_interval_ns: input.one_of(&[0, 1, MS]),
        cutoff_min_bytes: input.one_of(&[10_000, 0, 1]),
        link_mbps: input.one_of(&[None, Some(1), Some(1_000), Some(400_000)]),
        link_margin: input.one_of(&[10, 0, 999]),
        max_nic_backlog_ns: input.one_of(&[5 * US, 0, MS]),
        defer_min_bytes: input.one_of(&[1_000, 0, 100_000]),
        resend_interval_ns,
        resend_interval_max_ns: resend_interval_ns * input.one_of(&[10, 1, 3]),
        max_resends: input.one_of(&[3, 0, 1, 12]),
        resend_spacing_ns: input.one_of(&[200 * US, 0, 10 * MS]),
        client_silence_ns: input.one_of(&[100 * MS, 0, 10, 2 * MS, 2 * SEC]),
        need_ack_interval_ns: input.one_of(&[2 * MS, 0, 100]),
        need_ack_interval_max_ns: input.one_of(&[20 * MS, 0, 2 * MS]),
        max_need_acks: input.one_of(&[3, 0, 12]),
        max_packet_lifetime_ns: input.one_of(&[SEC, 0, MS, 10 * SEC]),
        max_finished_blocks: input.one_of(&[100, 0, 1, 3]),
        finished_policy: input.one_of(&[FinishedPolicy::Refuse, FinishedPolicy::ForgetOldest]),
        max_message: input.one_of(&[200_000, 1, 5_000, 2_000_000]),
        max_rpcs: input.one_of(&[16, 1, 2, 5, 70]),
        request_readable_step: input.one_of(&[0, 1, 3_000]),
        reserve_rpcs: input.one_of(&[0, 4]),
        max_outgoing_bytes: input.one_of(&[1 << 32, 0, 1_000, 100_000]),
        max_incoming_bytes: input.one_of(&[1 << 30, 0, 1_000, 100_000]),
        max_peers: input.one_of(&[8, 1, 2, 3]),
        max_acks_per_peer: input.one_of(&[256, 2, 1, 4]),
        max_gaps: input.one_of(&[8, 1, 2]),
        max_retransmits: input.one_of(&[16, 0, 1]),
        reap_limit: input.one_of(&[16, 1, 2]),
        max_control_packets: input.one_of(&[64, 0, 1, 8]),
        max_packet: input.one_of(&[1_480, 57, 58, 1_000, 9_000, 65_535]),
        ..Config::default()
    };
    // Derived from a byte that is already in use, so that stored programs keep their meaning.
    let resend_spacing_max_ns = [6_400 * US, 0, 300 * US, 100 * MS][config.seed as usize % 4];
    let max_packet = config.max_packet.max(least_packet(&config));
    let config = Config { max_packet, resend_spacing_max_ns, ..config };
    match config.validate() {
        Ok(()) => config,
        // A constraint between settings may become stricter; programs that violate it are skipped.
        Err(_) => Config { reserve_rpcs: 0, ..Config::default() },
    }
}

/// Returns the minimum packet size to try. Packets with one byte of payload are used only with short
/// messages: 65,536 packets would take too long.
pub fn least_packet(config: &Config) -> u32 {
    if config.max_message > 5_000 { 1_000 } else { 57 }
}
