//! A mount in the place of a dead one, with nothing between them: it is made beneath that (Linux 6.5), which goes then.
//!
//! Taken away first, the dead mount would leave the directory below to everybody for a moment, and who is at work in the mount could write there.
//!
//! A process that ends between the two steps leaves two dead mounts, one beneath the other. The next takes the upper one away first, so that there is always
//! one that hides the directory, and never more than two.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use cofs_types::failpoint;
use rustix::{
    fs::CWD,
    io::Result,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
        fsconfig_set_string, fsmount, fsopen, move_mount,
    },
};

use super::{MountError, MountOptions, Unmount, all_mounted, is_dead_mount, open_device, unmount};

/// The connection of the new mount; `None`: there is no dead one, or the kernel cannot do it, and all is as before.
pub(super) fn replace_dead(
    point: &Path,
    options: &MountOptions,
) -> std::result::Result<Option<OwnedFd>, MountError> {
    let fs_type = options.fs_type();
    let failed = |source| MountError::Mount { point: point.into(), source };
    if !leave_one_dead(point, &fs_type).map_err(failed)? {
        return Ok(None);
    }
    let device = open_device()?;
    if let Err(error) = mount(point, &device, options) {
        tracing::debug!(%error, "no mount can be made beneath the dead one");
        return Ok(None);
    }
    failpoint("cofs.replace.beneath");
    // Nobody may look what stands there now: the new mount answers when it is served. (Who has just unmounted the dead one, and has the new one taken away
    // from him, wanted neither.)
    unmount(point, Unmount::Lazily).map_err(failed)?;
    failpoint("cofs.replace.alone");
    Ok(Some(device))
}

/// Whether a dead mount stands on top at `point`, and no other of its type below, which would come to light one day: those that are dead, too, go.
fn leave_one_dead(point: &Path, fs_type: &str) -> std::io::Result<bool> {
    while is_dead_mount(point, fs_type) {
        let kinds = all_mounted(point)?;
        match kinds.iter().filter(|kind| *kind == fs_type).count() {
            1 => return Ok(true),
            // Nothing else lies between them.
            _ if kinds.iter().rev().take(2).all(|kind| kind == fs_type) => unmount(point, Unmount::Lazily)?,
            _ => break,
        }
    }
    Ok(false)
}

fn mount(point: &Path, device: &OwnedFd, options: &MountOptions) -> Result<()> {
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    fsconfig_set_string(&context, "source", &*options.fs_name)?;
    for (key, value) in [
        ("subtype", options.subtype.to_owned()),
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", format!("{:o}", libc::S_IFDIR)),
        ("user_id", uid.to_string()),
        ("group_id", gid.to_string()),
    ] {
        fsconfig_set_string(&context, key, value)?;
    }
    for (set, key) in [
        (options.allow_other, "allow_other"),
        (options.default_permissions, "default_permissions"),
        (options.read_only, "ro"),
        (options.sync, "sync"),
        (options.dir_sync, "dirsync"),
    ] {
        if set {
            fsconfig_set_flag(&context, key)?;
        }
    }
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes(options))?;
    failpoint("cofs.replace.made");
    let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_BENEATH;
    move_mount(&mount, "", CWD, point, how)
}

fn attributes(options: &MountOptions) -> MountAttrFlags {
    [
        (options.read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (options.no_suid, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (options.no_dev, MountAttrFlags::MOUNT_ATTR_NODEV),
        (options.no_exec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (options.no_atime, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (options.no_dir_atime, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ]
    .into_iter()
    .filter_map(|(set, flag)| set.then_some(flag))
    .collect()
}
