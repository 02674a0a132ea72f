//! Computes the clocks of many nodes from the differences between pairs of clocks.

use super::fit::Fit;

/// The measured difference between two nodes' clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) first: usize,
    pub(super) second: usize,
    pub(super) fit: Fit,
    /// Error of the difference at the fit's pivot, in nanoseconds. It exceeds the error of the fit if the
    /// paths in the two directions differ.
    pub(super) value_error: f64,
}

impl Edge {
    /// Returns the squared error of times at the first and the last packet between the two nodes.
    fn variance(&self) -> f64 {
        let at_ends = self.fit.slope_error * self.fit.span / 2.0;
        self.value_error * self.value_error + at_ends * at_ends
    }

    fn other(&self, node: usize) -> usize {
        if node == self.first { self.second } else { self.first }
    }
}

/// The estimate of one clock. Its time `own` corresponds to the shared time `shared + part`. From that time
/// on, the clock runs like shared time except for the drift.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockEstimate {
    pub(super) own: i64,
    pub(super) shared: i64,
    pub(super) part: f64,
    /// Nanoseconds that shared time gains on this clock, per nanosecond.
    pub(super) drift: f64,
}

impl ClockEstimate {
    /// Returns the correction from this clock's time to shared time.
    pub(super) fn correction(&self, own: i64) -> (i64, f64) {
        let passed = own.saturating_sub(self.own) as f64;
        (self.shared.saturating_sub(self.own), self.part + passed * self.drift)
    }

    /// Converts a time of this clock to shared time since `zero`, in nanoseconds.
    fn after(&self, zero: i64, own: i64) -> f64 {
        let (whole, part) = self.correction(own);
        own.saturating_add(whole).saturating_sub(zero) as f64 + part
    }

    /// Returns the estimate for the node at the other end of an edge, if `self` is the estimate for `node`.
    fn propagate(&self, edge: &Edge, node: usize) -> ClockEstimate {
        let fit = &edge.fit;
        let whole = fit.value.round();
        let second_own = fit.pivot.saturating_add(fit.base).saturating_add(whole as i64);
        let (near, far, between) = if node == edge.first {
            (fit.pivot, second_own, whole - fit.value)
        } else {
            (second_own, fit.pivot, fit.value - whole)
        };
        let (added, part) = self.correction(near);
        let rate = if node == edge.first { 1.0 / (1.0 + fit.slope) } else { 1.0 + fit.slope };
        // The pivot on the second clock is rounded to whole nanoseconds; `between` is the remainder.
        ClockEstimate {
            own: far,
            shared: near.saturating_add(added),
            part: part + between,
            drift: (1.0 + self.drift) * rate - 1.0,
        }
    }

    /// Returns the same clock with `delta_ns` more shared time at `zero`, and with `drift_ppb` more per
    /// second from then on.
    fn corrected(self, zero: i64, delta_ns: f64, drift_ppb: f64) -> ClockEstimate {
        let seconds = self.after(zero, self.own) / NS_PER_S;
        ClockEstimate {
            part: self.part + delta_ns + drift_ppb * seconds,
            drift: self.drift + drift_ppb / NS_PER_S * (1.0 + self.drift),
            ..self
        }
    }
}

/// A node's clock as estimated along a path of edges.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathEstimate {
    pub(super) estimate: ClockEstimate,
    /// Squared error of the node's times relative to the start node, summed over the edges of the path.
    pub(super) variance: f64,
    /// Error of the node's drift as a fraction, not squared.
    pub(super) drift_error: f64,
}

/// Returns the nodes reachable from `start`, each by its path of minimum uncertainty, nearest first.
pub(super) fn shortest_paths(
    nodes: usize,
    edges: &[Edge],
    start: usize,
    own: i64,
) -> Vec<(usize, PathEstimate)> {
    let estimate = ClockEstimate { own, shared: own, part: 0.0, drift: 0.0 };
    let mut best: Vec<Option<PathEstimate>> = vec![None; nodes];
    let mut done = vec![false; nodes];
    best[start] = Some(PathEstimate { estimate, variance: 0.0, drift_error: 0.0 });
    let at = adjacency(nodes, edges);
    let mut order = Vec::new();
    while let Some((node, reached)) = nearest(&best, &done, |reached| reached.variance) {
        done[node] = true;
        order.push((node, reached));
        for edge in at[node].iter().map(|edge| &edges[*edge]) {
            let (other, variance) = (edge.other(node), reached.variance + edge.variance());
            if !done[other] && best[other].is_none_or(|known| variance < known.variance) {
                let drift_error = reached.drift_error.hypot(edge.fit.slope_error);
                best[other] = Some(PathEstimate {
                    estimate: reached.estimate.propagate(edge, node),
                    variance,
                    drift_error,
                });
            }
        }
    }
    order
}

/// Returns the nearest node that is not done.
fn nearest<T: Copy>(best: &[Option<T>], done: &[bool], distance: impl Fn(&T) -> f64) -> Option<(usize, T)> {
    let open = best.iter().zip(done).enumerate().filter(|(_, (_, done))| !**done);
    let open = open.filter_map(|(node, (reached, _))| Some((node, (*reached)?)));
    open.min_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)))
}

fn adjacency(nodes: usize, edges: &[Edge]) -> Vec<Vec<usize>> {
    let mut at = vec![Vec::new(); nodes];
    for (index, edge) in edges.iter().enumerate() {
        at[edge.first].push(index);
        at[edge.second].push(index);
    }
    at
}

/// Returns the minimum sum of `length` over a path of edges from `start` to each node, infinite if there is
/// no path.
pub(super) fn distances(
    nodes: usize,
    edges: &[Edge],
    start: usize,
    length: impl Fn(&Edge) -> f64,
) -> Vec<f64> {
    let mut best: Vec<Option<f64>> = vec![None; nodes];
    let mut done = vec![false; nodes];
    best[start] = Some(0.0);
    let at = adjacency(nodes, edges);
    while let Some((node, far)) = nearest(&best, &done, |far| *far) {
        done[node] = true;
        for edge in at[node].iter().map(|edge| &edges[*edge]) {
            let (other, far) = (edge.other(node), far + length(edge));
            if !done[other] && best[other].is_none_or(|known| far < known) {
                best[other] = Some(far);
            }
        }
    }
    best.into_iter().map(|far| far.unwrap_or(f64::INFINITY)).collect()
}

const NS_PER_S: f64 = 1e9;
/// Accuracy of ordinary crystals. It matters only where packets do not determine the drift.
const PRIOR_DRIFT_PPB: f64 = 100_000.0;
/// Number of iterations of the fit. The equations are linear except for products of drifts, which are below a
/// millionth.
const ROUNDS: usize = 2;

/// Returns the disagreement of an edge with its two clocks: the nanoseconds by which the second node's shared
/// time is ahead at the edge's pivot, and the growth of this lead in parts per billion.
pub(super) fn disagreement(edge: &Edge, first: &ClockEstimate, second: &ClockEstimate) -> (f64, f64) {
    let fit = &edge.fit;
    let whole = fit.value.round();
    let second_own = fit.pivot.saturating_add(fit.base).saturating_add(whole as i64);
    let zero = fit.pivot.saturating_add(first.correction(fit.pivot).0);
    let ahead = second.after(zero, second_own) + (fit.value - whole) - first.after(zero, fit.pivot);
    let rate = (1.0 + second.drift) * (1.0 + fit.slope) / (1.0 + first.drift) - 1.0;
    (ahead, rate * NS_PER_S)
}

/// Adjusts the estimates by weighted least squares, to minimize the disagreement of all edges relative to
/// their errors. Nodes without an estimate are left out, and `start` keeps its estimate.
pub(super) fn refine(estimates: &mut [Option<ClockEstimate>], edges: &[Edge], start: usize) {
    for _ in 0..ROUNDS {
        let Some(zero) = estimates[start].map(|estimate| estimate.shared) else { return };
        let rows = rows(estimates, edges, start, zero);
        let changes = least_squares(&rows, estimates.len(), start);
        for (estimate, change) in estimates.iter_mut().zip(changes) {
            *estimate = estimate.map(|estimate| estimate.corrected(zero, change[0], change[1]));
        }
    }
}

/// One equation: the change of `plus` minus the change of `minus` should be `wanted`. A change is either
/// `delta + seconds * drift` or only the drift.
#[derive(Debug)]
struct Row {
    plus: usize,
    minus: usize,
    /// 1 in an equation for times, 0 in an equation for drifts.
    delta: f64,
    drift: f64,
    wanted: f64,
    weight: f64,
}

fn rows(estimates: &[Option<ClockEstimate>], edges: &[Edge], start: usize, zero: i64) -> Vec<Row> {
    let mut rows = Vec::new();
    let inverse_square = |error: f64| 1.0 / (error * error).max(1e-6);
    for edge in edges {
        let (Some(first), Some(second)) = (estimates[edge.first], estimates[edge.second]) else { continue };
        let (ahead, rate) = disagreement(edge, &first, &second);
        let seconds = first.after(zero, edge.fit.pivot) / NS_PER_S;
        let row = |delta, drift, wanted, weight| Row {
            plus: edge.second,
            minus: edge.first,
            delta,
            drift,
            wanted,
            weight,
        };
        rows.push(row(1.0, seconds, -ahead, inverse_square(edge.value_error)));
        rows.push(row(0.0, 1.0, -rate, inverse_square(edge.fit.slope_error * NS_PER_S)));
    }
    for (node, estimate) in estimates.iter().enumerate() {
        let Some(estimate) = estimate.filter(|_| node != start) else { continue };
        let weight = inverse_square(PRIOR_DRIFT_PPB);
        let wanted = -estimate.drift * NS_PER_S;
        rows.push(Row { plus: node, minus: start, delta: 0.0, drift: 1.0, wanted, weight });
    }
    rows
}

impl Row {
    fn apply(&self, x: &[[f64; 2]]) -> f64 {
        let (plus, minus) = (x[self.plus], x[self.minus]);
        self.delta * (plus[0] - minus[0]) + self.drift * (plus[1] - minus[1])
    }

    /// Adds `times` times the transposed row to `to`.
    fn add_transposed(&self, times: f64, to: &mut [[f64; 2]]) {
        for (node, sign) in [(self.plus, 1.0), (self.minus, -1.0)] {
            to[node][0] += sign * self.delta * times;
            to[node][1] += sign * self.drift * times;
        }
    }
}

/// Solves the normal equations by conjugate gradients, preconditioned by their diagonal. Without rounding
/// errors, as many steps as there are unknowns would give the exact solution, and no matrix is needed.
/// `fixed` stays zero.
fn least_squares(rows: &[Row], nodes: usize, fixed: usize) -> Vec<[f64; 2]> {
    let mut diagonal = vec![[0.0; 2]; nodes];
    let mut residual = vec![[0.0; 2]; nodes];
    for row in rows {
        row.add_transposed(row.weight * row.wanted, &mut residual);
        for node in [row.plus, row.minus] {
            diagonal[node][0] += row.weight * row.delta * row.delta;
            diagonal[node][1] += row.weight * row.drift * row.drift;
        }
    }
    residual[fixed] = [0.0; 2];
    let scaled = |vector: &[[f64; 2]]| -> Vec<[f64; 2]> {
        let scale = |value: f64, by: f64| if by > 0.0 { value / by } else { 0.0 };
        vector.iter().zip(&diagonal).map(|(v, d)| [scale(v[0], d[0]), scale(v[1], d[1])]).collect()
    };
    let mut x = vec![[0.0; 2]; nodes];
    let mut direction = scaled(&residual);
    let mut size = dot(&residual, &direction);
    let enough = size * 1e-24;
    for _ in 0..8 * nodes {
        if size <= enough || !size.is_finite() {
            break;
        }
        let mut image = vec![[0.0; 2]; nodes];
        for row in rows {
            row.add_transposed(row.weight * row.apply(&direction), &mut image);
        }
        image[fixed] = [0.0; 2];
        let step = size / dot(&direction, &image);
        if !step.is_finite() {
            break;
        }
        add(&mut x, step, &direction);
        add(&mut residual, -step, &image);
        let next = scaled(&residual);
        let next_size = dot(&residual, &next);
        let kept = next_size / size;
        for (direction, next) in direction.iter_mut().zip(next) {
            *direction = [next[0] + kept * direction[0], next[1] + kept * direction[1]];
        }
        size = next_size;
    }
    x
}

fn dot(a: &[[f64; 2]], b: &[[f64; 2]]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a[0] * b[0] + a[1] * b[1]).sum()
}

fn add(to: &mut [[f64; 2]], times: f64, vector: &[[f64; 2]]) {
    for (to, vector) in to.iter_mut().zip(vector) {
        *to = [to[0] + times * vector[0], to[1] + times * vector[1]];
    }
}
