//! Gets and sets the protocol's settings by name: every field of [`Config`] that a user may set, parsed from
//! text and formatted as JSON.
//!
//! In the simulator, the rack and sweeps, settings are named after the fields of [`Config`], so one list
//! serves all of them.
//!
//! ```
//! let mut config = homa_proto::Config::default();
//! homa_settings::set_field(&mut config, "max_overcommit", "4")?;
//! assert_eq!(config.max_overcommit, 4);
//! # Ok::<(), String>(())
//! ```
#![forbid(unsafe_code)]

use homa_proto::wire::PRIORITIES;
use homa_proto::{Config, Dialect};
use serde_json::{Map, Value};

/// The type of a field of [`Config`], parsed from text and formatted as JSON.
trait Field: Sized {
    fn parse(text: &str) -> Option<Self>;
    fn json(&self) -> Value;
}

macro_rules! plain_field {
    ($($kind:ty),*) => {$(
        impl Field for $kind {
            fn parse(text: &str) -> Option<$kind> {
                text.replace('_', "").parse().ok()
            }

            fn json(&self) -> Value {
                Value::from(*self)
            }
        }
    )*};
}
plain_field!(bool, u8, u32, u64);

impl Field for Option<u32> {
    fn parse(text: &str) -> Option<Option<u32>> {
        if text == "none" { Some(None) } else { u32::parse(text).map(Some) }
    }

    fn json(&self) -> Value {
        Value::from(*self)
    }
}

impl Field for [u32; PRIORITIES] {
    fn parse(text: &str) -> Option<Self> {
        let values: Option<Vec<u32>> =
            text.split([',', ' ']).filter(|part| !part.is_empty()).map(u32::parse).collect();
        values?.try_into().ok()
    }

    fn json(&self) -> Value {
        Value::from(self.to_vec())
    }
}

impl Field for Dialect {
    /// Parses `auto`, or the number of one of Linux Homa's dialects.
    fn parse(text: &str) -> Option<Dialect> {
        DIALECTS.into_iter().find(|(name, _)| *name == text).map(|(_, dialect)| dialect)
    }

    fn json(&self) -> Value {
        let name = DIALECTS.into_iter().find(|(_, dialect)| dialect == self).map(|(name, _)| name);
        Value::from(name)
    }
}

const DIALECTS: [(&str, Dialect); 5] = [
    ("auto", Dialect::Unknown),
    ("1", Dialect::One),
    ("2", Dialect::Two),
    ("3", Dialect::Three),
    ("ours", Dialect::Ours),
];

macro_rules! fields {
    ($($name:ident)*) => {
        /// Names of all settings: all fields of [`Config`] except those that are set by the host or the
        /// simulator.
        pub const FIELDS: &[&str] = &[$(stringify!($name)),*];

        /// Sets the setting of this name to the value in `text`.
        ///
        /// # Errors
        /// There is no such setting, or the text is not a value of its type.
        pub fn set_field(config: &mut Config, name: &str, text: &str) -> Result<(), String> {
            match name {
                $(stringify!($name) => match Field::parse(text.trim()) {
                    Some(value) => config.$name = value,
                    None => return Err(format!("homa.{name}: `{text}` is not a value of its type")),
                },)*
                _ => return Err(format!("homa.{name}: there is no such setting: use {}", FIELDS.join(", "))),
            }
            Ok(())
        }

        /// Returns all settings of a configuration with their values.
        pub fn fields(config: &Config) -> Map<String, Value> {
            let mut map = Map::new();
            $(map.insert(stringify!($name).to_owned(), config.$name.json());)*
            map
        }
    };
}

fields! {
    wire_dialect unsched_bytes unsched_from_rtt min_unsched_bytes max_unsched_bytes rtt_slack_packets rtt_window_ns incast_memory_ns
    incast_quiet_ns window window_total max_incoming max_overcommit min_grant_increment fifo_grant_increment grant_fifo_fraction
    pacer_fifo_fraction num_priorities max_sched_prio unsched_cutoffs cutoff_interval_ns cutoff_min_bytes link_mbps link_margin
    max_nic_backlog_ns defer_min_bytes link_overhead resend_interval_ns resend_interval_max_ns max_resends resend_spacing_ns
    resend_spacing_max_ns max_stall_ns client_silence_ns need_ack_interval_ns need_ack_interval_max_ns max_need_acks max_packet_lifetime_ns max_finished_blocks
    max_message max_rpcs request_readable_step reserve_rpcs max_outgoing_bytes max_incoming_bytes max_peers max_acks_per_peer
    max_gaps max_retransmits reap_limit max_control_packets max_packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialect_is_named_or_found_out() {
        let mut config = Config::default();
        assert_eq!(fields(&config)["wire_dialect"], "auto");
        for (name, dialect) in DIALECTS {
            set_field(&mut config, "wire_dialect", name).unwrap();
            assert_eq!(
                (config.wire_dialect, &fields(&config)["wire_dialect"]),
                (dialect, &Value::from(name))
            );
        }
        let error = set_field(&mut config, "wire_dialect", "4").unwrap_err();
        assert_eq!(error, "homa.wire_dialect: `4` is not a value of its type");
    }

    /// Every new setting of the protocol must be settable here.
    #[test]
    fn every_field_has_its_name() {
        let text = format!("{:#?}", Config::default());
        let not_ours = [
            "seed",
            "id_seed",
            "incarnation",
            "endpoints",
            "endpoint",
            "finished_policy",
            "first_cutoff_version",
        ];
        let names: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("    ") && !line.starts_with("     "))
            .filter_map(|line| line.trim().split_once(": ").map(|(name, _)| name))
            .filter(|name| !not_ours.contains(name))
            .collect();
        assert_eq!(names, FIELDS);
    }
}
