//! The highest goodput of a protocol under a workload.

use std::time::Duration;

use anyhow::Result;

use crate::compare::results::Maximum;
use crate::compare::rig::Rig;
use crate::engine::load::Pace;
use crate::engine::tally::Tally;
use crate::protocol::Protocol;

/// Levels of open RPCs per client port, in addition to `--max-outstanding`. Some protocols reach their
/// maximum with few open RPCs.
const LEVELS: [u32; 2] = [16, 64];

/// Measurement time at each level if the maximum serves only to choose a load.
pub const CALIBRATION: Duration = Duration::from_millis(500);

/// Returns the levels to measure for this limit of open RPCs.
pub fn levels(max_outstanding: u32) -> Vec<u32> {
    let mut levels: Vec<u32> = LEVELS.into_iter().filter(|&level| level < max_outstanding).collect();
    levels.push(max_outstanding);
    levels
}

/// Measures the highest goodput of each protocol in closed loops, for `measured` at each level of open RPCs.
/// Protocols take turns.
pub fn find(rig: &mut Rig<'_>, measured: Duration) -> Result<Vec<(Maximum, Tally)>> {
    let plan = rig.plan;
    let mut best: Vec<Option<(Maximum, Tally)>> = vec![None; plan.protocols.len()];
    for outstanding in levels(plan.options.max_outstanding) {
        for (best, &protocol) in best.iter_mut().zip(&plan.protocols) {
            let text = format!("{}: maximum with {outstanding} RPCs open", protocol.title());
            let tally = rig.slice(protocol, Pace::Closed { outstanding }, measured, 0, &text)?;
            let gbps = tally.achieved_gbps();
            if best.as_ref().is_none_or(|(max, _)| gbps > max.gbps) {
                *best = Some((Maximum { protocol, gbps, outstanding }, tally));
            }
        }
    }
    Ok(best.into_iter().flatten().collect())
}

/// Returns the protocol with the lowest maximum.
pub fn slower(max: &[(Maximum, Tally)]) -> Option<(Protocol, f64)> {
    let lowest = max.iter().min_by(|(left, _), (right, _)| left.gbps.total_cmp(&right.gbps));
    lowest.map(|(max, _)| (max.protocol, max.gbps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_end_at_the_limit() {
        assert_eq!(levels(200), [16, 64, 200]);
        assert_eq!(levels(16), [16]);
        assert_eq!(levels(1), [1]);
    }
}
