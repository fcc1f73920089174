//! What is tried in the machine.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, Write},
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use cofs_testkit::machine::{running, sh, try_sh};

use crate::{
    entropy, programs, release,
    volume::{MOUNT, Volume, cofs},
};

type Case = (&'static str, fn());

/// By what `COFS_TEST_ROUNDS` must at least be for them.
const CASES: [(u32, &[Case]); 3] = [
    (0, &[("settled", settled), ("killed", killed), ("supervised", supervised), ("user", user)]),
    (1, &[("posix", posix), ("fsx", fsx)]),
    (
        2,
        &[
            ("native", native),
            ("alone", alone),
            ("work", work),
            ("remount", remount),
            ("programs", own_tests),
        ],
    ),
];

/// `COFS_TEST_ONLY` names one, for who looks at it.
fn cases() -> impl Iterator<Item = &'static Case> {
    let rounds = std::env::var("COFS_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let only = std::env::var("COFS_TEST_ONLY").unwrap_or_default();
    let all = CASES.iter().filter(move |(at_least, _)| *at_least <= rounds).flat_map(|(_, cases)| *cases);
    all.filter(move |(name, _)| only.is_empty() || only == *name)
}

/// Of those that are wanted.
pub fn names() -> impl Iterator<Item = &'static str> {
    cases().map(|(name, _)| *name)
}

#[test]
#[ignore = "run by boots, in a machine of its own"]
fn in_the_machine() {
    entropy::is_said_to_be_there();
    println!();
    for (name, case) in cases() {
        let begun = Instant::now();
        let outcome = panic::catch_unwind(case);
        println!("{name} took {:.1} s", begun.elapsed().as_secs_f32());
        println!("{} {name}", if outcome.is_ok() { "ok" } else { "FAILED" });
        // What a failed case has left.
        let _ = try_sh(&format!(
            "while mountpoint -q {MOUNT}; do {} umount --lazy {MOUNT} || umount -l {MOUNT}; done",
            cofs()
        ));
    }
}

/// The mount has what this kernel offers, and says why it has not the rest.
fn settled() {
    let volume = Volume::new("settled", "allow_other");
    let told = volume.status();
    println!("{told}");
    assert_eq!(told["transport"], "dev");
    let reason = told["transport_reason"].as_str().unwrap();
    assert!(reason.contains("no FUSE over io_uring") && reason.contains("6.14"), "{reason}");
    assert_eq!(told["passthrough"], running() >= release::PASSTHROUGH);
    let protocol = told["fuse_protocol"].as_str().unwrap().strip_prefix("7.").unwrap();
    assert!(protocol.parse::<u32>().unwrap() >= release::protocol_min(), "7.{protocol}");
    let (letting_off, all) = threads(volume.server());
    assert!(letting_off == all && all > 5, "{letting_off} of {all} threads are IO_FLUSHERs");
    volume.end();
}

/// `PF_MEMALLOC_NOIO` and `PF_LOCAL_THROTTLE` (`linux/sched.h`), the same in all kernels that are booted here.
const IO_FLUSHER: u64 = 0x18_0000;

/// How many threads of the process wait for no page that it would have to write itself, and how many there are.
fn threads(process: i64) -> (usize, usize) {
    // One that ends meanwhile is not counted.
    let stats = sh(&format!("cat /proc/{process}/task/*/stat || true"));
    let flags = stats.lines().map(|stat| {
        let (_, after_name) = stat.rsplit_once(')').unwrap();
        after_name.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap()
    });
    let letting_off = flags.filter(|flags| flags & IO_FLUSHER == IO_FLUSHER).count();
    (letting_off, stats.lines().count())
}

fn posix() {
    let volume = Volume::new("posix", "allow_other");
    programs::test("COFS_TEST_POSIX", MOUNT, &["--test-threads", "4"]).is_as_expected("mount", 85);
    volume.end();
}

/// The same on the file system below, for what the ledger says of the kernel.
fn native() {
    let dir = "/mnt/disk/native";
    fs::create_dir(dir).unwrap();
    programs::test("COFS_TEST_POSIX", dir, &["--test-threads", "4"]).is_as_expected("native", 85);
    fs::remove_dir_all(dir).unwrap();
}

/// The crash tests' work and model, without a crash.
fn work() {
    let volume = Volume::new("work", "allow_other");
    programs::test("COFS_TEST_CRASH", MOUNT, &["--exact", "rounds::the_model_is_right_about_the_work"])
        .passes();
    volume.end();
}

fn remount() {
    sh(&format!("mkdir -p {}", programs::STATE));
    let half = |half: &str| {
        let case = format!("remount::{half}");
        programs::test("COFS_TEST_POSIX", MOUNT, &["--exact", &case, "--ignored"]).passes();
    };
    let volume = Volume::new("remount", "allow_other");
    half("before");
    volume.unmount();
    volume.mount("allow_other");
    half("after");
    volume.end();
}

/// A mount that only root may enter, where cofs checks permissions itself. What acts as other users does not get in.
fn alone() {
    let volume = Volume::new("alone", "norestart");
    let skipped = ["users::", "set_id::", "xattrs::attributes_are_protected_by_their_name_space"];
    let mut arguments = vec!["--test-threads", "4"];
    skipped.iter().for_each(|skipped| arguments.extend(["--skip", skipped]));
    programs::test("COFS_TEST_POSIX", MOUNT, &arguments).is_as_expected("alone", 65);
    volume.end();
}

fn fsx() {
    let (profile, program) = ("/mnt/disk/tmp/fsx.toml", std::env::var("COFS_TEST_FSX").unwrap());
    fs::write(profile, FSX_PROFILE).unwrap();
    let volume = Volume::new("fsx", "allow_other");
    for seed in 1..3 {
        sh(&format!("{program} -q -f {profile} -N 3000 -S {seed} -P /mnt/disk/tmp {MOUNT}/fsx-{seed}"));
    }
    volume.end();
}

/// On both sides of the inline bound.
const FSX_PROFILE: &str = "
flen = 40000
[opsize]
min = 1
max = 12000
[weights]
close_open = 3
invalidate = 1
mapread = 10
mapwrite = 10
read = 10
write = 10
truncate = 4
fsync = 0.5
fdatasync = 0.5
posix_fallocate = 2
punch_hole = 3
sendfile = 3
posix_fadvise = 1
copy_file_range = 3
";

/// The volume is mounted anew in the place of the dead mount. What was open fails, and all that was acknowledged is there.
fn killed() {
    let volume = Volume::new("killed", "allow_other");
    for round in 0..3 {
        let small = format!("small {round}");
        let mut held = File::create(volume.path("held")).unwrap();
        held.write_all(small.as_bytes()).unwrap();
        // Not written to any more: with passthrough the kernel would go on by itself.
        let large = vec![round; 1 << 20];
        let mut held_large = File::create(volume.path("large")).unwrap();
        held_large.write_all(&large).unwrap();
        volume.kill();
        assert!(held.write_all(b"x").and_then(|()| held.sync_all()).is_err(), "nothing was at stake");
        assert_eq!(fs::read_to_string(volume.path("held")).unwrap(), small);
        assert!(fs::read(volume.path("large")).unwrap() == large);
        let mounts = sh(&format!("grep -c ' {MOUNT} ' /proc/self/mountinfo"));
        assert_eq!(mounts.trim(), "1", "the dead mount has gone");
    }
    volume.end();
}

const KILLS: usize = 3;

/// What is open outlives the process that serves, and so does what is in hand where the kernel sends it again.
fn supervised() {
    let volume = Volume::new("supervised", "allow_other,supervise");
    assert_eq!(volume.status()["survives"], true);
    let mut held =
        OpenOptions::new().read(true).write(true).create_new(true).open(volume.path("held")).unwrap();
    held.write_all(b"before").unwrap();
    let stops = Arc::new(AtomicBool::new(false));
    let works = {
        let (stops, at) = (stops.clone(), volume.path("busy"));
        thread::spawn(move || {
            fs::create_dir(&at).unwrap();
            let mut outcomes = Vec::new();
            while !stops.load(Ordering::Relaxed) {
                let name = at.join(outcomes.len().to_string());
                outcomes.push(fs::write(&name, "busy").and_then(|()| fs::rename(&name, at.join("last"))));
            }
            outcomes
        })
    };
    for _ in 0..KILLS {
        volume.kill();
    }
    stops.store(true, Ordering::Relaxed);
    let outcomes: Vec<io::Result<()>> = works.join().unwrap();
    let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let failed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    println!("{done} done, {} failed", failed.len());
    assert!(done > 100, "nothing was at stake");
    // What was being handed over when it was killed fails everywhere (docs/design/fuse.md, *Outliving the process*): one at a time.
    let sent_again = running() >= release::RESEND;
    let may_be = |error: &io::Error| match error.raw_os_error() {
        Some(libc::ECONNABORTED) => !sent_again,
        error => error == Some(libc::EIO),
    };
    assert!(failed.iter().all(|error| may_be(error)) && failed.len() <= KILLS, "{failed:?}");
    held.write_all(b" and after").unwrap();
    held.rewind().unwrap();
    let mut text = String::new();
    held.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before and after");
    drop(held);
    volume.end();
}

/// An ordinary user mounts by fusermount3, works and unmounts.
fn user() {
    let dir = "/mnt/disk/user";
    sh(&format!(
        "mkdir {dir} && cp {} {dir}/cofs && mkdir {dir}/mount && chown -R 65534:65534 {dir}",
        cofs()
    ));
    let script = format!(
        "cd {dir}; ./cofs format store; ./cofs mount -d store mount; echo text >mount/a; ln mount/a mount/b; mv mount/b mount/c
        test $(cat mount/c) = text; dd if=/dev/zero of=mount/large bs=64K count=32 status=none conv=fsync
        ./cofs status mount --output json; ./cofs umount mount; ./cofs fsck store"
    );
    fs::write(format!("{dir}/script"), script).unwrap();
    let told =
        sh(&format!("setpriv --reuid=65534 --regid=65534 --clear-groups env HOME={dir} sh -eu {dir}/script"));
    assert!(told.contains(r#""passthrough":false"#) || told.contains(r#""passthrough": false"#), "{told}");
    sh(&format!("rm -r {dir}"));
}

/// The tests that the program and its FUSE face have of their own on mounts.
fn own_tests() {
    let all = std::env::var("COFS_TEST_PROGRAMS").unwrap();
    let mut failed = Vec::new();
    for program in all.split(' ').filter(|program| !program.is_empty()) {
        let (_, name) = program.rsplit_once('/').unwrap();
        let (name, _) = name.rsplit_once('-').unwrap();
        println!("{name}");
        let outcome = panic::catch_unwind(|| programs::run(program, MOUNT, &[]).is_as_expected(name, 1));
        if outcome.is_err() {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
