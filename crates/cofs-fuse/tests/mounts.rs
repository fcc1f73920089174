//! The life of mounts: made, refused, recalled, taken down under load, over both transports.

mod common;

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::{
        fd::AsFd,
        unix::{fs::MetadataExt, process::CommandExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use cofs_fuse::{IdleCpus, MountError, MountOptions, Replaces, Transport, Unmount};
use cofs_types::{InodeId, Name};
use common::{Mounted, TRANSPORTS, can_mount, eventually, fs::NullFs, gated, on_each, until_unused};
use parking_lot::Mutex;

fn each(fs: impl Fn() -> NullFs, test: impl Fn(Mounted)) {
    TRANSPORTS.into_iter().filter_map(|transport| Mounted::new(transport, fs())).for_each(test);
}

fn is_mounted(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(dir.to_str().unwrap())
}

#[test]
fn look_ups_are_given_back_so_that_the_inode_table_returns_to_where_it_was() {
    on_each(|on| {
        let before = on.fs.inodes();
        for number in 0..5000 {
            File::create(on.path(&format!("f{number}"))).unwrap();
        }
        assert_eq!(on.fs.inodes(), before + 5000);
        for number in 0..5000 {
            fs::remove_file(on.path(&format!("f{number}"))).unwrap();
        }
        eventually("FORGETs have arrived", || on.fs.inodes() == before);
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    on_each(|on| {
        let before = on.fs.inodes();
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(on.path("f")).unwrap();
        fs::remove_file(on.path("f")).unwrap();
        file.write_all(b"still here").unwrap();
        assert_eq!((file.metadata().unwrap().len(), file.metadata().unwrap().nlink()), (10, 0));
        drop(file);
        eventually("the inode is forgotten", || on.fs.inodes() == before);
    });
}

#[test]
fn slow_work_holds_nobody_up_and_is_answered_in_the_end() {
    for transport in TRANSPORTS {
        let (fs, waiting, open) = gated();
        let Some(on) = Mounted::new(transport, fs) else { continue };
        std::thread::scope(|scope| {
            let syncs: Vec<_> = (0..8)
                .map(|number| {
                    let file = File::create(on.path(&format!("slow{number}"))).unwrap();
                    scope.spawn(move || file.sync_all().unwrap())
                })
                .collect();
            eventually("one sync waits at the gate", || waiting.load(Ordering::SeqCst) >= 1);
            // More than there are workers, and none of them is answered: others are.
            for number in 0..500 {
                fs::write(on.path("other"), format!("{number}")).unwrap();
                fs::remove_file(on.path("other")).unwrap();
            }
            assert!(syncs.iter().all(|sync| !sync.is_finished()));
            (0..8).for_each(|_| open.send(()).unwrap());
        });
        on.end();
    }
}

#[test]
fn slow_work_may_run_on_every_cpu_although_workers_are_pinned() {
    let cpus = || rustix::thread::sched_getaffinity(None).unwrap();
    for transport in TRANSPORTS {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = seen.clone();
        let fs = NullFs::new(false, move || {
            sees.lock().push(cpus());
            std::thread::sleep(std::time::Duration::from_millis(5));
        });
        let Some(on) = Mounted::new(transport, fs) else { continue };
        std::thread::scope(|scope| {
            for number in 0..8 {
                let file = File::create(on.path(&format!("slow{number}"))).unwrap();
                scope.spawn(move || file.sync_all().unwrap());
            }
        });
        assert_eq!(*seen.lock(), vec![cpus(); 8]);
        on.end();
    }
}

#[test]
fn an_operation_that_panics_is_an_error_of_its_caller_alone() {
    std::panic::set_hook(Box::new(|_| ()));
    each(
        || NullFs::new(false, || panic!("as the test wants")),
        |on| {
            let file = File::create(on.path("f")).unwrap();
            assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
            drop(file);
            assert_eq!(fs::metadata(on.path("f")).unwrap().len(), 0);
            on.end();
        },
    );
}

#[test]
fn unmounting_under_load_leaves_no_thread_and_no_mount() {
    each(
        || NullFs::new(true, || std::thread::sleep(std::time::Duration::from_millis(2))),
        |on| {
            let stop = AtomicBool::new(false);
            let (running, done) = (Barrier::new(5), AtomicUsize::new(0));
            let point = on.dir.path().to_path_buf();
            std::thread::scope(|scope| {
                for number in 0..4 {
                    let (point, stop, running, done) = (&point, &stop, &running, &done);
                    scope.spawn(move || {
                        running.wait();
                        let path = point.join(format!("f{number}"));
                        while !stop.load(Ordering::Relaxed) {
                            // Once the mount is gone these work on the directory below, or fail.
                            if let Ok(mut file) = File::create(&path) {
                                let _ = file.write_all(&[1; 10_000]);
                                let _ = file.sync_all();
                            }
                            let _ = fs::remove_file(&path);
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                running.wait();
                eventually("the load runs", || done.load(Ordering::Relaxed) > 50);
                on.mount().unmount(Unmount::Lazily).unwrap();
                eventually("the mount has ended", || on.mount().is_over());
                stop.store(true, Ordering::Relaxed);
            });
            let Mounted { fs, mount, dir } = on;
            mount.unwrap().join().unwrap();
            assert_eq!(fs.detached.load(Ordering::Relaxed), 1);
            assert!(!is_mounted(dir.path()));
            assert_eq!(Arc::strong_count(&fs), 1, "no thread holds the file system");
        },
    );
}

#[test]
fn a_busy_mount_says_so_and_a_lazy_end_comes_with_the_last_close() {
    on_each(|_| ());
    each(
        || NullFs::new(false, || ()),
        |on| {
            let mut file = File::create(on.path("f")).unwrap();
            let busy = on.mount().unmount(Unmount::IfUnused).unwrap_err();
            assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
            on.mount().unmount(Unmount::Lazily).unwrap();
            assert!(!is_mounted(on.dir.path()));
            file.write_all(b"goes on").unwrap();
            assert!(!on.mount().is_over());
            drop(file);
            eventually("the mount has ended", || on.mount().is_over());
        },
    );
}

#[test]
fn what_the_kernel_remembers_can_be_taken_back() {
    on_each(|on| {
        let recall = on.fs.abilities().recall.unwrap();
        let path = on.path("f");
        File::create(&path).unwrap();
        let ino = InodeId::new(fs::metadata(&path).unwrap().ino()).unwrap();
        let uid = || fs::metadata(&path).unwrap().uid();
        on.fs.node(ino).unwrap().lock().attributes.uid = 55;
        assert_eq!(uid(), 0, "remembered for ever");
        recall.attributes(ino);
        eventually("the new owner shows", || uid() == 55);

        fs::write(&path, "old").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        on.fs.node(ino).unwrap().lock().bytes().unwrap().copy_from_slice(b"new");
        assert_eq!(fs::read(&path).unwrap(), b"old", "kept in the page cache");
        recall.data(ino);
        eventually("the new bytes show", || fs::read(&path).unwrap() == b"new");

        assert!(!on.path("g").exists(), "now known to be absent");
        let (root, name) = (on.fs.node(InodeId::ROOT).unwrap(), Name::new(b"g").unwrap());
        root.lock().directory().unwrap().insert(name, ino, cofs_types::FileKind::Regular).unwrap();
        assert!(!on.path("g").exists(), "remembered for ever");
        recall.entry(InodeId::ROOT, name);
        eventually("the new name shows", || on.path("g").exists());
    });
}

#[test]
fn recalling_from_inside_an_operation_on_the_same_inode_does_not_wait_for_itself() {
    for transport in TRANSPORTS {
        type Handle = Arc<dyn Fn() + Send + Sync>;
        let act: Arc<Mutex<Option<Handle>>> = Arc::default();
        let acts = act.clone();
        let fs = NullFs::new(false, move || acts.lock().clone().iter().for_each(|act| act()));
        let Some(on) = Mounted::new(transport, fs) else { continue };
        let file = File::create(on.path("f")).unwrap();
        let ino = InodeId::new(file.metadata().unwrap().ino()).unwrap();
        let recall = on.fs.abilities().recall.unwrap();
        *act.lock() = Some(Arc::new(move || {
            recall.data(ino);
            recall.attributes(InodeId::ROOT);
            recall.entry(InodeId::ROOT, Name::new(b"f").unwrap());
        }));
        for _ in 0..100 {
            file.sync_all().unwrap();
            File::open(on.dir.path()).unwrap().sync_all().unwrap();
        }
        drop(file);
        act.lock().take();
        on.end();
    }
}

#[test]
fn bytes_travel_past_the_daemon_where_the_kernel_reads_the_file_itself() {
    on_each(|on| {
        let Some(passthrough) = on.fs.abilities().passthrough else {
            return eprintln!("SKIPPED: no passthrough (not privileged, or an old kernel)");
        };
        let mut below = tempfile::tempfile().unwrap();
        below.write_all(b"from below").unwrap();
        let id = match passthrough.register(below.as_fd()) {
            Ok(id) => id,
            Err(error) => {
                return eprintln!("SKIPPED: the directory for temporary files cannot back files: {error}");
            }
        };
        assert_eq!(on.mount().backing_files(), 1);
        *on.fs.backing.lock() = Some(id);
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(on.path("f")).unwrap();
        on.fs
            .node(InodeId::new(file.metadata().unwrap().ino()).unwrap())
            .unwrap()
            .lock()
            .attributes
            .size_bytes = 10;
        let mut bytes = [0; 4];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"from");
        std::os::unix::fs::FileExt::write_all_at(&file, b"FROM", 0).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&below, &mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"FROM");
        drop(file);
        *on.fs.backing.lock() = None;
        passthrough.unregister(id);
        assert_eq!(on.mount().backing_files(), 0);
        passthrough.unregister(id);
        assert_eq!(on.mount().backing_files(), 0, "the kernel knows it no more");
    });
}

#[test]
fn a_point_in_use_is_refused_with_its_reason() {
    on_each(|on| {
        let again =
            cofs_fuse::mount(Arc::new(NullFs::new(false, || ())), on.dir.path(), &MountOptions::default());
        assert!(matches!(again, Err(MountError::PointInUse(_))), "{again:?}");
        let file = on.path("f");
        File::create(&file).unwrap();
        let on_file = cofs_fuse::mount(Arc::new(NullFs::new(false, || ())), &file, &MountOptions::default());
        assert!(matches!(on_file, Err(MountError::PointNotDirectory(_))));
    });
}

#[test]
fn the_transport_asked_for_is_the_one_that_serves_and_the_report_says_why() {
    on_each(|on| {
        let report = on.mount().report();
        assert!(!report.reason.is_empty() && report.features.contains(&"parallel_dirops"));
        assert_eq!(report.features.contains(&"over_io_uring"), report.transport == Transport::Uring);
    });
}

/// The policies of this process's threads whose names begin so.
fn policies(name: &str) -> Vec<i32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let named = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.starts_with(name))
    };
    let number = |task: fs::DirEntry| task.file_name().to_str().unwrap().parse().unwrap();
    // SAFETY: no memory is involved.
    tasks.filter(named).map(|task| unsafe { libc::sched_getscheduler(number(task)) }).collect()
}

/// Not a test: what the next one runs, alone in a process, so that all workers are its own.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn stack_in_this_process() {
    for (wanted, over_network) in [(true, false), (true, true), (false, false)] {
        let fs = NullFs::new(false, || std::thread::sleep(std::time::Duration::from_millis(20)));
        let options = MountOptions { stacking: wanted, over_network, ..Default::default() };
        let Some(on) = Mounted::with(Transport::Uring, fs, options) else { return };
        if let (true, Err(reason)) = (wanted, &on.mount().report().stacking) {
            return eprintln!("SKIPPED: {reason}");
        }
        assert_eq!(on.mount().report().stacking.is_ok(), wanted);
        let workers = || policies("cofs-fuse-cpu");
        assert!(workers().iter().all(|policy| *policy == libc::SCHED_OTHER), "before any traffic");
        let traffic = |number: u32| fs::write(on.path("f"), number.to_string()).unwrap();
        if wanted {
            eventually("a worker stacks", || {
                (0..200).for_each(traffic);
                workers().contains(&libc::SCHED_IDLE)
            });
        } else {
            (0..2000).for_each(traffic);
            assert!(!workers().contains(&libc::SCHED_IDLE));
        }
        // These threads of the pool are started by workers that stack.
        std::thread::scope(|scope| {
            (0..8).for_each(|number| {
                let (on, traffic) = (&on, &traffic);
                scope.spawn(move || {
                    (0..500).for_each(traffic);
                    File::create(on.path(&format!("slow{number}"))).unwrap().sync_all().unwrap();
                });
            });
        });
        let pool = policies("cofs-wait-");
        assert!(pool.len() > 1 && pool.iter().all(|policy| *policy == libc::SCHED_OTHER), "{pool:?}");
        eventually("nobody stacks without traffic", || {
            workers().iter().all(|policy| *policy == libc::SCHED_OTHER)
        });
        on.end();
    }
}

#[test]
fn workers_stack_on_their_clients_cpu_under_traffic_and_not_without() {
    in_a_process_of_its_own("stack_in_this_process");
}

/// What all processes together let waking a CPU take, in microseconds.
fn wake_up_latency() -> i32 {
    let mut microseconds = [0; 4];
    File::open("/dev/cpu_dma_latency").unwrap().read_exact(&mut microseconds).unwrap();
    i32::from_ne_bytes(microseconds)
}

#[test]
fn idle_cpus_stay_awake_under_traffic_and_not_without() {
    for transport in [Transport::Uring, Transport::DevFuse] {
        let options = MountOptions { idle_cpus: IdleCpus::Poll, ..Default::default() };
        let Some(on) = Mounted::with(transport, NullFs::new(false, || ()), options) else { continue };
        if let Err(reason) = &on.mount().report().polling {
            return eprintln!("SKIPPED: {reason}");
        }
        // Clients on all CPUs: a lone one gains nothing over io_uring.
        let burst = || {
            std::thread::scope(|scope| {
                for number in 0..8 {
                    let path = on.path(&format!("f{number}"));
                    scope.spawn(move || (0..200).for_each(|_| fs::write(&path, "awake").unwrap()));
                }
            });
        };
        // Mounts of other tests may ask the same meanwhile, and stop.
        let stay_awake = (0..100).any(|_| {
            burst();
            wake_up_latency() == 0
        });
        assert!(stay_awake, "{transport:?}");
        eventually("CPUs halt as ever", || wake_up_latency() > 0);
        on.end();
    }
}

#[test]
fn idle_cpus_are_left_alone_where_that_is_asked_for() {
    let options = MountOptions { idle_cpus: IdleCpus::Halt, ..Default::default() };
    let Some(on) = Mounted::with(Transport::DevFuse, NullFs::new(false, || ()), options) else { return };
    assert_eq!(on.mount().report().polling, Err("switched off by option".to_owned()));
    on.end();
}

/// Not a test: what [`child`] runs, in a process of its own. Mounts where told, until unmounted.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn serve_in_this_process() {
    let Some(point) = std::env::var_os("COFS_TEST_POINT") else { return };
    let options = MountOptions { transport: Transport::DevFuse, ..Default::default() };
    match cofs_fuse::mount(Arc::new(NullFs::new(false, || ())), Path::new(&point), &options) {
        Ok(mount) => mount.join().unwrap(),
        Err(error) => panic!("{error}"),
    }
}

fn child(program: &Path, point: &Path, uid: u32) -> Child {
    let mut command = Command::new(program);
    command
        .args(["--exact", "serve_in_this_process", "--ignored", "--nocapture"])
        .env("COFS_TEST_POINT", point)
        .stdout(Stdio::null());
    if uid != 0 {
        command.uid(uid).gid(uid);
    }
    command.spawn().unwrap()
}

#[test]
fn a_mount_whose_daemon_was_killed_is_named_stale_and_can_be_removed() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = child(&std::env::current_exe().unwrap(), dir.path(), 0);
    // Its attributes are then cached for ever: that it is dead must be seen all the same.
    eventually("the mount stands", || is_mounted(dir.path()) && fs::metadata(dir.path()).is_ok());
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let over = cofs_fuse::mount(Arc::new(NullFs::new(false, || ())), dir.path(), &MountOptions::default());
    assert!(matches!(over, Err(MountError::PointStale(_))), "{over:?}");
    until_unused(|| cofs_fuse::unmount(dir.path(), Unmount::IfUnused));
    assert!(!is_mounted(dir.path()));
}

#[test]
fn an_unprivileged_user_mounts_through_fusermount3() {
    if !can_mount() {
        return;
    }
    let nobody = 65_534;
    if fs::metadata("/dev/fuse").unwrap().mode() & 0o006 != 0o006 {
        return eprintln!("SKIPPED: /dev/fuse is not for everybody on this machine (chmod 666 /dev/fuse)");
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::os::unix::fs::chown(dir.path(), Some(nobody), Some(nobody)).unwrap();
    // The build may stand where others must not look.
    let (program, point) = (dir.path().join("program"), dir.path().join("point"));
    // By another process: a child that another test has just forked would hold what we write, and nobody could run it meanwhile.
    let ours = std::env::current_exe().unwrap();
    assert!(Command::new("install").args(["-m", "755"]).args([&ours, &program]).status().unwrap().success());
    fs::create_dir(&point).unwrap();
    std::os::unix::fs::chown(&point, Some(nobody), Some(nobody)).unwrap();
    let mut daemon = child(&program, &point, nobody);
    eventually("the mount stands", || is_mounted(&point));
    let listed = Command::new("ls").arg(&point).uid(nobody).gid(nobody).output().unwrap();
    assert!(listed.status.success());
    until_unused(|| cofs_fuse::unmount(&point, Unmount::IfUnused));
    assert!(daemon.wait().unwrap().success());
}

/// Not a test: what the next one runs, in a process of its own.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn stray_in_this_process() {
    let Some(on) = Mounted::new(Transport::Uring, NullFs::new(false, || ())) else { return };
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let mut only = rustix::thread::CpuSet::new();
    only.set(0);
    if all.count() == 1 || !all.is_set(0) {
        return eprintln!("SKIPPED: this machine has one CPU for us");
    }
    let is_worker = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == "cofs-fuse-cpu0")
    };
    let worker = fs::read_dir("/proc/self/task").unwrap().flatten().find(is_worker).unwrap().file_name();
    let worker = rustix::thread::Pid::from_raw(worker.to_str().unwrap().parse().unwrap());
    assert_eq!(rustix::thread::sched_getaffinity(worker).unwrap(), only);
    // As the kernel does with one whose CPU goes offline.
    rustix::thread::sched_setaffinity(worker, &all).unwrap();
    rustix::thread::sched_setaffinity(None, &only).unwrap();
    eventually("the worker is on its CPU again", || {
        fs::write(on.path("f"), "x").unwrap();
        fs::remove_file(on.path("f")).unwrap();
        rustix::thread::sched_getaffinity(worker).unwrap() == only
    });
    on.end();
}

#[test]
fn a_worker_whose_cpu_comes_back_returns_to_it() {
    in_a_process_of_its_own("stray_in_this_process");
}

/// Not a test: what the next one runs, in a process of its own. Exits with 0 if nothing is left.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn mount_work_and_end_in_this_process() {
    let threads = || {
        let comm = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let names = fs::read_dir("/proc/self/task").unwrap().flatten().map(comm);
        names.filter(|name| name.starts_with("cofs-")).collect::<Vec<_>>()
    };
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    on_each(|on| {
        // A thread names itself, when it first runs.
        eventually("threads are seen while they serve", || threads().len() >= 3);
        let file = File::create(on.path("f")).unwrap();
        file.sync_all().unwrap();
    });
    eventually("the last thread is gone", || threads().is_empty());
    assert_eq!(descriptors(), before);
}

#[test]
fn the_end_leaves_no_thread_and_no_descriptor_behind() {
    in_a_process_of_its_own("mount_work_and_end_in_this_process");
}

fn in_a_process_of_its_own(test: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--exact", test, "--ignored", "--nocapture"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Above all what was skipped.
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_aborted_connection_ends_its_mount_and_leaves_no_dead_one() {
    each(
        || NullFs::new(false, || ()),
        |on| {
            let device = fs::metadata(on.dir.path()).unwrap().dev();
            let abort = format!("/sys/fs/fuse/connections/{}/abort", libc::minor(device));
            if fs::write(&abort, "1").is_err() {
                return eprintln!("SKIPPED: {abort} cannot be written (fusectl not mounted?)");
            }
            eventually("the mount has ended", || on.mount().is_over());
            assert!(!is_mounted(on.dir.path()));
        },
    );
}

/// Dead, it hides what lies below until another takes its place; any other mount that fails goes again.
#[test]
fn a_mount_that_fails_in_the_place_of_a_dead_one_stays() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let count = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.matches(dir.path().to_str().unwrap()).count()
    };
    let mount = |replaces, succeeds: bool| {
        let options = MountOptions { replaces, survives: true, ..MountOptions::default() };
        let fs = Arc::new(NullFs::new(false, || ()));
        cofs_fuse::mount_handing_on(
            fs,
            dir.path(),
            &options,
            || Ok(()),
            |_, _| if succeeds { Ok(()) } else { Err(std::io::Error::other("as the test wants")) },
        )
    };
    mount(Replaces::Nothing, false).unwrap_err();
    assert_eq!(count(), 0);
    // Somebody has taken it away.
    assert!(matches!(mount(Replaces::Dead, true), Err(MountError::TakenAway(_))));
    assert_eq!(count(), 0);
    // Also where the one before has left none.
    for replaces in [Replaces::DeadOrNothing, Replaces::DeadOrNothing, Replaces::Dead] {
        mount(replaces, false).unwrap_err();
        assert_eq!(count(), 1);
        let error = rustix::fs::statfs(dir.path()).unwrap_err();
        assert!([rustix::io::Errno::NOTCONN, rustix::io::Errno::CONNABORTED].contains(&error), "{error}");
    }
    let mount = mount(Replaces::Dead, true).unwrap();
    fs::write(dir.path().join("a"), "a").unwrap();
    assert_eq!((count(), fs::read(dir.path().join("a")).unwrap()), (1, b"a".to_vec()));
    until_unused(|| mount.unmount(Unmount::IfUnused));
    mount.join().unwrap();
    assert_eq!(count(), 0);
}
