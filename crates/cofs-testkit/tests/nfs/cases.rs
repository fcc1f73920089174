//! What is tried in the machine.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    panic,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crate::callers::{Caller, sh, try_sh};

const MOUNT: &str = "/mnt/volume";
const NFS: &str = "/mnt/nfs";
const FILES: usize = 16;
const FILE_BYTES: usize = 1 << 20;

type Case = (&'static str, fn());

pub const CASES: [Case; 1] = [("a hard mount waits", hard)];

#[test]
#[ignore = "run by boots, in a machine of its own"]
fn in_the_machine() {
    println!();
    for (name, case) in CASES {
        match panic::catch_unwind(case) {
            Ok(()) => println!("ok {name}"),
            Err(_) => println!("FAILED {name}"),
        }
        // What a failed case has left.
        network(true);
        let _ = try_sh(&format!("for on in {MOUNT} {NFS}; do ! mountpoint -q $on || umount -l $on; done"));
    }
}

/// The way to the server.
fn network(up: bool) {
    sh(if up { "ip link set lo up" } else { "ip link set lo down" });
}

/// A mounted volume with its pool in `nfs`; large files in a directory away from the others, or those would be taken for large, too.
struct Volume {
    cofs: String,
    store: String,
    large: PathBuf,
}

impl Volume {
    /// On NFS mounted with these options.
    fn new(name: &str, options: &str) -> Self {
        let (cofs, store) = (std::env::var("COFS_TEST_BINARY").unwrap(), format!("/mnt/disk/{name}"));
        sh(&format!(
            "mount -i -t nfs4 -o vers=4.1,addr=127.0.0.1,clientaddr=127.0.0.1,{options} 127.0.0.1:/ {NFS}
            {cofs} format {store} --pool slow={NFS}/{name} && {cofs} mount -d {store} {MOUNT}"
        ));
        let large = Path::new(MOUNT).join("large/files");
        fs::create_dir_all(&large).unwrap();
        let volume = Self { cofs, store, large };
        for number in 0..FILES {
            let mut file = File::create(volume.file(number)).unwrap();
            file.write_all(&bytes(number)).unwrap();
            file.sync_all().unwrap();
        }
        // What is in memory needs no server.
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        volume
    }

    fn file(&self, number: usize) -> PathBuf {
        self.large.join(number.to_string())
    }

    fn start(&self, line: &str) -> Caller {
        Caller::new(&self.large, line)
    }

    /// One who has nothing to do with what hangs comes to his end.
    fn others_go_on(&self, rounds: usize) {
        sh(&format!(
            "mkdir -p {MOUNT}/others; cd {MOUNT}/others
            for n in $(seq {rounds}); do
                echo $n >a; ln a b; mv b c; ln -s a s; test $(cat c) = $n
                chmod 600 a; touch a; sync a; sync .; rm a c s
            done"
        ));
    }

    fn pool_health(&self) -> String {
        let status = sh(&format!("{} status {MOUNT} --output json", self.cofs));
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status["pools"][0]["health"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn has(&self, number: usize, expected: &[u8]) {
        assert!(fs::read(self.file(number)).unwrap() == expected, "the bytes of {number}");
    }

    /// The mount ends in order, and nothing is wrong with the volume.
    fn end(self) {
        let Self { cofs, store, .. } = self;
        sh(&format!(
            "umount {MOUNT}; while ! {cofs} fsck {store}; do sleep 0.2; done >/dev/null 2>&1; {cofs} fsck {store}"
        ));
    }
}

fn bytes(number: usize) -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at / 4096 + at + number) as u8).collect()
}

/// Whoever wants what is there waits, or leaves when he is killed; nobody else does, and nothing is lost.
fn hard() {
    let volume = Volume::new("hard", "hard,timeo=20,retrans=2");
    let mut held = OpenOptions::new().append(true).open(volume.file(0)).unwrap();
    held.write_all(b"more").unwrap();
    network(false);
    let waiting = [
        "dd if=/dev/zero of=1 bs=64K count=4 conv=notrunc,fsync status=none",
        "truncate -s 1000 2",
        "dd if=6 of=/dev/null iflag=direct bs=64K status=none",
        "cp 7 ../copy",
    ];
    let mut waiting = waiting.map(|line| volume.start(line));
    // Nothing that opens what is looked at: an open cannot be left.
    let killed = ["stat 0", "cat 8"];
    let mut killed = killed.map(|line| volume.start(line));
    thread::sleep(Duration::from_secs(1));
    volume.others_go_on(20);
    // What has to be removed below is removed later.
    sh(&format!("cd {}; rm 3; mv 4 5", volume.large.display()));
    sh(&format!("df {MOUNT}"));
    assert_eq!(volume.pool_health(), "silent");
    killed.iter_mut().for_each(Caller::still_waits);
    killed.into_iter().for_each(Caller::leaves_when_killed);
    volume.others_go_on(5);
    waiting.iter_mut().for_each(Caller::still_waits);
    network(true);
    waiting.into_iter().for_each(Caller::succeeds);
    held.sync_all().unwrap();
    drop(held);
    assert_eq!(volume.pool_health(), "healthy");

    volume.has(0, &[bytes(0), b"more".to_vec()].concat());
    volume.has(1, &[vec![0; 4 << 16], bytes(1)[4 << 16..].to_vec()].concat());
    volume.has(2, &bytes(2)[..1000]);
    assert!(!volume.file(3).exists() && !volume.file(4).exists());
    volume.has(5, &bytes(4));
    assert!(fs::read(volume.large.join("../copy")).unwrap() == bytes(7));
    (6..FILES).for_each(|number| volume.has(number, &bytes(number)));
    volume.end();
}
