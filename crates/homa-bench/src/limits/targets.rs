//! Targets from a file: a floor and a goal per row of the tables.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::{comparisons, figures};

/// The quantity that a target bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Homa's value divided by TCP's in the same repetition, or the figure's own ratio.
    #[default]
    Ratio,
    /// Homa's value in the unit of the row.
    Absolute,
}

/// How a measured value compares with its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Worse than the floor.
    BelowFloor,
    /// At least as good as the floor, but not as good as the goal.
    Reached,
    /// At least as good as the goal.
    Goal,
}

/// The floor and the goal of one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The row's name.
    #[serde(skip)]
    pub name: String,
    /// The quantity that `floor` and `goal` bound.
    #[serde(rename = "as")]
    pub basis: Basis,
    /// The bound that must hold: a maximum for times, a minimum for rates.
    pub floor: f64,
    /// A better value than the floor, to aim at; `null` if there is none.
    pub goal: Option<f64>,
}

impl Target {
    /// Compares a value with the target. With `at_most`, smaller values are better.
    pub fn judge(&self, value: f64, at_most: bool) -> Verdict {
        let is_kept = |bound: f64| if at_most { value <= bound } else { value >= bound };
        match (is_kept(self.floor), self.goal.is_some_and(is_kept)) {
            (false, _) => Verdict::BelowFloor,
            (true, false) => Verdict::Reached,
            (true, true) => Verdict::Goal,
        }
    }
}

/// All targets of a file, at most one for each row.
#[derive(Clone, Debug, Default)]
pub struct Targets(Vec<Target>);

/// The content of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    target: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    #[serde(default, rename = "as")]
    basis: Option<Spanned<Basis>>,
    floor: Spanned<f64>,
    goal: Option<Spanned<f64>>,
}

impl Targets {
    /// Reads a file.
    ///
    /// # Errors
    /// The error names the file and the faulty line.
    pub fn read(path: &Path) -> Result<Targets> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        Targets::parse(&text).map_err(|(at, error)| anyhow!("{name}: line {}: {error}", line(&text, at)))
    }

    /// Returns the target of the row with this name.
    pub fn get(&self, name: &str) -> Option<&Target> {
        self.0.iter().find(|target| target.name == name)
    }

    /// Parses the text of a file. An error consists of its byte offset and the reason.
    fn parse(text: &str) -> Result<Targets, (usize, String)> {
        let file: File = toml::from_str(text).map_err(|error: toml::de::Error| {
            (error.span().map_or(0, |span| span.start), error.message().trim().replace('\n', ", "))
        })?;
        if file.target.is_empty() {
            return Err((0, "there is no target".to_owned()));
        }
        let mut targets = Targets::default();
        for entry in file.target {
            let target = targets.checked(entry.into_inner())?;
            targets.0.push(target);
        }
        Ok(targets)
    }

    /// Checks an entry: its values must be valid, and no other entry may name the same row.
    fn checked(&self, entry: Entry) -> Result<Target, (usize, String)> {
        let at = entry.name.span().start;
        let name = entry.name.into_inner();
        if self.get(&name).is_some() {
            return Err((at, format!("`{name}` has a target already")));
        }
        let comparison = comparisons::find(&name).map(|metric| metric.at_most());
        let Some(at_most) = comparison.or_else(|| figures::at_most(&name)) else {
            let known: Vec<&str> = comparisons::names().chain(figures::names()).collect();
            return Err((at, format!("unknown row `{name}`: it is none of {}", known.join(", "))));
        };
        let basis = entry.basis.as_ref().map_or(Basis::Ratio, |basis| *basis.get_ref());
        if basis == Basis::Absolute && comparison.is_none() {
            return Err((at, format!("`{name}` is a ratio and has no absolute target")));
        }
        let number = |key: &str, value: &Spanned<f64>| match *value.get_ref() {
            number if number.is_finite() && number > 0.0 => Ok(number),
            number => Err((value.span().start, format!("{key} is {number}: use a number above 0"))),
        };
        let floor = number("floor", &entry.floor)?;
        let goal = entry.goal.as_ref().map(|goal| number("goal", goal)).transpose()?;
        if let Some(goal) = goal.filter(|&goal| if at_most { goal > floor } else { goal < floor }) {
            let at = entry.goal.map_or(at, |goal| goal.span().start);
            return Err((at, format!("the goal {goal} of `{name}` is worse than its floor {floor}")));
        }
        Ok(Target { name, basis, floor, goal })
    }
}

/// Returns the number of the line that contains this byte.
fn line(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Parses targets in tests.
#[cfg(test)]
pub fn of(text: &str) -> Targets {
    Targets::parse(text).expect("targets")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
[[target]]
name = \"max_gbps_w1\"
floor = 0.8
goal = 1

[[target]]
name = \"rtt_polling_p99_us\"
as = \"absolute\"
floor = 20
";

    #[test]
    fn ratios_and_absolute_values_with_or_without_a_goal() {
        let targets = of(GOOD);
        let w1 = targets.get("max_gbps_w1").expect("a target");
        assert_eq!((w1.basis, w1.floor, w1.goal), (Basis::Ratio, 0.8, Some(1.0)));
        let rtt = targets.get("rtt_polling_p99_us").expect("a target");
        assert_eq!((rtt.basis, rtt.floor, rtt.goal), (Basis::Absolute, 20.0, None));
        assert!(targets.get("max_gbps_w2").is_none());
    }

    #[test]
    fn a_rate_is_judged_from_below_and_a_time_from_above() {
        let target = |floor, goal| Target { name: String::new(), basis: Basis::Ratio, floor, goal };
        let rate = target(0.8, Some(1.0));
        let rates = [0.79, 0.8, 0.99, 1.0].map(|value| rate.judge(value, false));
        assert_eq!(rates, [Verdict::BelowFloor, Verdict::Reached, Verdict::Reached, Verdict::Goal]);
        let time = target(1.2, Some(1.0));
        let times = [1.21, 1.2, 1.01, 1.0].map(|value| time.judge(value, true));
        assert_eq!(times, [Verdict::BelowFloor, Verdict::Reached, Verdict::Reached, Verdict::Goal]);
        assert_eq!(target(0.8, None).judge(5.0, false), Verdict::Reached);
    }

    /// Returns the line and the reason of the error for an invalid text.
    fn refused(text: &str) -> (usize, String) {
        let (at, error) = Targets::parse(text).map(|_| ()).expect_err(text);
        (line(text, at), error)
    }

    #[test]
    fn every_mistake_is_refused_with_its_line() {
        for (from, to, expected, part) in [
            (
                "name = \"rtt_polling_p99_us\"",
                "name = \"rtt_p99\"",
                7,
                "unknown row `rtt_p99`: it is none of",
            ),
            ("name = \"rtt_polling_p99_us\"", "name = \"max_gbps_w1\"", 7, "has a target already"),
            ("name = \"rtt_polling_p99_us\"", "name = \"rpcs_32_over_bare\"", 7, "no absolute target"),
            ("floor = 20", "floor = \"20\"", 9, "invalid type"),
            ("floor = 20", "floor = nan", 9, "use a number above 0"),
            ("floor = 20", "floor = inf", 9, "use a number above 0"),
            ("floor = 20", "floor = -1", 9, "use a number above 0"),
            ("floor = 20", "floor = many", 9, ""),
            ("floor = 20", "floor = 20\ngoal = 21", 10, "worse than its floor"),
            ("goal = 1", "goal = 0.7", 4, "worse than its floor"),
            ("goal = 1", "goals = 1", 4, "unknown field `goals`"),
            ("as = \"absolute\"", "as = \"percent\"", 8, "unknown variant `percent`"),
            ("floor = 0.8", "", 1, "missing field `floor`"),
            ("name = \"max_gbps_w1\"", "", 1, "missing field `name`"),
            ("[[target]]\nname = \"rtt", "[[targets]]\nname = \"rtt", 6, "unknown field `targets`"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let (line, error) = refused(&GOOD.replacen(from, to, 1));
            assert!(line == expected && error.contains(part), "{from} -> {to}: line {line}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        assert_eq!(refused("target = []"), (1, "there is no target".to_owned()));
        assert_eq!(refused("").0, 1);
    }

    #[test]
    fn the_project_s_own_file_is_good() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/perf/targets.toml");
        let targets = Targets::read(Path::new(path)).expect("targets");
        let of = |name: &str| {
            let target = targets.get(name).expect(name);
            assert_eq!(target.basis, Basis::Ratio, "{name}");
            (target.floor, target.goal)
        };
        assert_eq!(of("max_gbps_w3"), (0.6, Some(1.0)));
        assert_eq!(of("gbps_1mb"), (1.2, Some(1.5)));
        assert_eq!(of("cpu_ns_per_rpc"), (1.2, Some(1.0)));
        assert_eq!(comparisons::names().filter(|name| targets.get(name).is_none()).count(), 1);
    }
}
