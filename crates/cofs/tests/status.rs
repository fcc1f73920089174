//! The figures that statfs(2) and `cofs status` tell of a mounted volume: each follows what is done.

mod common;

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use common::{
    Mounted, Small, cofs, format,
    lives::{is_stopped, pid, status},
    path_str, run, scratch, skip, unmount, unwatched, wait_for,
};
use rustix::{
    fs::{StatVfs, statfs, statvfs},
    process::{Signal, kill_process},
};
use serde_json::Value;
use tempfile::TempDir;

fn total_bytes(space: &StatVfs) -> u64 {
    space.f_blocks * space.f_frsize
}

fn files(space: &StatVfs) -> u64 {
    space.f_files - space.f_ffree
}

#[test]
fn statfs_counts_files_and_each_file_system_below_once() {
    if skip() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting a small file system takes root");
        return;
    }
    let (root, other) = (scratch(), scratch());
    let small = Small::mount(&other);
    let store = path_str(&root, "store");
    let pools = [("a", path_str(&root, "a")), ("b", path_str(&root, "b"))];
    let more = ("c", small.0.join("c").to_str().unwrap().to_owned());
    // One pool; two on one file system; two on two.
    for pools in [vec![&pools[0]], vec![&pools[0], &pools[1]], vec![&pools[0], &more]] {
        let words: Vec<String> =
            pools.iter().map(|(name, directory)| format!("{name}={directory}")).collect();
        let mut line = vec!["format", &store];
        words.iter().for_each(|word| line.extend(["--pool", word]));
        run(&line);
        let mounted = Mounted::new(&root, &store, &[]);
        let below = |directory: &str| statvfs(directory).unwrap();
        let mut expected = total_bytes(&below(&pools[0].1));
        if pools.last() == Some(&&more) {
            expected += total_bytes(&below(&more.1));
        }
        let space = statvfs(&mounted.dir).unwrap();
        let total = total_bytes(&space);
        assert!(total.abs_diff(expected) < 8192, "{words:?}: {total} bytes, {expected} below");
        assert!(space.f_bavail <= space.f_bfree && space.f_bfree <= space.f_blocks);
        assert_eq!((space.f_namemax, space.f_bsize), (255, 4096));
        assert_eq!(statfs(&mounted.dir).unwrap().f_type, 0x6573_5546, "FUSE_SUPER_MAGIC");

        let count = || files(&statvfs(&mounted.dir).unwrap());
        let before = count();
        fs::create_dir(mounted.path("dir")).unwrap();
        (0..10).for_each(|at| fs::write(mounted.path(&format!("dir/{at}")), "bytes").unwrap());
        fs::hard_link(mounted.path("dir/0"), mounted.path("dir/again")).unwrap();
        assert_eq!(count(), before + 11);
        fs::remove_dir_all(mounted.path("dir")).unwrap();
        // A removed file counts until its last close, which is told after close(2) has returned.
        wait_for("they are gone", || count() == before);
        mounted.unmount();
        for directory in [&store, &pools[0].1, &pools[pools.len() - 1].1] {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// A pool whose file system nobody else writes to.
#[test]
fn free_space_falls_by_what_is_written_and_rises_by_what_is_removed() {
    const BYTES: u64 = 20 << 20;
    if skip() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting a small file system takes root");
        return;
    }
    let root = scratch();
    let small = Small::mount(&root);
    let store = path_str(&root, "store");
    run(&["format", &store, "--pool", &format!("a={}", small.0.join("pool").display())]);
    let mounted = Mounted::new(&root, &store, &[]);
    let free = || {
        let space = statvfs(&mounted.dir).unwrap();
        space.f_bavail * space.f_frsize
    };
    let before = free();
    // What is made ahead of need takes some, too.
    let near = |expected: u64| free().abs_diff(expected) < 2 << 20;
    fs::write(mounted.path("large"), vec![1; BYTES as usize]).unwrap();
    wait_for("free space falls", || near(before - BYTES));
    let pool = &status(&mounted.dir)["pools"][0];
    assert_eq!(pool["available_bytes"].as_u64().unwrap().abs_diff(free()) / 4096, 0, "{pool}");
    assert_eq!(pool["total_bytes"], 64 << 20);
    fs::remove_file(mounted.path("large")).unwrap();
    wait_for("free space rises", || near(before));
    mounted.unmount();
}

/// The pool has space enough, which nobody could use.
#[test]
fn where_the_metadata_have_no_space_there_is_none() {
    if skip() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting a small file system takes root");
        return;
    }
    let root = scratch();
    let small = Small::mount(&root);
    let (store, meta) = (path_str(&root, "store"), small.0.join("meta"));
    run(&["format", &store, "--meta", meta.to_str().unwrap()]);
    let mounted = Mounted::new(&root, &store, &[]);
    let space = || statvfs(&mounted.dir).unwrap();
    let has_room = || {
        let space = space();
        assert_eq!(space.f_bavail > 0, space.f_ffree > 0);
        space.f_bavail > 0
    };
    assert!(has_room());
    small.fill();
    let new = (0..1 << 20).find(|at| File::create(mounted.path(&format!("{at}"))).is_err()).unwrap();
    wait_for("there is no space", || !has_room());
    assert_eq!(status(&mounted.dir)["engine"]["health"], "full");
    assert!(space().f_bfree > 0 && files(&space()) > new);
    fs::remove_file(small.0.join("ballast")).unwrap();
    wait_for("there is space", has_room);
    File::create(mounted.path("new")).unwrap();
    mounted.unmount();
}

#[test]
fn the_figures_of_status_follow_what_is_done() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    let figure = |path: &str| {
        let told = status(&mounted.dir);
        told.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {told}"))
    };
    let told = status(&mounted.dir);
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&told["read_only"], &told["mount"]["pid"].is_u64()), (&false.into(), &true));
    assert_eq!(told["engine"]["name"], "rocksdb");
    let before = figure("/files");
    fs::create_dir(mounted.path("large")).unwrap();
    let open = File::create(mounted.path("open")).unwrap();
    assert_eq!((figure("/open_files"), figure("/files")), (1, before + 2));
    assert_eq!(figure("/caches/learned_directories"), 0);
    drop(open);
    wait_for("the file is closed", || figure("/open_files") == 0);

    // Files that end large: their objects are kept at hand, and where they were made is remembered.
    (0..4).for_each(|at| fs::write(mounted.path(&format!("large/{at}")), vec![at; 200_000]).unwrap());
    wait_for("their objects are kept at hand", || figure("/caches/idle_objects") == 4);
    assert!(figure("/caches/learned_directories") >= 1);
    wait_for("objects are made ahead of need", || figure("/pools/0/objects_ready") >= 16);
    assert_eq!(figure("/objects_removed"), 0);
    fs::remove_dir_all(mounted.path("large")).unwrap();
    wait_for("their objects are removed", || figure("/objects_removed") == 4);
    assert_eq!(figure("/caches/idle_objects"), 0);

    // A file that is removed and still open is one until it is closed.
    let gone = File::create(mounted.path("gone")).unwrap();
    fs::remove_file(mounted.path("gone")).unwrap();
    assert_eq!((figure("/open_files"), figure("/files")), (1, before + 2));
    drop(gone);
    wait_for("it goes", || figure("/files") == before + 1);

    let (keys, hits) = (figure("/engine/keys_estimate"), figure("/engine/cache_hits"));
    (0..200).for_each(|at| fs::write(mounted.path(&format!("small-{at}")), "bytes").unwrap());
    for at in 0..200 {
        assert_eq!(
            rustix::fs::getxattr(mounted.path(&format!("small-{at}")), "user.none", &mut [0; 8][..]).ok(),
            None
        );
    }
    assert!(figure("/engine/keys_estimate") > keys, "{keys}");
    assert!(figure("/engine/cache_hits") + figure("/engine/cache_misses") > hits, "{hits}");
    for of in ["disk_bytes", "memory_bytes"] {
        let bytes = figure(&format!("/engine/{of}"));
        assert!((1 << 12..1 << 32).contains(&bytes), "{of}: {bytes}");
    }
    let inodes = fs::read_dir(&mounted.dir).unwrap().count() as u64;
    assert_eq!(figure("/files"), before + inodes);
    mounted.unmount();
}

/// What the first mount after a crash has put right.
#[test]
fn what_was_put_right_after_a_crash_is_told() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let dir = root.path().join("mount");
    let mut child = unwatched(&store, &dir);
    fs::write(dir.join("large"), vec![1; 200_000]).unwrap();
    let written = File::options().append(true).open(dir.join("large")).unwrap();
    std::io::Write::write_all(&mut &written, &[2; 5000]).unwrap();
    let unlinked = File::create(dir.join("unlinked")).unwrap();
    fs::remove_file(dir.join("unlinked")).unwrap();
    assert_eq!(
        status(&dir)["recovered"],
        serde_json::json!({"settled": 0, "shortened": 0, "emptied": 0, "unreachable": 0, "released": 0})
    );
    child.process.kill().unwrap();
    child.process.wait().unwrap();
    drop((written, unlinked));
    unmount(&dir);
    let mounted = Mounted::new(&root, &store, &[]);
    let told = status(&mounted.dir);
    assert_eq!(
        told["recovered"],
        serde_json::json!({"settled": 1, "shortened": 0, "emptied": 0, "unreachable": 0, "released": 1})
    );
    assert_eq!(fs::metadata(mounted.path("large")).unwrap().size(), 205_000);
    mounted.unmount();
}

/// A directory of it that is bound elsewhere has no root to ask.
#[test]
fn a_part_that_is_bound_elsewhere_leads_to_the_whole() {
    if skip() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: binding takes root");
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    fs::create_dir(mounted.path("sub")).unwrap();
    let bound = Bound::new(&root, &mounted.path("sub"));
    let point = path_str(&root, "mount");
    for place in [&store, &path_str(&root, "bound"), &point] {
        assert_eq!(status(Path::new(place))["mount"]["point"], point, "{place}");
        run(&["gc", place]);
    }
    // Those of other tests may be dead.
    let all = cofs(&["status", "--output", "json"]).output().unwrap().stdout;
    let all: Value = serde_json::from_slice(&all).unwrap();
    let of_ours = all.as_array().unwrap().iter().filter(|one| one["store"] == store).count();
    assert_eq!(of_ours, 1);
    // Nothing else is to be seen of it.
    rustix::mount::unmount(&mounted.dir, rustix::mount::UnmountFlags::DETACH).unwrap();
    for line in [["status", &store], ["gc", &store], ["status", bound.0.to_str().unwrap()]] {
        let output = cofs(&line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("only /sub of the volume"), "{line:?}: {said}");
    }
    drop(bound);
    wait_for("its end", || cofs(&["fsck", &store]).output().unwrap().status.success());
}

#[test]
fn a_dead_mount_is_told_beside_those_that_live() {
    if skip() {
        return;
    }
    let (root, other) = (scratch(), scratch());
    let mounted = Mounted::new(&root, &format(&root), &[]);
    let dir = other.path().join("mount");
    let mut dead = unwatched(&format(&other), &dir);
    dead.process.kill().unwrap();
    dead.process.wait().unwrap();
    let output = cofs(&["status", "--output", "json"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains(dir.to_str().unwrap()), "{said}");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(all.as_array().unwrap().iter().any(|one| one["store"] == mounted.store), "{all}");
    unmount(&dir);
    mounted.unmount();
}

/// Nobody who asks it anything can be killed while he waits.
#[test]
fn a_mount_whose_process_is_stopped_is_told_to_be_so() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    let mounted = Mounted::new(&root, &store, &[]);
    let server = pid(&mounted.dir, "pid");
    let dir = path_str(&root, "mount");
    let inside = path_str(&root, "mount/file");
    kill_process(server, Signal::STOP).unwrap();
    wait_for("its stop", || is_stopped(server));
    let lines = [
        &["status", &dir][..],
        &["status", &store],
        &["info", &inside],
        &["gc", &store],
        &["mount", &store, &dir],
    ];
    let mut all =
        lines.map(|line| (line, cofs(line).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()));
    let ended = |(_, asked): &mut (_, Child)| asked.try_wait().unwrap().is_some();
    let begun = Instant::now();
    while !all.iter_mut().all(ended) && begun.elapsed() < Duration::from_secs(30) {
        sleep(Duration::from_millis(20));
    }
    let waiting = all.iter_mut().any(|asked| !ended(asked));
    kill_process(server, Signal::CONT).unwrap();
    assert!(!waiting, "somebody waits for one who is stopped");
    for (line, asked) in all {
        let output = asked.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("is stopped"), "{line:?}: {said}");
    }
    kill_process(server, Signal::STOP).unwrap();
    let output = cofs(&["umount", &dir]).output().unwrap();
    kill_process(server, Signal::CONT).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("is stopped"), "{said}");
    wait_for("its end", || cofs(&["fsck", &store]).output().unwrap().status.success());
}

#[test]
fn all_who_unmount_at_once_succeed() {
    if skip() {
        return;
    }
    let root = scratch();
    let store = format(&root);
    for _ in 0..5 {
        let mounted = Mounted::new(&root, &store, &[]);
        let dir = mounted.dir.to_str().unwrap();
        let umount = || cofs(&["umount", dir]).stderr(Stdio::piped()).spawn().unwrap();
        for child in [umount(), umount(), umount()] {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() || said.contains("no cofs volume is mounted"), "{said}");
        }
        assert!(!common::is_mounted(&mounted.dir));
    }
}

struct Bound(PathBuf);

impl Bound {
    fn new(root: &TempDir, what: &Path) -> Self {
        let at = root.path().join("bound");
        fs::create_dir(&at).unwrap();
        rustix::mount::mount_bind(what, &at).unwrap();
        Self(at)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}
