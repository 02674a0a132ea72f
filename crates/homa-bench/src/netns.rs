//! Unnamed network namespaces. They exist while a descriptor is open, and need no cleanup.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use homa::HostConfig;
use homa_driver::netdev::admin_command;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// Opens the network namespace of this thread.
///
/// # Errors
/// The kernel has no network namespaces.
pub fn current() -> Result<OwnedFd> {
    let file =
        File::open("/proc/thread-self/ns/net").context("cannot open this thread's network namespace")?;
    Ok(file.into())
}

/// Creates a network namespace.
///
/// # Errors
/// CAP_SYS_ADMIN is missing.
pub fn fresh() -> Result<OwnedFd> {
    let make = || {
        unshare(UnshareFlags::NEWNET).context("cannot make a network namespace")?;
        current()
    };
    // A short-lived thread creates the namespace, so that the calling thread keeps its own.
    thread::spawn(make).join().map_err(|_| anyhow!("the thread that makes a network namespace panicked"))?
}

/// Makes this process root in a new user namespace, in which it may create network namespaces. The process
/// must be single-threaded.
///
/// # Errors
/// The system does not allow it.
pub fn enter_user_namespace() -> Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(UnshareFlags::NEWUSER).context("cannot make a user namespace")?;
    let map = |file: &str, text: String| {
        std::fs::write(format!("/proc/self/{file}"), text)
            .with_context(|| format!("cannot write the user namespace's {file}"))
    };
    // A user without the right to change groups may map only its own group, and must first disable setgroups.
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("0 {uid} 1"))?;
    map("gid_map", format!("0 {gid} 1"))
}

fn unshare(what: UnshareFlags) -> rustix::io::Result<()> {
    #[expect(deprecated, reason = "unsafe only for file descriptors, which these namespaces do not concern")]
    rustix::thread::unshare(what)
}

/// Moves this thread into a network namespace, with all threads and processes that it starts from now on.
///
/// # Errors
/// CAP_SYS_ADMIN is missing.
pub fn enter(namespace: impl AsFd) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .context("cannot enter a network namespace")
}

/// Moves this process into a user namespace. The process must be single-threaded.
///
/// # Errors
/// The namespace belongs to another user.
pub fn enter_user(namespace: impl AsFd) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))
        .context("cannot enter a user namespace")
}

/// Removes the shared memory segment used by hosts over raw IP in a namespace. The segment outlives its hosts
/// so that later hosts can use it, but an unnamed namespace has no later hosts.
pub fn forget_segment(namespace: &OwnedFd) {
    let Ok(status) = rustix::fs::fstat(namespace) else { return };
    let path = HostConfig::default().segment_dir.join(format!("homa-net-{}", status.st_ino));
    // The segment exists only if raw IP was measured.
    let _ = std::fs::remove_file(path);
}

/// Mounts /sys again for this thread and the processes that it starts from now on, so that /sys shows the
/// devices of the thread's network namespace.
///
/// # Errors
/// CAP_SYS_ADMIN is missing.
pub fn remount_sys() -> Result<()> {
    unshare(UnshareFlags::NEWNS).context("cannot make a mount namespace")?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .context("cannot make the mounts private")?;
    mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).context("cannot mount /sys")
}

/// Runs `ip` in this thread's network namespace. `words` are its arguments, separated by single spaces.
///
/// # Errors
/// `ip` failed (the error includes its message), or is not installed.
pub fn ip(words: &str) -> Result<()> {
    tool("ip", words).map(drop)
}

/// Runs a program of iproute2 in this thread's network namespace and returns its output. `words` are its
/// arguments, separated by single spaces.
///
/// # Errors
/// The program failed (the error includes its message), or is not installed.
pub fn tool(name: &str, words: &str) -> Result<String> {
    let output = admin_command(name)
        .args(words.split(' '))
        .output()
        .with_context(|| format!("cannot run `{name}`: install iproute2"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} {words}: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
