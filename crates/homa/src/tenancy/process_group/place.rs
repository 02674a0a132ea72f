//! The directory of the segment's file. Only the user of the host may write to it, since any user who creates
//! the file first could lock all other processes out of their host.

use std::ffi::CStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::types::segment_error::SegmentError;

fn effective_user() -> u32 {
    // SAFETY: the call only returns a number.
    unsafe { libc::geteuid() }
}

fn is_writable(path: &CStr) -> bool {
    // SAFETY: the path ends with a zero byte and outlives the call.
    unsafe { libc::access(path.as_ptr(), libc::W_OK) == 0 }
}

/// Returns the directory for the processes of this user: /run/homa for root, otherwise `homa` in
/// `XDG_RUNTIME_DIR` if that is set, otherwise `/dev/shm/homa-UID`. All are in memory.
pub(crate) fn default_dir() -> PathBuf {
    let user = effective_user();
    // In a user namespace, root may lack write permissions that its user ID suggests.
    let has_run = fs::metadata("/run").is_ok_and(|meta| meta.uid() == 0) && is_writable(c"/run");
    dir_for(user, has_run, std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
}

fn dir_for(user: u32, has_run: bool, runtime: Option<PathBuf>) -> PathBuf {
    match runtime {
        _ if user == 0 && has_run => PathBuf::from("/run/homa"),
        Some(runtime) if runtime.is_absolute() && user != 0 => runtime.join("homa"),
        _ => PathBuf::from(format!("/dev/shm/homa-{user}")),
    }
}

/// Creates the directory if it does not exist, and checks that no other user can replace this user's files in
/// it.
pub(super) fn prepare(dir: &Path) -> Result<(), SegmentError> {
    let system = |what, source| SegmentError::System { what, path: dir.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(system("make", error)),
        _ => {}
    }
    // A symbolic link is not followed, because its target may change.
    let meta = fs::symlink_metadata(dir).map_err(|source| system("look at", source))?;
    let owned = meta.uid() == effective_user() || meta.uid() == 0;
    // With the sticky bit set, as in /tmp, only a file's owner can replace the file. The owner is checked
    // when the file is opened.
    let writable = meta.mode() & 0o022 != 0 && meta.mode() & libc::S_ISVTX == 0;
    if !meta.is_dir() || !owned || writable {
        return Err(SegmentError::UntrustedDir { path: dir.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::tenancy::process_group::tests::Dir;

    #[test]
    fn each_user_has_a_directory_of_its_own() {
        let xdg = || Some(PathBuf::from("/run/user/7"));
        assert_eq!(dir_for(0, true, xdg()), Path::new("/run/homa"));
        assert_eq!(dir_for(0, false, xdg()), Path::new("/dev/shm/homa-0"));
        assert_eq!(dir_for(7, true, xdg()), Path::new("/run/user/7/homa"));
        for odd in [None, Some(PathBuf::from("relative"))] {
            assert_eq!(dir_for(7, true, odd), Path::new("/dev/shm/homa-7"));
        }
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused_by_name() {
        let outer = Dir::new();
        let dir = outer.path().join("homa");
        prepare(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        prepare(&dir).unwrap();
        let set = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        set(0o777);
        let error = prepare(&dir).unwrap_err().to_string();
        assert!(error.contains(dir.to_str().unwrap()), "{error}");
        set(0o1777);
        prepare(&dir).unwrap();
        let link = outer.path().join("link");
        symlink(&dir, &link).unwrap();
        assert!(matches!(prepare(&link), Err(SegmentError::UntrustedDir { .. })));
    }
}
