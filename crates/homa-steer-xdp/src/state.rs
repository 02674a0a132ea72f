//! The state of a steering program, and its layout in the maps that the program shares with readers of its
//! status.

use homa_steer::{CORE_NUMBERS, Cores, MAX_CORES, MAX_LEVELS, NEVER, Reason};

use crate::config::{Filter, SteerConfig};

/// Number of entries in the flow table.
pub(crate) const FLOW_ENTRIES: usize = 1_024;

/// Length of a cache line. Data written by different cores is at least this far apart.
const LINE: usize = 64;

/// The state shared by all cores: one value of an array, at the start of a page.
pub(crate) mod shared_state {
    use super::{CORE_NUMBERS, FLOW_ENTRIES, LINE, MAX_CORES, MAX_LEVELS};

    /// When `sparse` last used the hash.
    pub(crate) const HASH_USED: usize = 0;
    /// The numbers of the cores to select from, 32 bits each.
    pub(crate) const CORES: usize = LINE;
    /// For some bits of a flow's hash: the time and destination of the flow's last packet, 32 bits each.
    pub(crate) const FLOWS: usize = CORES + 4 * MAX_CORES;
    /// The slots of `sparse`, level by level.
    pub(crate) const SLOTS: usize = FLOWS + 4 * FLOW_ENTRIES;
    /// The state of `gen2` for each core on which packets arrive, indexed by core number. From here on, no
    /// offset is used in an instruction.
    pub(crate) const CORE: usize = SLOTS + super::slot::BYTES * MAX_CORES * MAX_LEVELS as usize;
    /// When a packet was last given to each core, indexed by core number; written by other cores.
    pub(crate) const LAST_SENT: usize = CORE + CORE_NUMBERS * super::core_state::BYTES;
    /// The configuration; the program does not read it.
    pub(crate) const CONFIG: usize = LAST_SENT + CORE_NUMBERS * super::core_state::BYTES;
    /// Length of the complete state.
    pub(crate) const BYTES: usize = CONFIG + super::config_fields::BYTES;
}

/// The state of `gen2` for a core on which packets arrive. Only that core writes it.
pub(crate) mod core_state {
    /// Arrival time of the last packet whose exact time was read.
    pub(crate) const RECEIVED: usize = 0;
    /// Position of the last packet that arrived, in its batch.
    pub(crate) const POSITION: usize = 8;
    /// The core of the batch plus one; 0: none.
    pub(crate) const BATCH_CORE: usize = 12;
    /// Index of the next higher core among the cores to select from.
    pub(crate) const NEXT: usize = 16;
    /// Position in its batch of the last packet whose exact time was read.
    pub(crate) const READ_AT: usize = 20;
    /// The reading of the coarse clock when a packet last arrived.
    pub(crate) const TICK: usize = 24;
    /// Distance from one core's state to the next, also in the table at [`super::shared_state::LAST_SENT`].
    pub(crate) const BYTES: usize = super::LINE;
}

/// A slot of `sparse`.
pub(crate) mod slot {
    /// The device's index in the upper half, the hash in the lower half.
    pub(crate) const FLOW: usize = 0;
    pub(crate) const SEEN: usize = 8;
    pub(crate) const BYTES: usize = 16;
}

/// The configuration, as numbers of 32 bits.
pub(crate) mod config_fields {
    pub(crate) const VERSION: usize = 0;
    pub(crate) const POLICY: usize = 4;
    pub(crate) const CORES: usize = 8;
    pub(crate) const LEVELS: usize = 12;
    pub(crate) const FILTER: usize = 16;
    pub(crate) const BYTES: usize = 24;
}

/// Value of [`config_fields::VERSION`]. Incremented when the layout or a meaning here changes.
pub(crate) const VERSION: u32 = 4;

/// 64-bit counters, separate for each core.
pub(crate) mod counter {
    use super::{CORE_NUMBERS, Reason};

    /// Frames by [`Reason`].
    pub(crate) const REASONS: usize = 0;
    /// Frames that were not steered.
    pub(crate) const OTHERS: usize = 8 * 16;
    /// Frames for each core, indexed by core number, that the core itself had taken from the device.
    pub(crate) const KEPT: usize = OTHERS + 8;
    /// Frames for each core, indexed by core number, that were handed over to it.
    pub(crate) const HANDED: usize = KEPT + 8 * CORE_NUMBERS;
    /// Frames for each core, indexed by core number, that arrived from other cores. While a core is offline,
    /// frames that arrive at the core doing its work count here too.
    pub(crate) const CAME: usize = HANDED + 8 * CORE_NUMBERS;
    pub(crate) const BYTES: usize = CAME + 8 * CORE_NUMBERS;

    const _: () = assert!(Reason::ALL.len() <= 16);
}

// Offsets of loads and stores are signed 16-bit numbers.
const _: () = {
    assert!(shared_state::CORE < i16::MAX as usize && shared_state::CORE.is_multiple_of(LINE));
    assert!(counter::BYTES < i16::MAX as usize);
};

fn put(state: &mut [u8], at: usize, bytes: &[u8]) {
    state[at..at + bytes.len()].copy_from_slice(bytes);
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_ne_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_ne_bytes)
}

/// Returns the state before the first packet.
pub(crate) fn initial(config: &SteerConfig) -> Vec<u8> {
    let mut state = vec![0; shared_state::BYTES];
    put(&mut state, shared_state::HASH_USED, &NEVER.to_ne_bytes());
    for (place, &core) in config.cores.as_slice().iter().enumerate() {
        put(&mut state, shared_state::CORES + 4 * place, &u32::from(core).to_ne_bytes());
    }
    for number in 0..CORE_NUMBERS {
        let next = config.cores.place_after(number as u16) as u32;
        put(
            &mut state,
            shared_state::CORE + number * core_state::BYTES + core_state::NEXT,
            &next.to_ne_bytes(),
        );
    }
    for (place, number) in [
        (config_fields::VERSION, VERSION),
        (config_fields::POLICY, config.policy as u32),
        (config_fields::CORES, config.cores.len() as u32),
        (config_fields::LEVELS, config.settings.levels),
        (config_fields::FILTER, config.filter.bits()),
    ] {
        put(&mut state, shared_state::CONFIG + place, &number.to_ne_bytes());
    }
    state
}

/// The configuration, read from the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SteeringRequest {
    pub(crate) policy: homa_steer::PolicyName,
    pub(crate) cores: Cores,
    pub(crate) levels: u32,
    pub(crate) filter: Filter,
}

impl SteeringRequest {
    /// Parses the configuration; `None` if the state is from another version of this program.
    pub(crate) fn read(state: &[u8]) -> Option<SteeringRequest> {
        let number = |place: usize| u32_at(state, shared_state::CONFIG + place);
        let policy = homa_steer::POLICIES.get(number(config_fields::POLICY) as usize)?.policy;
        let count = (number(config_fields::CORES) as usize).min(MAX_CORES);
        let cores = (0..count).map(|place| u32_at(state, shared_state::CORES + 4 * place) as u16);
        let cores = Cores::new(cores).ok()?;
        let filter = Filter::of_bits(number(config_fields::FILTER));
        let is_ours = state.len() == shared_state::BYTES && number(config_fields::VERSION) == VERSION;
        is_ours.then_some(SteeringRequest { policy, cores, levels: number(config_fields::LEVELS), filter })
    }
}

/// Unit of the times in the flow table, as a right shift of nanoseconds.
pub(crate) const FLOW_TIME_SHIFT: u32 = 30;

/// Returns the approximate number of recent flows of each core, in the order of `cores`. Flows whose hashes
/// share an entry are estimated from the number of used entries.
pub(crate) fn flows(state: &[u8], cores: &Cores, now_ns: u64) -> Vec<f64> {
    let now = (now_ns >> FLOW_TIME_SHIFT) as u32 & 0x00ff_ffff;
    let entries = (0..FLOW_ENTRIES).map(|entry| u32_at(state, shared_state::FLOWS + 4 * entry));
    let lately: Vec<u32> = entries
        .filter(|&entry| entry != 0 && now.wrapping_sub(entry >> 8) & 0x00ff_ffff <= 1)
        .map(|entry| entry & 0xff)
        .collect();
    let empty = (FLOW_ENTRIES - lately.len()).max(1) as f64 / FLOW_ENTRIES as f64;
    // Linear counting: the number of flows that is expected to leave this many entries empty.
    let factor =
        if lately.is_empty() { 0.0 } else { -empty.ln() * FLOW_ENTRIES as f64 / lately.len() as f64 };
    let of = |core: u16| lately.iter().filter(|&&other| other == u32::from(core)).count() as f64;
    cores.as_slice().iter().map(|&core| of(core) * factor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_read_from_the_state() {
        let config = SteerConfig {
            policy: homa_steer::PolicyName::Gen2,
            cores: "1,4-6".parse().unwrap(),
            filter: Filter { homa: true, tcp: true, ..Filter::NONE },
            ..SteerConfig::default()
        };
        let state = initial(&config);
        let asked = SteeringRequest::read(&state).unwrap();
        assert_eq!((asked.policy, asked.levels), (config.policy, 4));
        assert_eq!((asked.cores, asked.filter), (config.cores, config.filter));
        let mut other = state.clone();
        other[shared_state::CONFIG] ^= 1;
        assert_eq!(SteeringRequest::read(&other), None, "another version");
        assert_eq!(SteeringRequest::read(&state[1..]), None);
        assert_eq!(SteeringRequest::read(&[]), None);
    }

    #[test]
    fn flows_are_counted_by_core_and_forgotten_after_two_seconds() {
        let cores: Cores = "0,3".parse().unwrap();
        let mut state = vec![0; shared_state::BYTES];
        for (entry, (time, core)) in [(100_u32, 3), (99, 3), (100, 0), (98, 0)].into_iter().enumerate() {
            put(&mut state, shared_state::FLOWS + 8 * entry, &(time << 8 | core).to_ne_bytes());
        }
        let counted = flows(&state, &cores, 100 << FLOW_TIME_SHIFT);
        assert_eq!(counted.iter().map(|flows| flows.round()).collect::<Vec<_>>(), [1.0, 2.0]);
        assert_eq!(flows(&state, &cores, 102 << FLOW_TIME_SHIFT), [0.0, 0.0]);
        for entry in 0..FLOW_ENTRIES as u32 / 2 {
            put(&mut state, shared_state::FLOWS + 4 * entry as usize, &(100_u32 << 8).to_ne_bytes());
        }
        let half = flows(&state, &cores, 100 << FLOW_TIME_SHIFT);
        assert!((700.0..720.0).contains(&half[0]), "ln 2 of the entries: {half:?}");
    }
}
