//! Which run of the machine this is, and of the file system below: what tells a crash of a process from one that may lose what was not synced.

use uuid::Uuid;

/// The kernel's id of this boot (random(4)); the nil id where it cannot be read, which equals nothing.
pub fn boot_id() -> Uuid {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().parse().unwrap_or(Uuid::nil())
}

/// The id of a run of a pool's file system: that of the boot, with the number of the `mount` in its last eight bytes (exclusive or). One that has
/// failed (an aborted journal, a disk that was gone) is in use again only when it is mounted anew, without what was not synced. Where the number of the mount is
/// not known (before Linux 6.8) it is the boot alone, and such a file system is taken for what it was. The nil id, which equals nothing, where the boot is not known.
pub fn run_id(boot: Uuid, mount: Option<u64>) -> Uuid {
    match mount {
        Some(mount) if !boot.is_nil() => Uuid::from_u128(boot.as_u128() ^ u128::from(mount)),
        _ => boot,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mount_in_every_boot_is_another_run() {
        let boots = [1 << 64, 2 << 64].map(Uuid::from_u128);
        let mut runs: Vec<_> =
            boots.iter().flat_map(|boot| (1..4).map(|mount| run_id(*boot, Some(mount)))).collect();
        assert_eq!(run_id(boots[0], Some(1)), runs[0]);
        // Nor is a boot alone, which an earlier cofs noted.
        runs.extend(boots);
        let distinct: std::collections::BTreeSet<_> = runs.iter().filter(|run| !run.is_nil()).collect();
        assert_eq!(distinct.len(), 8);
        assert_eq!(run_id(boots[0], None), boots[0]);
        assert!(run_id(Uuid::nil(), Some(1)).is_nil() && run_id(Uuid::nil(), None).is_nil());
    }
}
