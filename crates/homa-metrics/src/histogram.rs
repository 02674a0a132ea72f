//! Histograms of the text format, and differences between them.

use crate::text::{Family, Labels, Sample};

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The inclusive upper bounds of the buckets in ascending order, and the number of values in each bucket.
    pub buckets: Vec<(f64, f64)>,
    /// The sum of all values.
    pub sum: f64,
}

impl Histogram {
    /// Returns the histograms of a family, with all of their labels except `le`.
    #[must_use]
    pub fn all(family: &Family) -> Vec<(Labels, Histogram)> {
        let mut all: Vec<(Labels, Histogram)> = Vec::new();
        for sample in &family.samples {
            let labels: Vec<_> = sample.labels.iter().filter(|(label, _)| label != "le").cloned().collect();
            if all.last().is_none_or(|(last, _)| *last != labels) {
                all.push((labels, Histogram::default()));
            }
            if let Some((_, histogram)) = all.last_mut() {
                histogram.take(&family.name, sample);
            }
        }
        for (_, histogram) in &mut all {
            histogram.finish();
        }
        all
    }

    fn take(&mut self, family: &str, sample: &Sample) {
        match sample.name.strip_prefix(family) {
            Some("_bucket") => {
                if let Some(end) = sample.label("le").and_then(|end| end.parse().ok()) {
                    self.buckets.push((end, sample.value));
                }
            }
            Some("_sum") => self.sum = sample.value,
            _ => {}
        }
    }

    /// Converts the cumulative counts of the text into counts per bucket.
    fn finish(&mut self) {
        self.buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut below = 0.0;
        for (_, count) in &mut self.buckets {
            let so_far = *count;
            *count = (so_far - below).max(0.0);
            below = so_far;
        }
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Returns the values added since `before`; `None` if a count decreased or the buckets differ.
    #[must_use]
    pub fn since(&self, before: &Histogram) -> Option<Histogram> {
        let ends = |histogram: &Histogram| histogram.buckets.iter().map(|(end, _)| *end).collect::<Vec<_>>();
        if ends(self) != ends(before) {
            return None;
        }
        let pairs = self.buckets.iter().zip(&before.buckets);
        let buckets: Vec<(f64, f64)> = pairs.map(|((end, now), (_, then))| (*end, now - then)).collect();
        let grown = buckets.iter().all(|(_, count)| *count >= 0.0);
        grown.then_some(Histogram { buckets, sum: self.sum - before.sum })
    }

    /// Adds another histogram with the same buckets.
    pub fn add(&mut self, other: &Histogram) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else {
            for ((_, count), (_, more)) in self.buckets.iter_mut().zip(&other.buckets) {
                *count += more;
            }
        }
        self.sum += other.sum;
    }

    /// Returns the upper bound of the bucket that contains this quantile (0 to 1). This is infinite in the
    /// last bucket. Returns `None` if there are no values.
    #[must_use]
    pub fn quantile(&self, fraction: f64) -> Option<f64> {
        let rank = (self.count() * fraction).ceil().max(1.0);
        let mut seen = 0.0;
        self.buckets.iter().find_map(|(end, count)| {
            seen += count;
            (seen >= rank).then_some(*end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse;

    fn histogram(counts: [u32; 3]) -> Histogram {
        let text = format!(
            "# TYPE h histogram\nh_bucket{{a=\"b\",le=\"1\"}} {}\nh_bucket{{a=\"b\",le=\"2\"}} {}\n\
             h_bucket{{a=\"b\",le=\"+Inf\"}} {}\nh_sum{{a=\"b\"}} 9\nh_count{{a=\"b\"}} 5\n",
            counts[0], counts[1], counts[2]
        );
        let all = Histogram::all(&parse(&text).expect("metrics").families[0]);
        let [(labels, histogram)] = &all[..] else { panic!("{all:?}") };
        assert_eq!(labels, &[("a".to_owned(), "b".to_owned())]);
        histogram.clone()
    }

    #[test]
    fn the_tail_of_the_last_moment_is_the_difference_of_two() {
        let (before, now) = (histogram([90, 95, 95]), histogram([90, 194, 195]));
        assert_eq!((before.count(), now.sum), (95.0, 9.0));
        assert_eq!(now.quantile(0.01), Some(1.0));
        let since = now.since(&before).expect("it has grown");
        assert_eq!(since.count(), 100.0);
        assert_eq!(
            [0.5, 0.99, 1.0].map(|fraction| since.quantile(fraction)),
            [Some(2.0), Some(2.0), Some(f64::INFINITY)]
        );
        assert_eq!(before.since(&now), None);
        assert_eq!(now.since(&now).expect("the same").quantile(0.5), None);
        assert_eq!(now.since(&Histogram::default()), None);
    }

    #[test]
    fn histograms_add_up() {
        let mut sum = Histogram::default();
        sum.add(&histogram([1, 2, 3]));
        sum.add(&histogram([0, 0, 3]));
        assert_eq!((sum.count(), sum.sum), (6.0, 18.0));
        assert_eq!(sum.quantile(0.5), Some(f64::INFINITY));
    }
}
