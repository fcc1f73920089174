//! End to end: where a store and a mount point may lie: on FUSE, in a mount of cofs's own, on a full file system, under names that are no text.

mod common;

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    os::unix::fs::MetadataExt,
    process::Command,
};

use common::{Mounted, Small, cofs, format, lives, path_str, run, scratch, skip, wait_for};

#[test]
fn the_kernel_does_not_write_to_another_fuse_file_system_for_us() {
    if skip() {
        return;
    }
    let passthrough = |store: &str| -> bool {
        let status: serde_json::Value =
            serde_json::from_str(&run(&["status", store, "--output", "json"])).unwrap();
        status["mount"]["passthrough"].as_bool().unwrap()
    };
    let (below, above) = (scratch(), scratch());
    let store = format(&below);
    let mounted_below = Mounted::new(&below, &store, &["-o", "passthrough=off"]);
    // A volume whose pool alone lies on FUSE.
    let pool = format!("default={}", mounted_below.path("pool").display());
    let (store, meta) = (path_str(&above, "store"), path_str(&above, "meta"));
    run(&["format", &store, "--meta", &meta, "--pool", &pool]);
    let mounted = Mounted::new(&above, &store, &[]);
    assert!(!passthrough(&store), "nobody would flush what the kernel writes");
    let large: Vec<u8> = (0..3_000_000u32).map(|at| (at / 5) as u8).collect();
    fs::write(mounted.path("large"), &large).unwrap();
    assert!(fs::read(mounted.path("large")).unwrap() == large);
    mounted.unmount();
    // Who knows the file system below may say so.
    let mounted = Mounted::new(&above, &store, &["-o", "passthrough=on"]);
    let local = scratch();
    let plain = format(&local);
    let mounted_plain = Mounted::new(&local, &plain, &[]);
    assert_eq!(passthrough(&store), passthrough(&plain), "where it can be had at all");
    mounted_plain.unmount();
    mounted.unmount();
    mounted_below.unmount();
}

/// The kernel's mount table has the name as it is; mounts of our own, so that nobody else need read such a table.
#[test]
fn a_store_and_a_mount_point_need_not_be_text() {
    if skip() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounts of one's own take root");
        return;
    }
    const LINES: &str = r#"set -e
        store=$(printf '%s/store-\377' "$2") dir=$(printf '%s/odd-\377' "$2") other=$2/other
        mkdir "$dir" "$other"
        "$1" format "$store"
        "$1" format "$2/second"
        "$1" mount -d "$store" "$dir"
        trap 'umount -l "$dir"' EXIT
        mkdir "$dir/cofs-bench-1"
        head -c 200000 /dev/zero >"$dir/large"
        "$1" info "$dir/large"
        "$1" status "$dir"
        "$1" status "$store" | grep 'mounted *true'
        "$1" status --output json
        "$1" bench clean "$dir" --output json
        "$1" mount -d "$2/second" "$other"
        "$1" bench metarates "$other" --files 4 -i 1 --output json | grep '"fuse.cofs"'
        "$1" umount "$other"
        "$1" umount "$dir"
        trap - EXIT
        "$1" status "$store"
        "$1" fsck "$store" --output json
        "$1" dump "$store" -o "$store.dump""#;
    let root = scratch();
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", LINES, "sh", env!("CARGO_BIN_EXE_cofs"), root.path().to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("odd-\u{fffd}"), "{told}");
}

/// Three deep, with the daemons' own buffers and queues in each other's way if ever they were; and the lowest cannot go first.
#[test]
fn a_volume_may_lie_in_anothers_mount() {
    if skip() {
        return;
    }
    let root = scratch();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at / 5) as u8).collect();
    for options in [&["--transport", "dev"][..], &["--transport", "auto"], &["-o", "passthrough=on"]] {
        let mut mounts: Vec<(tempfile::TempDir, Mounted)> = Vec::new();
        for _ in 0..3 {
            let (at, store) = match mounts.last() {
                None => (scratch(), root.path().join(format!("store{}", options[1]))),
                Some((_, below)) => (scratch(), below.path("store")),
            };
            let store = store.to_str().unwrap();
            run(&["format", store]);
            let mounted = Mounted::new(&at, store, options);
            fs::write(mounted.path("large"), &bytes).unwrap();
            fs::write(mounted.path("small"), "bytes").unwrap();
            File::open(mounted.path("large")).unwrap().sync_all().unwrap();
            mounts.push((at, mounted));
        }
        for (_, mounted) in &mounts {
            assert_eq!(fs::read(mounted.path("large")).unwrap(), bytes);
            assert_eq!(fs::read(mounted.path("small")).unwrap(), b"bytes");
        }
        let lowest = mounts[0].1.dir.to_str().unwrap();
        let refused = cofs(&["umount", lowest]).output().unwrap();
        assert!(String::from_utf8_lossy(&refused.stderr).contains("in use by"), "{refused:?}");
        while let Some((_, mounted)) = mounts.pop() {
            mounted.unmount();
        }
    }
}

/// Where there is no room for a word in the lock, either.
#[test]
fn a_store_on_a_full_file_system_is_mounted_and_emptied() {
    if skip() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting a small file system takes root");
        return;
    }
    let root = scratch();
    let small = Small::mount(&root);
    let store = small.0.join("store");
    let lock = store.join("lock");
    let store = store.to_str().unwrap();
    run(&["format", store]);
    let mounted = Mounted::new(&root, store, &[]);
    (0..20).for_each(|at| fs::write(mounted.path(&format!("file-{at}")), vec![at; 100_000]).unwrap());
    mounted.unmount();
    let kept = fs::metadata(&lock).unwrap().blocks();
    assert!(kept > 0, "the next record would need a block");
    for round in 0..2 {
        // With room the engine sets space aside, which the mount on the full one takes.
        Mounted::new(&root, store, &[]).unmount();
        if round == 1 {
            // As an earlier version left it.
            fs::write(&lock, "").unwrap();
        }
        small.fill();
        let mounted = Mounted::new(&root, store, &[]);
        assert_eq!(fs::read(mounted.path("file-19")).unwrap(), vec![19; 100_000]);
        fs::remove_file(mounted.path(&format!("file-{round}"))).unwrap();
        mounted.unmount();
        fs::remove_file(small.0.join("ballast")).unwrap();
    }
}

/// As [`a_volume_that_filled_up_is_mounted_again_and_again_and_heals`], with space enough.
#[test]
fn a_volume_that_has_used_up_the_inodes_is_mounted_again_and_again_and_heals() {
    if skip() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting a small file system takes root");
        return;
    }
    let root = scratch();
    let small = Small::mount_with(&root, c"size=200m,nr_inodes=400");
    let store = small.0.join("store");
    let store = store.to_str().unwrap();
    run(&["format", store]);
    let mounted = Mounted::new(&root, store, &["-o", "norestart"]);
    let write =
        |mounted: &Mounted, number: u32| fs::write(mounted.path(&number.to_string()), vec![1; 100_000]);
    let made = (0..).take_while(|number| write(&mounted, *number).is_ok()).count();
    assert!(made > 100, "{made}");
    small.fill_with_files();
    mounted.unmount();
    for round in 0..4 {
        small.fill_with_files();
        let mounted = Mounted::new(&root, store, &["-o", "norestart"]);
        assert_eq!(fs::read(mounted.path("99")).unwrap(), vec![1; 100_000]);
        fs::remove_file(mounted.path(&round.to_string())).unwrap();
        if round % 2 == 0 {
            mounted.unmount();
            continue;
        }
        lives::kill(&mounted.dir);
        run(&["umount", "--dead", mounted.dir.to_str().unwrap()]);
        drop(mounted);
    }
    small.fill_with_files();
    let mounted = Mounted::new(&root, store, &["-o", "norestart"]);
    (10..60).for_each(|number| fs::remove_file(mounted.path(&number.to_string())).unwrap());
    wait_for("room for a file", || write(&mounted, 10_000).is_ok());
    mounted.unmount();
    run(&["fsck", store]);
}

/// The volume's data have taken all that there was, what the engine had set aside for removals among it.
#[test]
fn a_volume_that_filled_up_is_mounted_again_and_again_and_heals() {
    if skip() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting a small file system takes root");
        return;
    }
    let root = scratch();
    let Some(small) = Small::on_loop(&root, 64 << 20) else {
        eprintln!("skipped: no ext4 on a loop device");
        return;
    };
    let store = small.0.join("store");
    let reserve = store.join("meta/reserve");
    let store = store.to_str().unwrap();
    run(&["format", store]);
    let mounted = Mounted::new(&root, store, &["-o", "norestart"]);
    let append = |mounted: &Mounted| {
        let mut file = File::options().append(true).create(true).open(mounted.path("large")).unwrap();
        while file.write_all(&[1; 1 << 16]).is_ok() {}
    };
    fs::write(mounted.path("small"), "bytes").unwrap();
    append(&mounted);
    mounted.unmount();
    fs::remove_file(&reserve).unwrap();
    for life in 0..4 {
        small.fill();
        let mounted = Mounted::new(&root, store, &["-o", "norestart"]);
        assert_eq!(fs::read(mounted.path("small")).unwrap(), b"bytes");
        append(&mounted);
        let refused = fs::write(mounted.path("new"), [1; 1 << 16]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
        if life % 2 == 0 {
            mounted.unmount();
        } else {
            let serves = lives::kill(&mounted.dir);
            drop(mounted);
            wait_for("the end of it", || !lives::is_alive(serves));
        }
    }
    small.fill();
    let mounted = Mounted::new(&root, store, &[]);
    lives::kill(&mounted.dir);
    wait_for("the next process", || fs::read(mounted.path("small")).is_ok_and(|bytes| bytes == b"bytes"));
    fs::remove_file(mounted.path("large")).unwrap();
    wait_for("room for a file", || fs::write(mounted.path("new"), [1; 1 << 16]).is_ok());
    wait_for("the reserve", || reserve.exists());
    mounted.unmount();
    let mounted = Mounted::new(&root, store, &[]);
    assert_eq!(fs::read(mounted.path("new")).unwrap(), [1; 1 << 16]);
    mounted.unmount();
}
