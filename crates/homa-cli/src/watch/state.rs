//! The file that contains the last snapshot of an address.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use homa_metrics::{MetricsAddr, Scrape};
use homa_report::output::Output;

/// The file for the last snapshot.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
}

impl State {
    /// Returns the file `chosen`, or the default file for this address.
    ///
    /// # Errors
    /// There is no home directory, or the file cannot be written.
    pub fn of(addr: &MetricsAddr, chosen: Option<&Path>) -> Result<State> {
        let path = match chosen {
            Some(path) => path.to_owned(),
            None => {
                let path = usual(addr, std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))
                    .context(
                        "there is no home directory to keep the last snapshot in: choose a --state FILE",
                    )?;
                if let Some(directory) = path.parent() {
                    fs::create_dir_all(directory).with_context(|| {
                        format!("cannot make {}: choose a --state FILE", directory.display())
                    })?;
                }
                path
            }
        };
        Output::check(&path)?;
        Ok(State { path })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the last snapshot, or `None` if there is none yet.
    ///
    /// # Errors
    /// The file is damaged, or belongs to a different address.
    pub fn last(&self, addr: &MetricsAddr) -> Result<Option<Scrape>> {
        let path = self.path.display();
        if !self.path.exists() {
            return Ok(None);
        }
        let bytes = fs::read(&self.path).with_context(|| format!("cannot read {path}"))?;
        let scrape = Scrape::parse(&bytes).with_context(|| {
            format!("{path} is not a complete snapshot of metrics: remove it to start again")
        })?;
        let (source, ours) = (scrape.source.as_deref(), addr.to_string());
        ensure!(
            source.is_none_or(|source| source == ours),
            "{path} has the metrics of {}: choose another --state FILE for {ours}",
            source.unwrap_or_default()
        );
        Ok(Some(scrape))
    }

    /// Saves this snapshot for the next comparison.
    pub fn keep(&self, scrape: &Scrape) -> Result<()> {
        Output::check(&self.path)?.write(scrape.to_file().as_bytes())
    }
}

fn usual(addr: &MetricsAddr, state_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // The XDG specification requires relative paths to be ignored.
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let base = state_home
        .and_then(absolute)
        .or_else(|| home.and_then(absolute).map(|home| home.join(".local").join("state")))?;
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
    let name: String = addr.to_string().chars().map(plain).collect();
    Some(base.join("homa").join("metrics").join(name + ".prom"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_a_file_of_its_own_where_the_user_keeps_states() {
        let addr = |text: &str| text.parse::<MetricsAddr>().expect("an address");
        let path = |text: &str, state: Option<&str>, home: Option<&str>| {
            usual(&addr(text), state.map(OsString::from), home.map(OsString::from))
        };
        let file = |text: &str| Some(PathBuf::from(text));
        let tcp = "127.0.0.1:9100";
        assert_eq!(path(tcp, Some("/s"), Some("/h")), file("/s/homa/metrics/127.0.0.1_9100.prom"));
        assert_eq!(path(tcp, None, Some("/h")), file("/h/.local/state/homa/metrics/127.0.0.1_9100.prom"));
        assert_eq!(path("unix:/a", Some("s"), Some("/h")), file("/h/.local/state/homa/metrics/unix__a.prom"));
        assert_eq!(path(tcp, Some(""), None), None);
    }
}
