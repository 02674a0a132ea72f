//! The state of a rack, for processes other than its namespace daemon: a directory with the state, and a lock
//! that the daemon holds while it runs. A state whose lock is free is left over from a crash.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::spec::{Spec, host_name};

/// Environment variable that is set to the rack's tag in all processes of a rack, so that they can be found
/// after a crash.
pub const RACK_VARIABLE: &str = "HOMA_RACK";

/// Environment variable with the directory of all racks, if it differs from the user's default. In a user
/// namespace every user appears as root, so programs there need the variable.
pub const BASE_VARIABLE: &str = "HOMA_RACK_DIR";

/// Version of the state format. Other versions are not read.
const SCHEMA: u32 = 2;

/// The state of a rack.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Version of this format.
    pub schema: u32,
    /// The description of the rack.
    pub spec: Spec,
    /// Token that distinguishes this rack from earlier racks with the same name.
    pub token: String,
    /// The process ID of the namespace daemon.
    #[serde(rename = "keeper")]
    pub daemon: u32,
    /// The namespaces of the hosts.
    pub hosts: Vec<Place>,
    /// The switch's namespace.
    pub switch: Place,
    /// Process ID of the switch; `None` if the kernel forwards, or while no switch runs.
    pub switch_pid: Option<u32>,
    /// How the switch last exited; `None` if it never exited.
    pub switch_ended: Option<String>,
    /// Number of times that the switch has exited.
    pub switch_ends: u32,
    /// Whether the switch has failed for good and is no longer restarted.
    pub switch_given_up: bool,
}

/// A namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Name used in commands.
    pub name: String,
    /// The daemon's descriptor of the namespace.
    pub descriptor: i32,
    /// Addresses of the host; none for the switch.
    pub addresses: Vec<std::net::IpAddr>,
}

impl Place {
    /// Describes the namespace of a host.
    pub fn host(spec: &Spec, number: u16, descriptor: i32) -> Place {
        Place { name: host_name(number), descriptor, addresses: spec.addresses(number) }
    }
}

impl State {
    /// Creates the state of a rack that is being built.
    pub fn new(spec: Spec, token: String, hosts: Vec<Place>, switch: Place) -> State {
        let daemon = std::process::id();
        State {
            schema: SCHEMA,
            spec,
            token,
            daemon,
            hosts,
            switch,
            switch_pid: None,
            switch_ended: None,
            switch_ends: 0,
            switch_given_up: false,
        }
    }

    /// Returns the value of [`RACK_VARIABLE`] for processes in this rack.
    pub fn tag(&self) -> String {
        format!("{}:{}", self.spec.name, self.token)
    }

    /// Returns the namespace with this name.
    ///
    /// # Errors
    /// There is no such namespace; the error lists the existing names.
    pub fn place(&self, name: &str) -> Result<&Place> {
        let places = self.hosts.iter().chain([&self.switch]);
        places.clone().find(|place| place.name == name).with_context(|| {
            format!(
                "rack `{}` has no `{name}`: its hosts are h1 to h{}, and its switch is `switch`",
                self.spec.name, self.spec.hosts
            )
        })
    }
}

/// The directory of a rack.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Returns the directory of the rack with this name. The directory may not exist.
    pub fn of(name: &str) -> Directory {
        Directory(base().join(name))
    }

    /// Creates the directory and locks it while the returned file is open.
    ///
    /// # Errors
    /// A rack with this name is up, or the directory cannot be created.
    pub fn make(&self) -> Result<File> {
        loop {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.0)
                .with_context(|| format!("cannot make {}", self.0.display()))?;
            let path = self.file("lock");
            let lock = match File::options().write(true).create(true).truncate(false).open(&path) {
                // A process that ends a rack removes the rack's directory, so the directory may have
                // disappeared: try again.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                result => result.with_context(|| format!("cannot make {}", path.display()))?,
            };
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                let name = self.name();
                bail!(
                    "rack `{name}` is up already: end it with `homa rack down --name {name}`, or choose another --name"
                );
            }
            if fs::metadata(&path).is_ok_and(|now| lock.metadata().is_ok_and(|ours| ours.ino() == now.ino()))
            {
                return Ok(lock);
            }
        }
    }

    /// Returns whether the daemon is running.
    pub fn is_held(&self) -> bool {
        let Ok(lock) = File::open(self.file("lock")) else { return false };
        flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
    }

    /// Returns the state in the directory, even if its daemon is gone, or `None` if there is no state.
    ///
    /// # Errors
    /// The state cannot be read, or another version wrote it.
    pub fn read(&self) -> Result<Option<State>> {
        let path = self.file("rack.json");
        let text = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            result => result.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let state: State = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not the state of a rack", path.display()))?;
        if state.schema != SCHEMA {
            bail!("another version of homa built rack `{}`: end it with that version", self.name());
        }
        Ok(Some(state))
    }

    /// Returns the state of a running rack.
    ///
    /// # Errors
    /// There is no rack, or its daemon is gone.
    pub fn up(&self) -> Result<State> {
        let name = self.name();
        let Some(state) = self.read()? else {
            bail!("there is no rack `{name}`: build it with `homa rack up --name {name}`");
        };
        if !self.is_held() {
            bail!(
                "rack `{name}` is broken, its daemon is gone: remove its remains with `homa rack down --name {name}`"
            );
        }
        Ok(state)
    }

    /// Replaces the state atomically.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn write(&self, state: &State) -> Result<()> {
        let (path, temporary) = (self.file("rack.json"), self.file("rack.json.new"));
        fs::write(&temporary, serde_json::to_vec_pretty(state)?)
            .and_then(|()| fs::rename(&temporary, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the path of the file with this name in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Removes the directory and its contents.
    ///
    /// # Errors
    /// The directory cannot be removed. A missing directory is not an error.
    pub fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.0.display()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the parent directory, for [`BASE_VARIABLE`].
    pub fn base(&self) -> &Path {
        self.0.parent().unwrap_or(&self.0)
    }

    fn name(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Returns the names of all racks of this user, including crashed ones, in order.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(base()).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the directory that contains the directories of all racks of this user.
fn base() -> PathBuf {
    if let Some(directory) = std::env::var_os(BASE_VARIABLE) {
        return PathBuf::from(directory);
    }
    let uid = rustix::process::geteuid().as_raw();
    // Root in a user namespace, for example in a rootless container, cannot write to /run.
    if uid == 0 && rustix::fs::access("/run", rustix::fs::Access::WRITE_OK).is_ok() {
        return PathBuf::from("/run/homa-rack");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| Path::new(directory).is_dir()) {
        Some(directory) => PathBuf::from(directory).join("homa-rack"),
        None => std::env::temp_dir().join(format!("homa-rack-{uid}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SwitchKind;

    fn directory(name: &str) -> Directory {
        Directory(std::env::temp_dir().join(format!("homa-rack-test-{}", std::process::id())).join(name))
    }

    fn state() -> State {
        let spec = Spec {
            name: "one".to_owned(),
            hosts: 2,
            rate_bps: 1_000_000_000,
            mtu: 1_500,
            switch: SwitchKind::Homa,
            buffer: "1ms".to_owned(),
            switch_options: Vec::new(),
        };
        let switch = Place { name: "switch".to_owned(), descriptor: 9, addresses: Vec::new() };
        let hosts = vec![Place::host(&spec, 1, 7), Place::host(&spec, 2, 8)];
        State::new(spec, "x".to_owned(), hosts, switch)
    }

    #[test]
    fn a_name_is_taken_while_its_lock_is_held_and_stale_afterwards() {
        let directory = directory("one");
        assert!(directory.up().expect_err("not there").to_string().contains("no rack `one`"));
        let lock = directory.make().expect("a directory");
        directory.write(&state()).expect("written");
        assert_eq!(directory.up().expect("up").spec, state().spec);
        assert!(directory.make().expect_err("taken").to_string().contains("is up already"));
        drop(lock);
        assert!(directory.up().expect_err("stale").to_string().contains("homa rack down --name one"));
        drop(directory.make().expect("stale state is no obstacle"));
        directory.remove().expect("removed");
        directory.remove().expect("nothing to remove");
    }

    #[test]
    fn a_place_that_is_not_there_is_named() {
        let state = state();
        assert_eq!(state.place("h2").expect("there").descriptor, 8);
        assert_eq!(state.place("switch").expect("there").descriptor, 9);
        let error = state.place("h3").expect_err("not there").to_string();
        assert!(error.contains("`h3`") && error.contains("h1 to h2"), "{error}");
    }
}
