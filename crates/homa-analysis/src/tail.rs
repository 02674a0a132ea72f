//! The causes of tail latency, and their shares.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use homa_trace::{EventKind, NodeKind};

use crate::cause::{Amounts, Cause, Kind};
use crate::critical_path::{Explainer, Path, Span};
use crate::model::{NO_NODE, NodeId, Rpc};
use crate::parallel::in_parts;

/// Maximum number of RPCs per size class from which the usual amounts are computed.
const SAMPLES: usize = 512;
/// Percentile, among the RPCs of a size class, that is taken as the usual amount of a cause.
const USUAL_PERCENT: usize = 10;
/// Number of size classes for the request, and for the response. Lengths in a class differ by up to a factor
/// of two.
const SIZES: usize = 33;

/// The duration of an RPC, and its best case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The RPC's index in [`Model::rpcs`](crate::Model::rpcs).
    pub rpc: u32,
    /// Time from the RPC's start to its end at the client, in nanoseconds.
    pub duration_ns: u64,
    /// The RPC's duration without disturbances in nanoseconds, at least 1.
    pub best_ns: u64,
}

impl Cost {
    /// Returns the duration divided by the best case.
    #[must_use]
    pub fn slowdown(&self) -> f64 {
        self.duration_ns as f64 / self.best_ns as f64
    }

    /// Returns the part of the duration that exceeds the best case, in nanoseconds.
    #[must_use]
    pub const fn extra_ns(&self) -> u64 {
        self.duration_ns.saturating_sub(self.best_ns)
    }
}

/// Durations in an unloaded network, measured separately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnloadedTimes {
    /// Duration of an RPC without payload, in nanoseconds.
    pub rpc_ns: u64,
    /// Rate of a link in bits per second; 0 if payload takes no time.
    pub rate_bps: u64,
}

impl UnloadedTimes {
    /// Returns the duration of this RPC in the unloaded network, in nanoseconds.
    fn best_ns(&self, rpc: &Rpc) -> u64 {
        let bits = 8 * (u128::from(rpc.request.length) + u128::from(rpc.response.length));
        let on_link_ns = (bits * 1_000_000_000).checked_div(u128::from(self.rate_bps)).unwrap_or(0);
        self.rpc_ns.saturating_add(u64::try_from(on_link_ns).unwrap_or(u64::MAX))
    }
}

/// The costs of all complete RPCs, and the usual amounts with which they are compared.
pub struct Costs {
    /// Costs of the RPCs whose start and end are known, in the order of the model.
    pub costs: Vec<Cost>,
    usual: HashMap<(u8, u8), Amounts, FixedState>,
}

impl Costs {
    /// Explains all RPCs. The best case of an RPC is its duration without avoidable time and without time in
    /// excess of the usual amounts, unless `base` gives the best case.
    #[must_use]
    pub fn of(explainer: &Explainer<'_>, base: Option<UnloadedTimes>) -> Costs {
        let mut costs = Costs { costs: Vec::new(), usual: usual(explainer) };
        let rpcs = &explainer.model.rpcs;
        let parts = in_parts(rpcs.len(), |numbers| {
            let mut path = Path::default();
            let mut cost = |number| costs.cost(explainer, number, base, &mut path);
            numbers.filter_map(|number| cost(number as u32)).collect::<Vec<Cost>>()
        });
        costs.costs = parts.into_iter().flatten().collect();
        costs
    }

    /// Returns the cost of the RPC with this index, if it is complete. `path` is scratch space.
    fn cost(
        &self,
        explainer: &Explainer<'_>,
        number: u32,
        base: Option<UnloadedTimes>,
        path: &mut Path,
    ) -> Option<Cost> {
        let rpc = &explainer.model.rpcs[number as usize];
        let duration_ns = rpc.duration_ns()?;
        if !explainer.explain(rpc, path) {
            return None;
        }
        let best_ns = match base {
            None => duration_ns.saturating_sub(self.extra(rpc, &path.amounts).total()),
            Some(base) => base.best_ns(rpc),
        };
        Some(Cost { rpc: number, duration_ns, best_ns: best_ns.max(1) })
    }

    /// Returns the avoidable part of these amounts: the whole amounts of avoidable causes, and for causes of
    /// kind `Usual` the excess over the amount that is usual for the size.
    #[must_use]
    pub fn extra(&self, rpc: &Rpc, amounts: &Amounts) -> Amounts {
        let usual = self.usual.get(&class(rpc)).copied().unwrap_or_default();
        let mut extra = Amounts::default();
        for cause in Cause::ALL.iter().copied() {
            extra[cause] = match cause.kind() {
                Kind::Inherent => 0,
                Kind::Usual => amounts[cause].saturating_sub(usual[cause]),
                Kind::Avoidable => amounts[cause],
            };
        }
        extra
    }
}

fn class(rpc: &Rpc) -> (u8, u8) {
    let bits = |length: u32| (u32::BITS - length.leading_zeros()).min(SIZES as u32 - 1) as u8;
    (bits(rpc.request.length), bits(rpc.response.length))
}

fn usual(explainer: &Explainer<'_>) -> HashMap<(u8, u8), Amounts, FixedState> {
    let mut counts: HashMap<(u8, u8), usize, FixedState> = HashMap::with_hasher(FixedState::default());
    let whole = || explainer.model.rpcs.iter().filter(|rpc| rpc.duration_ns().is_some());
    whole().for_each(|rpc| *counts.entry(class(rpc)).or_default() += 1);
    let mut samples: HashMap<(u8, u8), (usize, Vec<Amounts>), FixedState> =
        HashMap::with_hasher(FixedState::default());
    let mut path = Path::default();
    for rpc in whole() {
        let class = class(rpc);
        let step = counts.get(&class).copied().unwrap_or(1).div_ceil(SAMPLES).max(1);
        let (seen, of_class) = samples.entry(class).or_default();
        if seen.is_multiple_of(step) && explainer.explain(rpc, &mut path) {
            of_class.push(path.amounts);
        }
        *seen += 1;
    }
    let least = |(class, (_, samples)): ((u8, u8), (usize, Vec<Amounts>))| {
        let mut usual = Amounts::default();
        for cause in Cause::ALL.iter().copied().filter(|cause| cause.kind() == Kind::Usual) {
            let mut values: Vec<u64> = samples.iter().map(|amounts| amounts[cause]).collect();
            values.sort_unstable();
            usual[cause] = values.get(values.len() * USUAL_PERCENT / 100).copied().unwrap_or(0);
        }
        (class, usual)
    };
    samples.into_iter().map(least).collect()
}

/// A cause at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The cause.
    pub cause: Cause,
    /// The node, or [`NO_NODE`].
    pub node: NodeId,
    /// The port of a switch, or the core of a host if known.
    pub place: Option<u16>,
}

/// One of the slow RPCs.
#[derive(Clone, Debug)]
pub struct Case {
    /// The RPC and its duration.
    pub cost: Cost,
    /// Duration of the RPC by cause.
    pub amounts: Amounts,
    /// Avoidable part of the RPC's duration, by cause.
    pub extra: Amounts,
    /// The site with the largest part of the main cause, and the nanoseconds spent there.
    pub site: (Site, u64),
}

/// The main cause of the tail's extra time.
#[derive(Clone, Debug, PartialEq)]
pub struct MainCause {
    /// The cause. If a thread was late, there may be several, the largest first.
    pub causes: Vec<Cause>,
    /// Share of the extra time that these causes account for, 0 to 1.
    pub share: f64,
    /// The largest cause, and the place at which most of the time was spent.
    pub site: Site,
    /// The share of time spent at that place, 0 to 1.
    pub there: f64,
}

/// The tail of a set of RPCs.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    /// Number of RPCs examined.
    pub rpcs: usize,
    /// The minimum slowdown in the tail.
    pub slowdown: f64,
    /// The slow RPCs, the slowest first.
    pub cases: Vec<Case>,
    /// Total time of the slow RPCs, by cause.
    pub amounts: Amounts,
    /// Avoidable part of that time, by cause.
    pub extra: Amounts,
    /// Avoidable time by cause and place, in descending order.
    pub sites: Vec<(Site, u64)>,
}

impl Tail {
    /// Returns the slowest of these RPCs: those at or above this percentile of slowdown, 0 to 100.
    #[must_use]
    pub fn of(explainer: &Explainer<'_>, costs: &Costs, chosen: &[Cost], percentile: f64) -> Tail {
        let mut order: Vec<Cost> = chosen.to_vec();
        order.sort_by(|a, b| b.slowdown().total_cmp(&a.slowdown()).then(a.rpc.cmp(&b.rpc)));
        let share = (100.0 - percentile).clamp(0.0, 100.0) / 100.0;
        let count = ((order.len() as f64 * share).ceil() as usize).clamp(1.min(order.len()), order.len());
        let mut tail = Tail { rpcs: order.len(), ..Tail::default() };
        order.truncate(count);
        tail.slowdown = order.last().map_or(0.0, Cost::slowdown);
        let mut sites: HashMap<Site, u64, FixedState> = HashMap::with_hasher(FixedState::default());
        let mut path = Path::default();
        for cost in order {
            let rpc = &explainer.model.rpcs[cost.rpc as usize];
            explainer.explain(rpc, &mut path);
            let extra = costs.extra(rpc, &path.amounts);
            let own = own_sites(explainer, &path, &extra);
            tail.amounts.add(&path.amounts);
            tail.extra.add(&extra);
            own.iter().for_each(|(site, ns)| *sites.entry(*site).or_default() += ns);
            let main = extra.largest().0;
            let most = own.into_iter().filter(|(site, _)| site.cause == main).max_by_key(|(_, ns)| *ns);
            let nowhere = (Site { cause: main, node: NO_NODE, place: None }, 0);
            tail.cases.push(Case { cost, amounts: path.amounts, extra, site: most.unwrap_or(nowhere) });
        }
        tail.sites = sites.into_iter().collect();
        tail.sites.sort_by_key(|(site, ns)| (std::cmp::Reverse(*ns), *site));
        tail
    }

    /// Returns the cause of most avoidable time, or `None` if nothing was slow. For each host, the symptoms
    /// of a late driving thread ([`Cause::is_late_thread`]) are counted together, and the largest of them
    /// represents them all.
    #[must_use]
    pub fn main_cause(&self) -> Option<MainCause> {
        let (cause, ns) = self.extra.largest();
        let mut late: Vec<(NodeId, u64)> = Vec::new();
        for (site, ns) in self.sites.iter().filter(|(site, _)| site.cause.is_late_thread()) {
            add(&mut late, site.node, *ns);
        }
        match late.into_iter().max_by_key(|(_, ns)| *ns).filter(|(_, late)| *late >= ns) {
            Some((node, ns)) => {
                self.main_cause_of(ns, |site| site.cause.is_late_thread() && site.node == node)
            }
            None => self.main_cause_of(ns, |site| site.cause == cause),
        }
    }

    /// Returns the causes and the main place of these sites, which account for `ns` nanoseconds in total.
    fn main_cause_of(&self, ns: u64, is_of: impl Fn(&Site) -> bool) -> Option<MainCause> {
        let (mut causes, mut places) = (Vec::new(), Vec::new());
        for (site, there) in self.sites.iter().filter(|(site, there)| *there > 0 && is_of(site)) {
            add(&mut causes, site.cause, *there);
            add(&mut places, (site.node, site.place), *there);
        }
        causes.sort_by_key(|(_, there)| std::cmp::Reverse(*there));
        let &((node, place), there) = places.iter().max_by_key(|(_, there)| *there)?;
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let site = Site { cause: causes.first()?.0, node, place };
        let causes = causes.into_iter().map(|(cause, _)| cause).collect();
        Some(MainCause { causes, share: share(ns, self.extra.total()), site, there: share(there, ns) })
    }
}

fn add<K: PartialEq>(sums: &mut Vec<(K, u64)>, key: K, ns: u64) {
    match sums.iter_mut().find(|(known, _)| *known == key) {
        Some((_, sum)) => *sum += ns,
        None => sums.push((key, ns)),
    }
}

/// Returns the sites of an RPC's extra time. The extra time of each cause is spread over the cause's spans.
fn own_sites(explainer: &Explainer<'_>, path: &Path, extra: &Amounts) -> Vec<(Site, u64)> {
    let mut sites: Vec<(Site, u64)> = Vec::new();
    for span in path.spans.iter().filter(|span| extra[span.cause] > 0) {
        let all = u128::from(path.amounts[span.cause].max(1));
        let ns = (u128::from(span.to_ns - span.from_ns) * u128::from(extra[span.cause]) / all) as u64;
        let site = Site { cause: span.cause, node: span.node, place: place(explainer, span) };
        add(&mut sites, site, ns);
    }
    sites
}

/// Returns the port, or the core on which the host continued after the span.
fn place(explainer: &Explainer<'_>, span: &Span) -> Option<u16> {
    let node = explainer.model.nodes.get(usize::from(span.node))?;
    if node.kind == NodeKind::Switch {
        return span.port;
    }
    let on_core = matches!(
        span.cause,
        Cause::NotRunning
            | Cause::ReadGap
            | Cause::Wakeup
            | Cause::Processing
            | Cause::SenderLate
            | Cause::GrantLate
    );
    let first = node.records.partition_point(|record| record.time < span.to_ns);
    let after = node.records[first..].iter().take(64);
    let stopped = |kind| span.cause != Cause::NotRunning || kind == Some(EventKind::NotRunning);
    let core = || after.filter(|record| stopped(record.event())).find_map(|record| record.place.core());
    on_core.then(core).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(parts: &[(Cause, NodeId, u64)]) -> Tail {
        let mut tail = Tail::default();
        for &(cause, node, ns) in parts {
            tail.extra[cause] += ns;
            tail.sites.push((Site { cause, node, place: None }, ns));
        }
        tail
    }

    #[test]
    fn a_hosts_late_thread_is_one_cause_however_it_shows() {
        let parts = [
            (Cause::NetworkQueue, 7, 30),
            (Cause::ReadGap, 2, 25),
            (Cause::NotRunning, 1, 14),
            (Cause::NotRunning, 2, 6),
        ];
        let main = tail(&parts).main_cause().expect("something is slow");
        assert_eq!(main.causes, [Cause::ReadGap, Cause::NotRunning]);
        assert_eq!((main.site.cause, main.site.node), (Cause::ReadGap, 2));
        assert_eq!((main.share, main.there), (31.0 / 75.0, 1.0));
    }

    #[test]
    fn what_is_larger_than_one_host_being_late_is_the_cause() {
        let parts = [(Cause::SwitchQueue, 7, 30), (Cause::ReadGap, 2, 25), (Cause::NotRunning, 1, 24)];
        let main = tail(&parts).main_cause().expect("something is slow");
        assert_eq!((main.causes, main.site.node, main.there), (vec![Cause::SwitchQueue], 7, 1.0));
        assert_eq!(Tail::default().main_cause(), None);
    }
}
