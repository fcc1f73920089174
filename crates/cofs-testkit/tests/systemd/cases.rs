//! What is tried in the machine, one after the other: a case may build on those before it.

use std::{fs, os::unix::fs::FileExt, panic, process::Command, time::Duration};

use crate::manager::{mounts_on, property, said, servers_of, sh, systemctl, try_systemctl, wait_for};

const SERVICE: &str = "cofs@srv-service.service";

/// Not a test of this machine: run in the one that `boots` boots.
#[test]
#[ignore = "run by boots::volumes_under_systemd, in a machine of its own"]
fn first() {
    try_all(
        "first",
        &[
            ("systemd-is-first", systemd_is_first),
            ("units-are-sound", units_are_sound),
            ("start-returns-when-the-mount-serves", start_returns_when_the_mount_serves),
            ("status-tells", status_tells),
            ("stop-closes-the-volume", stop_closes_the_volume),
            ("what-was-there-is-there", what_was_there_is_there),
            ("stop-while-in-use", stop_while_in_use),
            ("is-mounted-anew-after-kill-9", is_mounted_anew_after_kill_nine),
            ("comes-back-after-kill-9-of-all", comes_back_after_kill_nine_of_all),
            ("comes-back-after-kill-9", comes_back_after_kill_nine),
            ("comes-back-while-in-use", comes_back_while_in_use),
            ("umount-ends-the-service", umount_ends_the_service),
            ("stop-leaves-what-lay-below", stop_leaves_what_lay_below),
            ("supervised-outlives-kill-9", supervised_outlives_kill_nine),
            ("supervised-upgrade", supervised_upgrade),
            ("supervised-stop-while-in-use", supervised_stop_while_in_use),
            ("no-store", no_store),
            ("fstab-at-boot", fstab_at_boot),
            ("fstab-stop-and-start", fstab_stop_and_start),
            ("fstab-after-kill-9", fstab_after_kill_nine),
            ("mount-and-umount", mount_and_umount),
            ("background-writes-to-the-journal", background_writes_to_the_journal),
            ("automount", automount),
            ("layers-of-an-overlay", layers_of_an_overlay),
            ("write-before-the-end", write_before_the_end),
        ],
    );
}

/// As the first.
#[test]
#[ignore = "run by boots::volumes_under_systemd, in a machine of its own"]
fn second() {
    try_all("second", &[("all-is-there-again", all_is_there_again)]);
}

/// Tries each, says how it went, and has the machine switched off.
fn try_all(boot: &str, cases: &[(&str, fn())]) {
    println!();
    for (name, case) in cases {
        match panic::catch_unwind(case) {
            Ok(()) => println!("ok {boot}/{name}"),
            Err(_) => println!("FAILED {boot}/{name}"),
        }
    }
    println!("all cases have been tried");
    systemctl(&["poweroff", "--no-block"]);
    std::thread::sleep(Duration::from_secs(1000));
}

fn systemd_is_first() {
    assert_eq!(fs::read_to_string("/proc/1/comm").unwrap().trim(), "systemd");
}

/// The unit as it is shipped, and those that systemd makes of the lines in fstab.
fn units_are_sound() {
    let made = ["srv-fstab.mount", "srv-auto.automount", "srv-auto.mount"];
    let made = made.map(|unit| format!("/run/systemd/generator/{unit}"));
    let output = Command::new("systemd-analyze").args(["verify", SERVICE]).args(made).output().unwrap();
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    let unit = systemctl(&["cat", "srv-fstab.mount"]);
    assert!(unit.contains("Type=fuse.cofs") && unit.contains("fstab-generator"), "{unit}");
}

fn start_returns_when_the_mount_serves() {
    systemctl(&["start", SERVICE]);
    fs::write("/srv/service/first", "bytes").unwrap();
    assert_eq!(mounts_on("/srv/service"), 1);
    assert_eq!(fs::read("/srv/service/first").unwrap(), b"bytes");
    assert_eq!(property(SERVICE, "ActiveState"), "active");
    // One watches over the other.
    let (main, servers) = (property(SERVICE, "MainPID"), servers_of("/data/service"));
    assert_eq!((servers.len(), servers.contains(&main)), (2, true), "{servers:?}, {main}");
    assert_ne!(process_that_serves("/srv/service"), main);
}

fn status_tells() {
    let shown = systemctl(&["status", SERVICE]);
    assert!(shown.contains("Active: active (running)"), "{shown}");
    assert!(shown.contains("Status: \"Serving /data/service on /srv/service"), "{shown}");
}

/// No mount, no process, nothing that fsck could complain of; and systemd takes it for a success.
#[track_caller]
fn is_closed(unit: &str, name: &str) {
    let (store, dir) = (format!("/data/{name}"), format!("/srv/{name}"));
    assert_eq!(mounts_on(&dir), 0);
    sh(&format!("cofs fsck {store}"));
    assert_eq!(property(unit, "ActiveState"), "inactive");
    assert_eq!(property(unit, "Result"), "success");
    // It lets go of the store, for which the next one waits, just before its end.
    wait_for("the end of its process", || servers_of(&store).is_empty());
}

fn stop_closes_the_volume() {
    sh("mkdir /srv/service/directory && head -c 3000000 /dev/urandom >/srv/service/directory/large");
    sh("sha256sum /srv/service/directory/large >/run/sum");
    systemctl(&["stop", SERVICE]);
    assert_eq!(property(SERVICE, "ExecMainStatus"), "0");
    is_closed(SERVICE, "service");
}

fn what_was_there_is_there() {
    systemctl(&["start", SERVICE]);
    assert_eq!(fs::read("/srv/service/first").unwrap(), b"bytes");
    sh("sha256sum --quiet -c /run/sum");
}

/// Those who use it are cut off, which is not a failure of the service.
fn stop_while_in_use() {
    let mut user = Command::new("sleep").arg("1000").current_dir("/srv/service").spawn().unwrap();
    systemctl(&["stop", SERVICE]);
    assert_eq!(property(SERVICE, "ExecMainStatus"), "0");
    is_closed(SERVICE, "service");
    user.kill().unwrap();
    user.wait().unwrap();
    systemctl(&["start", SERVICE]);
    sh("sha256sum --quiet -c /run/sum");
}

/// The process that serves: systemd has nothing to do.
fn is_mounted_anew_after_kill_nine() {
    let service = || (property(SERVICE, "MainPID"), property(SERVICE, "NRestarts"));
    let before = service();
    for _ in 0..2 {
        let serves = process_that_serves("/srv/service");
        fs::write("/srv/service/acknowledged", &serves).unwrap();
        sh(&format!("sleep 0.3; kill -9 {serves}"));
        wait_for("the next mount", || {
            fs::read_to_string("/srv/service/acknowledged").is_ok_and(|text| text == serves)
                && who_serves("/srv/service").is_some_and(|now| now != serves)
        });
        assert_eq!(mounts_on("/srv/service"), 1);
        assert_eq!(service(), before);
        assert_eq!(property(SERVICE, "ActiveState"), "active");
        sh("sha256sum --quiet -c /run/sum");
    }
}

/// Ends processes of the service by `end`, of which the main one is given, and systemd starts it anew.
#[track_caller]
fn kill_and_wait_for_restart(end: impl FnOnce(&str)) {
    let (pid, restarts) = (property(SERVICE, "MainPID"), property(SERVICE, "NRestarts"));
    fs::write("/srv/service/acknowledged", &pid).unwrap();
    end(&pid);
    wait_for("a restart", || {
        property(SERVICE, "NRestarts") != restarts && property(SERVICE, "ActiveState") == "active"
    });
    assert_eq!(mounts_on("/srv/service"), 1);
    assert_ne!(property(SERVICE, "MainPID"), pid);
    assert_eq!(fs::read_to_string("/srv/service/acknowledged").unwrap(), pid);
    sh("sha256sum --quiet -c /run/sum");
    sh("echo more >/srv/service/more && rm /srv/service/more");
}

fn kill_nine(pid: &str) {
    sh(&format!("kill -9 {pid}"));
}

/// A dead mount stays, which systemd has taken away.
fn comes_back_after_kill_nine_of_all() {
    for _ in 0..2 {
        kill_and_wait_for_restart(|_| drop(systemctl(&["kill", "--signal=KILL", SERVICE])));
    }
}

/// The supervisor: the other unmounts.
fn comes_back_after_kill_nine() {
    kill_and_wait_for_restart(kill_nine);
    kill_and_wait_for_restart(kill_nine);
}

fn comes_back_while_in_use() {
    let mut user = Command::new("sleep").arg("1000").current_dir("/srv/service").spawn().unwrap();
    kill_and_wait_for_restart(kill_nine);
    user.kill().unwrap();
    user.wait().unwrap();
}

fn umount_ends_the_service() {
    sh("umount /srv/service");
    wait_for("the service's end", || property(SERVICE, "ActiveState") == "inactive");
    is_closed(SERVICE, "service");
    systemctl(&["start", SERVICE]);
    sh("cofs umount /srv/service");
    wait_for("the service's end", || property(SERVICE, "ActiveState") == "inactive");
    is_closed(SERVICE, "service");
}

/// A directory that is itself a mount: only the volume on it is taken away.
fn stop_leaves_what_lay_below() {
    let unit = "cofs@srv-over.service";
    sh("mount -t tmpfs below /srv/over");
    systemctl(&["start", unit]);
    assert_eq!(mounts_on("/srv/over"), 1);
    systemctl(&["stop", unit]);
    is_closed(unit, "over");
    assert_eq!(sh("findmnt -n -o SOURCE /srv/over"), "below\n");
    sh("umount /srv/over");
}

const SUPERVISED: &str = "cofs@srv-kept.service";

fn process_that_serves(dir: &str) -> String {
    who_serves(dir).unwrap_or_else(|| panic!("nobody serves {dir}"))
}

fn who_serves(dir: &str) -> Option<String> {
    let told = sh(&format!("cofs status {dir} --output json | jq -r .mount.pid"));
    told.trim().parse::<u32>().ok().map(|pid| pid.to_string())
}

/// Ends the process that serves by `end`: what is open reads and writes on, and systemd has nothing to do.
#[track_caller]
fn goes_on_after(end: impl FnOnce(&str)) {
    let (main, serves) = (property(SUPERVISED, "MainPID"), process_that_serves("/srv/kept"));
    assert_ne!(main, serves);
    let file = fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open("/srv/kept/open")
        .unwrap();
    file.write_all_at(b"before", 0).unwrap();
    end(&serves);
    wait_for("its end", || !fs::exists(format!("/proc/{serves}")).unwrap());
    file.write_all_at(b" and after", 6).unwrap();
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"before and after");
    assert_ne!(process_that_serves("/srv/kept"), serves);
    assert_eq!(mounts_on("/srv/kept"), 1);
    assert_eq!((property(SUPERVISED, "MainPID"), property(SUPERVISED, "NRestarts")), (main, "0".to_owned()));
    assert_eq!(property(SUPERVISED, "ActiveState"), "active");
}

/// The kernel of this machine sends nothing again (before 6.9): here nobody waits for an answer when the process ends.
fn supervised_outlives_kill_nine() {
    systemctl(&["start", SUPERVISED]);
    for _ in 0..3 {
        goes_on_after(|serves| drop(sh(&format!("sleep 0.3; kill -9 {serves}"))));
    }
}

fn supervised_upgrade() {
    goes_on_after(|_| drop(systemctl(&["kill", "--kill-whom=main", "--signal=USR2", SUPERVISED])));
}

fn supervised_stop_while_in_use() {
    let mut user = Command::new("sleep").arg("1000").current_dir("/srv/kept").spawn().unwrap();
    systemctl(&["stop", SUPERVISED]);
    is_closed(SUPERVISED, "kept");
    user.kill().unwrap();
    user.wait().unwrap();
    systemctl(&["start", SUPERVISED]);
    assert_eq!(fs::read("/srv/kept/open").unwrap(), b"before and after");
    systemctl(&["stop", SUPERVISED]);
    is_closed(SUPERVISED, "kept");
}

/// What is wrong is told by `systemctl start` and in the log.
fn no_store() {
    let unit = "cofs@srv-none.service";
    let output = try_systemctl(&["start", unit]);
    assert!(!output.status.success(), "{}", said(&output));
    wait_for("the message", || sh(&format!("journalctl --no-pager -u {unit}")).contains("/data/none"));
    systemctl(&["stop", unit]);
}

fn fstab_at_boot() {
    assert_eq!(property("srv-fstab.mount", "ActiveState"), "active");
    assert_eq!(mounts_on("/srv/fstab"), 1);
    fs::write("/srv/fstab/first", "bytes").unwrap();
    let options = sh("findmnt -n -o OPTIONS /srv/fstab");
    assert!(options.contains("allow_other") && options.contains("noatime"), "{options}");
}

/// Stopping returns when the volume is closed: what follows at once finds nobody at it.
fn fstab_stop_and_start() {
    for round in ["one", "two", "three"] {
        sh("head -c 3000000 /dev/urandom >/srv/fstab/large; sha256sum /srv/fstab/large >/run/sum-fstab");
        systemctl(&["stop", "srv-fstab.mount"]);
        is_closed("srv-fstab.mount", "fstab");
        systemctl(&["start", "srv-fstab.mount"]);
        fs::write("/srv/fstab/round", round).unwrap();
        assert_eq!(mounts_on("/srv/fstab"), 1);
        sh("sha256sum --quiet -c /run/sum-fstab");
        systemctl(&["restart", "srv-fstab.mount"]);
        assert_eq!(fs::read_to_string("/srv/fstab/round").unwrap(), round);
    }
}

/// The volume is mounted again without anybody's help, and the line's unit is as it was.
fn fstab_after_kill_nine() {
    for round in ["one", "two"] {
        fs::write("/srv/fstab/acknowledged", round).unwrap();
        let before = process_that_serves("/srv/fstab");
        sh(&format!("kill -9 {before}"));
        wait_for("another that serves", || {
            fs::read_to_string("/srv/fstab/acknowledged").is_ok_and(|text| text == round)
                && who_serves("/srv/fstab").is_some_and(|now| now != before)
        });
        wait_for("systemd's notice", || property("srv-fstab.mount", "ActiveState") == "active");
        assert_eq!(mounts_on("/srv/fstab"), 1);
        // It is not taken away later, either.
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(fs::read_to_string("/srv/fstab/acknowledged").unwrap(), round);
    }
    systemctl(&["stop", "srv-fstab.mount"]);
    is_closed("srv-fstab.mount", "fstab");
    systemctl(&["start", "srv-fstab.mount"]);
    assert_eq!(fs::read_to_string("/srv/fstab/acknowledged").unwrap(), "two");
}

/// By mount(8) and umount(8), which look into fstab; systemd takes note.
fn mount_and_umount() {
    sh("umount /srv/fstab && cofs fsck /data/fstab");
    wait_for("systemd's notice", || property("srv-fstab.mount", "ActiveState") == "inactive");
    sh("mount /srv/fstab && test -e /srv/fstab/first");
    sh("umount /srv/fstab && mount -a && test -e /srv/fstab/first");
    sh("umount /srv/fstab && mount -t fuse.cofs /data/fstab /srv/fstab && test -e /srv/fstab/first");
    wait_for("systemd's notice", || property("srv-fstab.mount", "ActiveState") == "active");
}

/// A mount whose metadata lie in another, the process of which is killed.
fn background_writes_to_the_journal() {
    sh(
        "mkdir /run/outer /run/inner && cofs format /run/outer-store && cofs mount -d /run/outer-store /run/outer",
    );
    sh("cofs format /run/inner-store --meta /run/outer/meta && cofs mount -d /run/inner-store /run/inner");
    sh("touch /run/inner/file");
    let serves = servers_of("/run/outer-store");
    sh(&format!("kill -9 {}", serves.join(" ")));
    wait_for("its end", || servers_of("/run/outer-store").is_empty());
    sh("! cofs umount /run/inner");
    let told = || sh("journalctl --no-pager -o short -t cofs");
    wait_for("the message", || told().contains("the volume could not be closed in order: metadata"));
    sh("cofs umount --dead /run/outer");
}

/// Mounted by the first who looks; again after it has been unmounted.
fn automount() {
    for round in 0..3 {
        assert_eq!(mounts_on("/srv/auto"), 0);
        let shown = sh("timeout 60 ls /srv/auto/");
        assert_eq!(shown.lines().count(), round, "{shown}");
        assert_eq!(mounts_on("/srv/auto"), 1);
        fs::write(format!("/srv/auto/file-{round}"), "bytes").unwrap();
        systemctl(&["stop", "srv-auto.mount"]);
        is_closed("srv-auto.mount", "auto");
    }
}

/// Not synced: the machine's orderly end has to see to it.
/// Not systemd's matter, but that of a kernel older than the one that runs `overlay`'s cases: where the overlay has found a file
/// by its number, this one looks it up by the name "/".
fn layers_of_an_overlay() {
    sh("cofs format /data/layers && mkdir /run/layers /run/merged && cofs mount -d /data/layers /run/layers");
    sh("cd /run/layers && mkdir lower upper work && for n in 1 2 3 4 5; do echo $n >lower/$n; done");
    sh("cd /run/layers && mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work layers /run/merged");
    sh("cd /run/merged && for n in 1 2 3; do echo more >>$n; done && mv 5 6");
    for round in 0..6 {
        sh(&format!("echo {} >/proc/sys/vm/drop_caches", round % 2 + 2));
        // As somebody who looks at the layers does, or not.
        sh(&format!("[ {round} -lt 3 ] || ls -l /run/layers/lower /run/layers/upper"));
        assert_eq!(sh("cd /run/merged && cat *"), "1\nmore\n2\nmore\n3\nmore\n4\n5\n", "round {round}");
    }
    sh("umount /run/merged && cofs umount /run/layers && cofs fsck /data/layers");
}

fn write_before_the_end() {
    // It requires the line's unit, was stopped with it, and nobody else starts it again; services end before their stores go because of it.
    systemctl(&["start", "local-fs.target"]);
    systemctl(&["start", SERVICE]);
    for name in ["service", "fstab", "auto"] {
        sh(&format!(
            "cd /srv/{name} && for n in $(seq 200); do echo $n >last-$n; done && head -c 9000000 /dev/urandom >last-large
             sha256sum last-* >sums"
        ));
    }
}

fn all_is_there_again() {
    assert_eq!(property(SERVICE, "ActiveState"), "active");
    assert_eq!(mounts_on("/srv/service"), 1);
    assert_eq!(mounts_on("/srv/fstab"), 1);
    assert_eq!(mounts_on("/srv/auto"), 0);
    for name in ["service", "fstab", "auto"] {
        sh(&format!("cd /srv/{name} && sha256sum --quiet -c sums && test $(ls last-* | wc -l) = 201"));
    }
    assert_eq!(fs::read("/srv/service/first").unwrap(), b"bytes");
}
