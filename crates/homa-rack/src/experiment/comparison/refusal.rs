//! Explains why no rack can be built on this machine, and names the command that permits it.

use std::fs;
use std::path::Path;

/// This one option is enough, without further capabilities, because the rack is built in a user namespace.
/// Even root without CAP_SYS_ADMIN builds the rack in one. docs/guide/install.md and the Dockerfile contain
/// the same command.
const CONTAINER_REMEDY: &str = "docker run --security-opt seccomp=unconfined IMAGE";

/// System settings that control who may make namespaces.
#[derive(Clone, Debug, Default)]
struct Settings {
    is_root: bool,
    /// Whether this is a container, for example of Docker or Podman.
    is_container: bool,
    /// Whether system calls are filtered.
    is_filtered: bool,
    max_user_namespaces: Option<u64>,
    max_net_namespaces: Option<u64>,
    /// A setting that exists on Debian.
    unprivileged_userns_clone: Option<u64>,
    /// A setting that exists on Ubuntu.
    apparmor_restrict_unprivileged_userns: Option<u64>,
}

impl Settings {
    fn read() -> Settings {
        let number = |name: &str| {
            let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
            text.trim().parse().ok()
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let container = fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
        Settings {
            is_root: rustix::process::geteuid().is_root(),
            is_container: ["/.dockerenv", "/run/.containerenv"].iter().any(|path| Path::new(path).exists())
                || ["docker", "kubepods", "containerd"].iter().any(|name| container.contains(name)),
            is_filtered: status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"])),
            max_user_namespaces: number("user/max_user_namespaces"),
            max_net_namespaces: number("user/max_net_namespaces"),
            unprivileged_userns_clone: number("kernel/unprivileged_userns_clone"),
            apparmor_restrict_unprivileged_userns: number("kernel/apparmor_restrict_unprivileged_userns"),
        }
    }

    /// Returns the setting that forbids namespaces, and the command that permits them, or `None` if no known
    /// setting forbids them.
    fn forbidding_setting(&self) -> Option<(&'static str, &'static str)> {
        if self.max_user_namespaces == Some(0) {
            return Some(("user.max_user_namespaces is 0", "sudo sysctl user.max_user_namespaces=10000"));
        }
        if self.max_net_namespaces == Some(0) {
            return Some(("user.max_net_namespaces is 0", "sudo sysctl user.max_net_namespaces=10000"));
        }
        if self.unprivileged_userns_clone == Some(0) && !self.is_root {
            return Some((
                "kernel.unprivileged_userns_clone is 0",
                "sudo sysctl kernel.unprivileged_userns_clone=1",
            ));
        }
        if self.apparmor_restrict_unprivileged_userns == Some(1) && !self.is_root {
            return Some((
                "AppArmor restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1)",
                "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
            ));
        }
        if self.is_filtered {
            return Some((
                if self.is_container {
                    "the container's seccomp profile forbids namespaces"
                } else {
                    "a seccomp filter forbids namespaces"
                },
                if self.is_container {
                    CONTAINER_REMEDY
                } else {
                    "run it where system calls are not filtered"
                },
            ));
        }
        None
    }
}

/// Returns one line that explains why there is no rack, with the setting and the command. `error` is the
/// error of the attempt to build a rack.
pub fn refusal(error: &str) -> String {
    refusal_text(&Settings::read(), error)
}

fn refusal_text(settings: &Settings, error: &str) -> String {
    // The error of the attempt is more precise, unless it concerns namespaces.
    let is_forbidden = error.contains("namespace");
    let (why, remedy) = match settings.forbidding_setting().filter(|_| is_forbidden) {
        Some((why, command)) => (why.to_owned(), format!("allow it by `{command}`")),
        None if is_forbidden => (error.to_owned(), "try it as root".to_owned()),
        None => {
            return format!(
                "no rack of hosts: {error}; comparing over loopback instead, where nothing congests"
            );
        }
    };
    format!("no rack of hosts: {why}; {remedy}; comparing over loopback instead, where nothing congests")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_and_the_command_are_named() {
        let error = "cannot build a rack of hosts: cannot make a user namespace: Operation not permitted";
        let base =
            Settings { max_user_namespaces: Some(10), max_net_namespaces: Some(10), ..Settings::default() };
        let cases = [
            (
                Settings { max_user_namespaces: Some(0), ..base.clone() },
                "sysctl user.max_user_namespaces=10000",
            ),
            (
                Settings { max_net_namespaces: Some(0), ..base.clone() },
                "sysctl user.max_net_namespaces=10000",
            ),
            (
                Settings { unprivileged_userns_clone: Some(0), ..base.clone() },
                "kernel.unprivileged_userns_clone=1",
            ),
            (
                Settings { apparmor_restrict_unprivileged_userns: Some(1), ..base.clone() },
                "kernel.apparmor_restrict_unprivileged_userns=0",
            ),
            (
                Settings { is_filtered: true, is_container: true, ..base.clone() },
                "docker run --security-opt seccomp=unconfined IMAGE",
            ),
            (Settings { is_filtered: true, ..base.clone() }, "system calls are not filtered"),
            (base.clone(), "as root"),
        ];
        for (settings, command) in cases {
            let line = refusal_text(&settings, error);
            assert!(line.contains(command) && line.contains("loopback") && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn what_only_users_are_denied_is_no_reason_for_root() {
        let settings = Settings {
            is_root: true,
            unprivileged_userns_clone: Some(0),
            apparmor_restrict_unprivileged_userns: Some(1),
            ..Settings::default()
        };
        assert_eq!(settings.forbidding_setting(), None);
    }

    #[test]
    fn an_error_about_something_else_is_told_as_it_is() {
        let settings = Settings { max_user_namespaces: Some(0), ..Settings::default() };
        let line = refusal_text(&settings, "cannot run `ip`: install iproute2");
        assert!(line.contains("install iproute2") && !line.contains("sysctl"), "{line}");
    }

    #[test]
    fn the_documents_of_the_image_give_the_same_flag() {
        let flags = CONTAINER_REMEDY.trim_start_matches("docker run ").trim_end_matches(" IMAGE");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in ["Dockerfile", "docs/guide/install.md"] {
            let text = fs::read_to_string(root.join(name)).expect(name);
            assert!(text.contains(flags), "{flags} is not in {name}");
        }
    }
}
