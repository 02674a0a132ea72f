//! The sweep file: its base, the settings that vary, and the resulting runs.

use std::path::Path;

use toml::{Table, Value};

use super::super::draft::{self, Plan, SettingsDraft};
use super::super::{knobs, preset};

/// The built-in sweeps, each as its name and its text.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("overcommit", include_str!("../../../sweeps/overcommit.toml")),
    ("priorities", include_str!("../../../sweeps/priorities.toml")),
    ("cutoffs", include_str!("../../../sweeps/cutoffs.toml")),
    ("unsched-bytes", include_str!("../../../sweeps/unsched-bytes.toml")),
    ("link-speed", include_str!("../../../sweeps/link-speed.toml")),
    ("loss", include_str!("../../../sweeps/loss.toml")),
    ("incast", include_str!("../../../sweeps/incast.toml")),
    ("beyond-paper", include_str!("../../../sweeps/beyond-paper.toml")),
];

/// The values of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    pub name: String,
    pub values: Vec<String>,
}

/// A parsed sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Name used for the results: the name of the file without the extension.
    pub name: String,
    pub title: String,
    pub transports: Vec<String>,
    pub seeds: Vec<u64>,
    /// The settings that vary between runs, other than transport and seed. The last axis varies fastest and
    /// is the x axis of charts.
    pub axes: Vec<Axis>,
    preset: &'static preset::Preset,
    /// Settings common to all runs, in the order of the file.
    shared: Vec<(String, String)>,
}

/// A run of a sweep.
#[derive(Clone, Debug)]
pub struct Run {
    pub transport: String,
    /// The value on each axis; `None` if the axis does not apply to the transport.
    pub values: Vec<Option<String>>,
    pub seed: u64,
    pub plan: Plan,
}

/// Maximum number of runs in a sweep. More would indicate a mistake in the file.
const MAX_RUNS: usize = 100_000;

impl Sweep {
    /// Reads a sweep from a file, or returns the built-in sweep with this name.
    ///
    /// # Errors
    /// The error names the file, and the key or line that is wrong.
    pub fn open(name: &str) -> Result<Sweep, String> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Sweep::parse(name, text).map_err(|error| format!("{name}: {error}"));
        }
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(|error| {
            let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            format!("{name}: {error}; sweeps that need no file are {}", known.join(", "))
        })?;
        let stem =
            path.file_stem().map_or_else(|| "sweep".to_owned(), |stem| stem.to_string_lossy().into_owned());
        Sweep::parse(&stem, &text).map_err(|error| format!("{name}: {error}"))
    }

    fn parse(name: &str, text: &str) -> Result<Sweep, String> {
        let table: Table = toml::from_str(text).map_err(|error: toml::de::Error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let place = line.map_or(String::new(), |line| format!("line {line}: "));
            format!("{place}{}", error.message())
        })?;
        known_keys(&table, &["title", "seeds", "base", "vary"])?;
        let mut sweep = Sweep {
            name: name.to_owned(),
            title: table.get("title").map_or_else(|| Ok(name.to_owned()), |title| scalar("title", title))?,
            transports: vec!["homa".to_owned()],
            seeds: seeds(table.get("seeds"))?,
            axes: Vec::new(),
            preset: preset::named("sigcomm18")?,
            shared: Vec::new(),
        };
        sweep.base(sub_table(&table, "base")?)?;
        sweep.read_varied(sub_table(&table, "vary")?)?;
        draft::check_transports(&sweep.transports)?;
        Ok(sweep)
    }

    fn base(&mut self, base: Option<&Table>) -> Result<(), String> {
        for (key, value) in base.into_iter().flatten() {
            match key.as_str() {
                "preset" => self.preset = preset::named(&scalar(key, value)?)?,
                "transport" => self.transports = list(key, value)?,
                "seed" => return Err("base.seed: use `seeds = [...]` before [base]".to_owned()),
                "homa" if value.is_table() => {
                    for (field, value) in value.as_table().into_iter().flatten() {
                        self.shared.push((format!("homa.{field}"), scalar(field, value)?));
                    }
                }
                // A list of workloads or loads becomes an axis.
                "workload" | "load" if value.is_array() => {
                    let (name, values) = (key.clone(), list(key, value)?);
                    match &values[..] {
                        [single] => self.shared.push((name, single.clone())),
                        _ => self.axes.push(Axis { name, values }),
                    }
                }
                _ => {
                    known_setting(key, "base", "preset, transport, ")?;
                    self.shared.push((key.clone(), scalar(key, value)?));
                }
            }
        }
        Ok(())
    }

    fn read_varied(&mut self, vary: Option<&Table>) -> Result<(), String> {
        for (key, value) in vary.into_iter().flatten() {
            if let Some(fields) = value.as_table().filter(|_| key == "homa") {
                for (field, value) in fields {
                    let name = format!("homa.{field}");
                    self.axes.push(Axis { values: list(&name, value)?, name });
                }
                continue;
            }
            if key == "seed" {
                return Err("vary.seed: use `seeds = [...]` before [base]".to_owned());
            }
            known_setting(key, "vary", "")?;
            self.axes.push(Axis { name: key.replace('-', "_"), values: list(key, value)? });
        }
        let twice = |axis: &Axis| {
            let name = axis.name.replace('-', "_");
            let same = self.axes.iter().filter(|other| other.name.replace('-', "_") == name).count();
            same > 1 || self.shared.iter().any(|(shared, _)| shared.replace('-', "_") == name)
        };
        match self.axes.iter().find(|axis| twice(axis)) {
            Some(axis) => Err(format!("{}: is said twice", axis.name)),
            None => Ok(()),
        }
    }

    /// Replaces the value of a setting, or the axis with its name.
    ///
    /// # Errors
    /// The error names the known settings.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        if name == "transport" {
            self.transports = value.split(',').map(str::to_owned).collect();
            return draft::check_transports(&self.transports);
        }
        if !name.starts_with("homa.") && knobs::find_knob(name).is_none() {
            return Err(format!(
                "unknown setting: use transport, {}, or homa. and a setting",
                knobs::names()
            ));
        }
        let same = |other: &str| other.replace('-', "_") == name.replace('-', "_");
        self.axes.retain(|axis| !same(&axis.name));
        self.shared.retain(|(other, _)| !same(other));
        self.shared.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Returns all runs after checking them, in the order of the tables.
    ///
    /// # Errors
    /// The error names the settings that are incompatible.
    pub fn runs(&self) -> Result<Vec<Run>, String> {
        let factors =
            self.axes.iter().map(|axis| axis.values.len()).chain([self.transports.len(), self.seeds.len()]);
        let count = factors.fold(1usize, usize::saturating_mul);
        if count > MAX_RUNS {
            return Err(format!("{count} runs are too many: at most {MAX_RUNS}"));
        }
        let said = self.shared.iter().map(|(name, _)| name).chain(self.axes.iter().map(|axis| &axis.name));
        said.into_iter().try_for_each(|name| knobs::check_concerns(name, &self.transports))?;
        let mut runs = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for transport in &self.transports {
            for values in combinations(&self.axes) {
                let values: Vec<Option<String>> = self
                    .axes
                    .iter()
                    .zip(values)
                    .map(|(axis, value)| {
                        let counts = knobs::concerns(&axis.name, transport);
                        counts.then(|| value.to_owned())
                    })
                    .collect();
                if !seen.insert((transport, values.clone())) {
                    continue;
                }
                // Runs that differ only in the seed share a plan, because computing a plan takes a long time.
                let plan = self.plan(&values)?;
                plan.check_load(std::slice::from_ref(transport))?;
                for &seed in &self.seeds {
                    let mut plan = plan.clone();
                    plan.cluster.seed = seed;
                    runs.push(Run { transport: transport.clone(), values: values.clone(), seed, plan });
                }
            }
        }
        Ok(runs)
    }

    fn plan(&self, values: &[Option<String>]) -> Result<Plan, String> {
        let mut draft = SettingsDraft::new(self.preset);
        for (name, text) in &self.shared {
            knobs::set(&mut draft, name, text)?;
        }
        let mut place = String::new();
        for (axis, text) in self.axes.iter().zip(values) {
            if let Some(text) = text {
                knobs::set(&mut draft, &axis.name, text)?;
                place.push_str(&format!(" {} = {text}", axis.name));
            }
        }
        draft.build().map_err(|error| if place.is_empty() { error } else { format!("with{place}: {error}") })
    }
}

/// Returns all combinations of one value from each axis. The last axis varies fastest.
fn combinations(axes: &[Axis]) -> Vec<Vec<&str>> {
    axes.iter().fold(vec![Vec::new()], |combinations, axis| {
        let with = |combination: &Vec<_>| {
            let combination = combination.clone();
            axis.values.iter().map(move |value| {
                let mut longer = combination.clone();
                longer.push(value.as_str());
                longer
            })
        };
        combinations.iter().flat_map(with).collect()
    })
}

fn known_keys(table: &Table, known: &[&str]) -> Result<(), String> {
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("unknown key `{key}`: use {}", known.join(", "))),
        None => Ok(()),
    }
}

fn known_setting(key: &str, table: &str, more: &str) -> Result<(), String> {
    if knobs::find_knob(key).is_some() {
        return Ok(());
    }
    Err(format!(
        "unknown key `{key}` in [{table}]: use {more}{}, or homa. and a setting of the protocol",
        knobs::names()
    ))
}

fn sub_table<'a>(table: &'a Table, name: &str) -> Result<Option<&'a Table>, String> {
    match table.get(name) {
        None => Ok(None),
        Some(Value::Table(table)) => Ok(Some(table)),
        Some(_) => Err(format!("{name}: must be a table, [{name}]")),
    }
}

/// Returns the text of a single value.
fn scalar(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(flag) => Ok(flag.to_string()),
        Value::Array(_) => Err(format!("{key}: a list belongs in [vary]")),
        Value::Table(_) | Value::Datetime(_) => Err(format!("{key}: must be a number or a text")),
    }
}

/// Returns a list; a single value becomes a list of one.
fn list(key: &str, value: &Value) -> Result<Vec<String>, String> {
    let values = match value {
        Value::Array(values) => {
            values.iter().map(|value| scalar(key, value)).collect::<Result<Vec<_>, _>>()?
        }
        single => vec![scalar(key, single)?],
    };
    let mut sorted = values.clone();
    sorted.sort();
    sorted.dedup();
    match values.len() {
        0 => Err(format!("{key}: the list is empty")),
        count if sorted.len() < count => Err(format!("{key}: a value is listed twice")),
        _ => Ok(values),
    }
}

fn seeds(value: Option<&Value>) -> Result<Vec<u64>, String> {
    let Some(value) = value else { return Ok(vec![1]) };
    let seed =
        |text: String| text.parse().map_err(|_| format!("seeds: `{text}` is no whole number from 0 on"));
    list("seeds", value)?.into_iter().map(seed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(text: &str) -> Result<Vec<Run>, String> {
        Sweep::parse("test", text)?.runs()
    }

    #[test]
    fn every_built_in_sweep_is_one() {
        for (name, _) in BUILT_IN {
            let runs =
                Sweep::open(name).and_then(|sweep| sweep.runs()).unwrap_or_else(|error| panic!("{error}"));
            assert!(runs.len() > 4, "{name}");
        }
    }

    #[test]
    fn runs_are_all_combinations() {
        let text = "seeds = [1, 2]\n[base]\nworkload = [\"w1\", \"w2\"]\nload = 0.5\n[vary]\novercommit = [1, 2, 4]\n";
        let runs = runs(text).unwrap();
        assert_eq!(runs.len(), 12);
        assert_eq!(runs[2].values, [Some("w1".to_owned()), Some("2".to_owned())]);
        assert_eq!(runs[2].plan.homa.protocol.max_overcommit, 2);
        assert_eq!((runs[3].seed, runs[3].plan.cluster.seed), (2, 2));
    }

    /// Homa's settings do not apply to other transports. Each other transport has one run for all values of
    /// Homa's settings.
    #[test]
    fn what_is_homas_alone_does_not_multiply_others() {
        let text =
            "[base]\ntransport = [\"homa\", \"oracle\"]\n[vary]\novercommit = [1, 2]\nload = [0.3, 0.4]\n";
        let runs = runs(text).unwrap();
        let of = |name: &str| runs.iter().filter(|run| run.transport == name).count();
        assert_eq!((of("homa"), of("oracle")), (4, 2));
    }

    #[test]
    fn what_is_set_afterwards_replaces_what_the_file_says() {
        let text = "[base]\nworkload = [\"w1\", \"w2\"]\nwarm_up = \"5ms\"\n[vary]\novercommit = [1, 2]\n";
        let mut sweep = Sweep::parse("test", text).unwrap();
        for (name, value) in [("workload", "w3"), ("warm-up", "1ms"), ("homa.max_peers", "7")] {
            sweep.set(name, value).unwrap();
        }
        let runs = sweep.runs().unwrap();
        assert_eq!(runs.len(), 2);
        let cluster = &runs[0].plan.cluster;
        assert_eq!((cluster.workload.name(), cluster.warm_up_ns), ("w3", 1_000_000));
        assert_eq!(runs[1].plan.homa.protocol.max_peers, 7);
        assert!(sweep.set("laod", "1").unwrap_err().contains("workload"));
    }

    #[test]
    fn settings_of_the_protocol_have_their_own_table() {
        let text = "[base]\nhoma.max_peers = 9\n[vary]\nhoma.max_incoming = [50_000, 60_000]\n";
        let runs = runs(text).unwrap();
        assert_eq!(runs[1].plan.homa.protocol.max_incoming, 60_000);
        assert_eq!(runs[1].plan.homa.protocol.max_peers, 9);
    }

    #[test]
    fn a_wrong_key_is_named_with_the_right_ones() {
        for (text, part) in [
            ("sedes = [1]", "unknown key `sedes`: use title, seeds, base, vary"),
            ("[base]\nlaod = 0.5", "unknown key `laod` in [base]: use preset, transport, workload"),
            ("[vary]\novercomit = [1]", "unknown key `overcomit` in [vary]"),
            ("[vary]\novercommit = []", "overcommit: the list is empty"),
            ("[vary]\novercommit = [1, 1]", "listed twice"),
            ("[base]\nload = 0.5\n[vary]\nload = [0.1]", "load: is said twice"),
            ("[base]\novercommit = [1, 2]", "belongs in [vary]"),
            ("[base]\npreset = \"x\"", "unknown preset"),
            ("[base]\ntransport = \"x\"", "unknown transport"),
            ("[vary]\nload = [0.5, 1.5]", "with load = 1.5: load: must be above 0"),
            ("[base\n", "line 1"),
            ("seeds = [-1]", "seeds"),
        ] {
            let error = runs(text).expect_err(part);
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
