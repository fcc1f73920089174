//! A mount in the place of a dead one, with nothing between them: it is made beneath that (Linux 6.5), which goes then.
//!
//! Taken away first, the dead mount would leave the directory below to everybody for a moment, and who is at work in the mount could write there.
//!
//! A process that ends between the two steps leaves two dead mounts, one beneath the other. The next takes the upper one away first, so that there is always
//! one that hides the directory, and never more than two. Where there is none, somebody has taken it away.
//!
//! Others may unmount at any time. What is taken away here is held before ([`HeldMount`]): it is neither what lies below, nor the new one.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use cofs_types::failpoint;
use rustix::{
    io::Result,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
        fsconfig_set_string, fsmount, fsopen, move_mount,
    },
};

use super::{MountError, MountOptions, all_mounted, held::HeldMount, mounted_as, open_device};

/// The connection of the new mount; `None`: there is no dead one, or the kernel cannot do it, and all is as before.
pub(super) fn replace_dead(
    point: &Path,
    options: &MountOptions,
) -> std::result::Result<Option<OwnedFd>, MountError> {
    let failed = |source| MountError::Mount { point: point.into(), source };
    let Some(dead) = leave_one_dead(point, &options.fs_type()).map_err(failed)? else { return Ok(None) };
    let device = open_device()?;
    let made = match mount_beneath(&dead, &device, options) {
        Ok(made) => made,
        Err(error) => {
            tracing::debug!(%error, "no mount can be made beneath the dead one");
            return Ok(None);
        }
    };
    failpoint("cofs.replace.beneath");
    // Nobody may look what stands there now: the new mount answers when it is served.
    if !dead.take_away().map_err(failed)? {
        // Who has unmounted the dead one in this moment wants none in its place.
        made.take_away().map_err(failed)?;
        return Err(MountError::TakenAway(point.into()));
    }
    // The new one is served sooner.
    dead.let_go();
    failpoint("cofs.replace.alone");
    Ok(Some(device))
}

/// The dead mount that stands on top at `point`, if one does. Of its type there is no other below, which would come to light one day: those that are dead, too, go.
fn leave_one_dead(point: &Path, fs_type: &str) -> io::Result<Option<HeldMount>> {
    // What else stands there is not asked (see `is_dead_mount`).
    while mounted_as(point)?.as_deref() == Some(fs_type) {
        let held = HeldMount::at(point)?;
        if !held.is_dead() {
            break;
        }
        let kinds = all_mounted(point)?;
        match kinds.iter().filter(|kind| *kind == fs_type).count() {
            1 => return Ok(Some(held)),
            // Nothing else lies between them.
            _ if kinds.iter().rev().take(2).all(|kind| kind == fs_type) => {
                held.take_away()?;
                held.let_go();
            }
            _ => break,
        }
    }
    Ok(None)
}

fn mount_beneath(upper: &HeldMount, device: &OwnedFd, options: &MountOptions) -> Result<HeldMount> {
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
    let by_descriptors = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&mount, "", upper.root(), "", by_descriptors | MoveMountFlags::MOVE_MOUNT_BENEATH)?;
    Ok(HeldMount::new(mount, upper.point()))
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

#[cfg(test)]
mod tests {
    use super::{super::Unmount, *};

    fn kinds(point: &Path) -> usize {
        all_mounted(point).unwrap().len()
    }

    /// A dead mount on `point`: its connection is closed.
    fn make_dead(point: &Path, options: &MountOptions) {
        drop(super::super::mount_directly(point, options).unwrap());
        assert!(HeldMount::at(point).unwrap().is_dead());
    }

    fn can_mount_beneath(options: &MountOptions) -> bool {
        let dir = tempfile::tempdir().unwrap();
        if !super::super::privileged() || open_device().is_err() {
            return false;
        }
        make_dead(dir.path(), options);
        let can = replace_dead(dir.path(), options).unwrap().is_some();
        super::super::unmount(dir.path(), Unmount::Lazily).unwrap();
        can
    }

    #[test]
    fn what_others_unmount_meanwhile_is_neither_replaced_nor_paid_for_by_what_lies_below() {
        let options = MountOptions::default();
        if !can_mount_beneath(&options) {
            return eprintln!("skipped: no mount can be made beneath another here");
        }
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path();
        rustix::mount::mount("below", point, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
        let unmount = || super::super::unmount(point, Unmount::Lazily).unwrap();

        // Before the new one is there.
        make_dead(point, &options);
        let dead = leave_one_dead(point, &options.fs_type()).unwrap().unwrap();
        unmount();
        assert!(mount_beneath(&dead, &open_device().unwrap(), &options).is_err());
        assert!(!dead.take_away().unwrap());
        assert_eq!(kinds(point), 1);

        // And after.
        make_dead(point, &options);
        let dead = leave_one_dead(point, &options.fs_type()).unwrap().unwrap();
        let made = mount_beneath(&dead, &open_device().unwrap(), &options).unwrap();
        unmount();
        assert!(!dead.take_away().unwrap());
        assert_eq!(kinds(point), 2);
        assert!(made.take_away().unwrap() && !made.take_away().unwrap());
        assert_eq!(kinds(point), 1);
        unmount();
    }
}
