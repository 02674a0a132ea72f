//! Homa's settings for a simulated network.

use homa_proto::wire::PRIORITIES;
use homa_proto::{Config, MS};
use homa_settings::set_field;
use homa_sim::{ClusterConfig, HomaConfig, PriorityPlan};

/// The base configuration to which settings are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Settings of the SIGCOMM 2018 paper, for the network and the workload.
    Paper,
    /// The settings of [`Base::Paper`], with the best of our own additions as determined by sweeps.
    Tuned,
    /// Settings that a deployed host uses for this link rate.
    Deployed,
}

/// How unscheduled priorities are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cutoffs {
    /// The number of levels is proportional to the workload's share of unscheduled bytes, and each level
    /// carries the same number of unscheduled bytes.
    Plan,
    /// Computed by each host from arriving messages, starting with the levels of `Plan`.
    Traffic,
    /// The constant defaults of Linux Homa.
    Kernel,
    /// One level for messages up to each of these sizes, starting at the highest level, and another level for
    /// all longer messages.
    Sizes(Vec<u32>),
}

/// Interval at which hosts compute cutoffs, if they do so. A simulated run is shorter than the interval that
/// a deployed host uses.
const CUTOFF_INTERVAL_NS: u64 = MS;
/// Bytes that a host receives in about this interval at 10 Gbit/s.
const CUTOFF_MIN_BYTES: u64 = 500_000;

/// Requested settings of Homa; `None` means that the base determines the setting.
#[derive(Clone, Debug)]
pub struct HomaDraft {
    pub base: Base,
    pub unsched_bytes: Option<u32>,
    pub window: Option<u32>,
    pub overcommit: Option<u32>,
    pub priorities: Option<u8>,
    pub scheduled_levels: Option<u8>,
    pub cutoffs: Option<Cutoffs>,
    pub fifo_fraction: Option<u32>,
    /// Fields of [`Config`] by name. They are applied last.
    pub fields: Vec<(String, String)>,
}

impl HomaDraft {
    pub fn new(base: Base) -> HomaDraft {
        HomaDraft {
            base,
            unsched_bytes: None,
            window: None,
            overcommit: None,
            priorities: None,
            scheduled_levels: None,
            cutoffs: None,
            fifo_fraction: None,
            fields: Vec::new(),
        }
    }

    /// Builds the settings for a network and a load.
    ///
    /// # Errors
    /// The error names the setting and the rule that it violates.
    pub fn build(&self, cluster: &ClusterConfig) -> Result<HomaConfig, String> {
        let mut homa = match self.base {
            Base::Tuned => HomaConfig::tuned(cluster),
            Base::Paper | Base::Deployed => HomaConfig::sigcomm18(cluster),
        };
        if self.base == Base::Deployed {
            deployed(&mut homa.protocol, cluster);
        }
        let config = &mut homa.protocol;
        if let Some(bytes) = self.unsched_bytes {
            config.unsched_bytes = bytes;
            config.unsched_from_rtt = false;
            config.max_unsched_bytes = config.max_unsched_bytes.max(bytes);
        }
        self.divide(config, cluster)?;
        config.window = self.window.unwrap_or(config.window);
        config.max_overcommit = self.overcommit.unwrap_or(config.max_overcommit);
        if let Some(fraction) = self.fifo_fraction {
            config.grant_fifo_fraction = fraction;
            config.pacer_fifo_fraction = fraction;
        }
        for (name, value) in &self.fields {
            set_field(config, name, value)?;
        }
        config.validate().map_err(|error| format!("homa.{error}"))?;
        Ok(homa)
    }

    /// Divides the priorities between unscheduled and scheduled packets.
    fn divide(&self, config: &mut Config, cluster: &ClusterConfig) -> Result<(), String> {
        let default = if self.base == Base::Deployed { Cutoffs::Kernel } else { Cutoffs::Plan };
        let cutoffs = match &self.cutoffs {
            // Deployed hosts compute their own cutoffs unless configured otherwise.
            None if self.base == Base::Deployed && self.priorities.or(self.scheduled_levels).is_none() => {
                return Ok(());
            }
            None => &default,
            Some(cutoffs) => cutoffs,
        };
        let levels = self.priorities.unwrap_or(PRIORITIES as u8);
        if !(1..=PRIORITIES as u8).contains(&levels) {
            return Err("priorities: must be 1 to 8".to_owned());
        }
        let scheduled = self.scheduled_levels;
        if scheduled.is_some_and(|scheduled| scheduled == 0 || scheduled > (levels - 1).max(1)) {
            return Err("scheduled-levels: must be at least 1 and below priorities".to_owned());
        }
        config.num_priorities = levels;
        config.cutoff_interval_ns = 0;
        let plan = |unsched: u32| match scheduled {
            Some(scheduled) => {
                PriorityPlan::with_levels(&cluster.workload, unsched, levels, (levels - scheduled).max(1))
            }
            None if self.base == Base::Tuned => PriorityPlan::tuned(&cluster.workload, unsched, levels),
            None => PriorityPlan::new(&cluster.workload, unsched, levels),
        };
        let (unscheduled_levels, cutoffs) = match cutoffs {
            Cutoffs::Plan => {
                let plan = plan(config.unsched_bytes);
                (plan.unscheduled_levels, plan.cutoffs)
            }
            Cutoffs::Traffic => {
                config.cutoff_interval_ns = CUTOFF_INTERVAL_NS;
                config.cutoff_min_bytes = CUTOFF_MIN_BYTES;
                let plan = plan(config.unsched_bytes);
                (plan.unscheduled_levels, plan.cutoffs)
            }
            Cutoffs::Kernel => {
                if levels != PRIORITIES as u8 {
                    return Err("cutoffs: those of `kernel` are for 8 priorities".to_owned());
                }
                let base = Config::default();
                (levels - 1 - base.max_sched_prio, base.unsched_cutoffs)
            }
            Cutoffs::Sizes(sizes) => (sizes.len() as u8 + 1, cutoffs_of(sizes, levels)?),
        };
        config.unsched_cutoffs = cutoffs;
        config.max_sched_prio = (levels - 1).saturating_sub(unscheduled_levels);
        Ok(())
    }
}

fn cutoffs_of(sizes: &[u32], levels: u8) -> Result<[u32; PRIORITIES], String> {
    let levels = usize::from(levels);
    if sizes.is_empty() || sizes.len() + 2 > levels {
        return Err(
            "cutoffs: sizes must leave a level for longer messages and one for scheduled bytes".to_owned()
        );
    }
    if !sizes.is_sorted_by(|left, right| left < right) {
        return Err("cutoffs: sizes must increase".to_owned());
    }
    let mut cutoffs = [0; PRIORITIES];
    for (index, &size) in sizes.iter().enumerate() {
        cutoffs[levels - 1 - index] = size;
    }
    cutoffs[levels - 1 - sizes.len()] = u32::MAX;
    Ok(cutoffs)
}

/// Sets the settings that a host would have if only the rate of its link were configured. Memory limits stay
/// unlimited, since a run measures the network.
fn deployed(config: &mut Config, cluster: &ClusterConfig) {
    let mbps = u32::try_from(cluster.link.rate_bps / 1_000_000).unwrap_or(u32::MAX);
    let ours = config.clone();
    *config = Config {
        max_packet: ours.max_packet,
        link_overhead: ours.link_overhead,
        max_message: ours.max_message,
        max_incoming_bytes: ours.max_incoming_bytes,
        max_outgoing_bytes: ours.max_outgoing_bytes,
        reserve_rpcs: ours.reserve_rpcs,
        ..Config::for_link(mbps)
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_settings::fields;
    use homa_workload::Workload;

    fn cluster() -> ClusterConfig {
        ClusterConfig::sigcomm18(Workload::named("w4").unwrap(), 0.8, 1)
    }

    fn build(change: impl FnOnce(&mut HomaDraft)) -> Result<Config, String> {
        let mut draft = HomaDraft::new(Base::Paper);
        change(&mut draft);
        draft.build(&cluster()).map(|homa| homa.protocol)
    }

    #[test]
    fn a_field_is_set_by_name_after_everything_else() {
        let field = |name: &str, value: &str| {
            build(|draft| {
                draft.overcommit = Some(3);
                draft.fields.push((name.to_owned(), value.to_owned()));
            })
        };
        assert_eq!(field("max_overcommit", "5").unwrap().max_overcommit, 5);
        assert_eq!(field("max_incoming", "9_000").unwrap().max_overcommit, 3);
        assert_eq!(field("link_mbps", "none").unwrap().link_mbps, None);
        assert!(field("max_overcomit", "5").unwrap_err().contains("max_overcommit"));
        assert!(field("max_overcommit", "many").unwrap_err().contains("many"));
        assert!(field("grant_fifo_fraction", "500").unwrap_err().starts_with("homa.grant_fifo_fraction"));
    }

    #[test]
    fn levels_are_divided_as_asked() {
        let config = build(|draft| draft.priorities = Some(1)).unwrap();
        assert_eq!(
            (config.num_priorities, config.max_sched_prio, config.unsched_cutoffs[0]),
            (1, 0, u32::MAX)
        );
        let config = build(|draft| draft.scheduled_levels = Some(3)).unwrap();
        assert_eq!((config.max_sched_prio, config.unsched_cutoffs[3]), (2, u32::MAX));
        let config = build(|draft| draft.cutoffs = Some(Cutoffs::Sizes(vec![300, 2_000]))).unwrap();
        assert_eq!(config.unsched_cutoffs, [0, 0, 0, 0, 0, u32::MAX, 2_000, 300]);
        assert_eq!(config.max_sched_prio, 4);
        for wrong in [
            build(|draft| draft.priorities = Some(9)),
            build(|draft| draft.scheduled_levels = Some(8)),
            build(|draft| draft.cutoffs = Some(Cutoffs::Sizes(vec![5, 5]))),
            build(|draft| draft.cutoffs = Some(Cutoffs::Sizes((1..9).collect()))),
        ] {
            assert!(wrong.is_err());
        }
    }

    #[test]
    fn the_paper_has_no_pacer_and_a_deployed_host_has() {
        assert_eq!(build(|_| ()).unwrap().link_mbps, None);
        assert_eq!(build(|draft| draft.base = Base::Deployed).unwrap().link_mbps, Some(10_000));
    }

    #[test]
    fn the_tuned_base_is_the_simulators_default() {
        let tuned = build(|draft| draft.base = Base::Tuned).unwrap();
        assert_eq!(fields(&tuned), fields(&HomaConfig::tuned(&cluster()).protocol));
        assert_ne!(fields(&tuned), fields(&build(|_| ()).unwrap()));
    }
}
