//! What is tried in the machine.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    panic,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use cofs_testkit::machine::{PATIENCE, sh, try_sh};

use crate::{callers::Caller, export};

pub const MOUNT: &str = "/mnt/volume";
pub const NFS: &str = "/mnt/nfs";
const FILES: usize = 16;
const FILE_BYTES: usize = 1 << 20;

type Case = (&'static str, fn());

pub const CASES: [Case; 5] = [
    ("a mount is exported", export::case),
    ("a hard mount waits", hard),
    ("a soft mount fails and heals", soft),
    ("a server restarts", restart),
    ("a server forgets", forget),
];

/// How many of them are wanted, at most all.
pub fn count() -> usize {
    let wanted = std::env::var("COFS_TEST_ROUNDS").ok().and_then(|wanted| wanted.parse().ok());
    wanted.unwrap_or(CASES.len()).clamp(1, CASES.len())
}

#[test]
#[ignore = "run by boots, in a machine of its own"]
fn in_the_machine() {
    println!();
    for (name, case) in &CASES[..count()] {
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

/// The server ends, and forgets all clients; they will have 15 seconds to reclaim what they have open.
fn stop_server() {
    sh("cd /proc/fs/nfsd; echo 0 >threads; echo 15 >nfsv4leasetime; echo 15 >nfsv4gracetime");
}

/// It is there again with what it had on its disk. For a moment it does not know what it exports.
fn start_server() {
    sh("sh /mnt/serve; sleep 2; sh /mnt/export");
}

/// It is there again, and says for a moment that there is nothing of what it exports: a client gives up what it has open then.
fn start_forgetful_server() {
    sh("sh /mnt/serve
    echo 'nfsd 127.0.0.1 2147483647 here' >/proc/net/rpc/auth.unix.ip/channel
    printf '%s\\n' 'here 1 \\x00000000 2147483647' >/proc/net/rpc/nfsd.fh/channel
    sleep 2; sh /mnt/export");
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
        fs::create_dir(volume.soon()).unwrap();
        (0..3).for_each(|number| write_synced(&volume.soon().join(format!("old{number}")), number).unwrap());
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

    /// A directory of its own where files begin large.
    fn soon(&self) -> PathBuf {
        self.large.with_file_name("soon")
    }

    /// There, and perhaps so soon after the last answer of the pool that nobody knows yet that it hangs. All are open together: of a file
    /// that is closed and small it is learned that files are.
    fn files_are_made(&self) {
        sh(&format!("cd {}; exec 3>new0 4>new1 5>new2; test ! -e nobody", self.soon().display()));
    }

    /// Those that have been made.
    fn files_are_written(&self) {
        for number in 0..3 {
            let path = self.soon().join(format!("new{number}"));
            let mut file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all(&bytes(number)).unwrap();
            drop(file);
            assert!(fs::read(&path).unwrap() == bytes(number), "the bytes of {}", path.display());
        }
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

    /// Writes files `sure0`, `sure1`... and syncs each, until there is an error or nobody listens.
    fn write_until_told(&self) -> (Receiver<io::Result<PathBuf>>, JoinHandle<()>) {
        let (sender, told) = channel();
        let large = self.large.clone();
        let writer = thread::spawn(move || {
            for number in 0.. {
                let path = large.join(format!("sure{number}"));
                let written = write_synced(&path, number).map(|()| path);
                let failed = written.is_err();
                if sender.send(written).is_err() || failed {
                    return;
                }
            }
        });
        (told, writer)
    }

    fn heals(&self) {
        let begun = Instant::now();
        while self.pool_health() != "healthy" {
            assert!(begun.elapsed() < PATIENCE, "it is {}", self.pool_health());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// As soon as nobody has it open any more of those who were told. Of what was lost and told to nobody the kernel tells once, to the
    /// next who syncs.
    fn write_anew(&self, number: usize) {
        let begun = Instant::now();
        while let Err(error) = write_synced(&self.file(number), number) {
            assert!(begun.elapsed() < PATIENCE, "{number}: {error}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// The mount ends in order, and nothing is wrong with the volume.
    fn end(self) {
        let Self { cofs, store, .. } = self;
        sh(&format!("umount {MOUNT}"));
        let begun = Instant::now();
        loop {
            // Who served it may still be at its end.
            let fsck = try_sh(&format!("{cofs} fsck {store}"));
            if fsck.status.success() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{fsck:?}");
            thread::sleep(Duration::from_millis(200));
        }
    }
}

fn write_synced(path: &Path, number: usize) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&bytes(number))?;
    file.sync_all()
}

/// EIO it is, and no other.
#[track_caller]
fn is_eio<T>(result: io::Result<T>) {
    let told = result.err().map(|error| error.raw_os_error());
    assert_eq!(told, Some(Some(libc::EIO)));
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
    volume.files_are_made();
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
    volume.files_are_written();
    waiting.into_iter().for_each(Caller::succeeds);
    held.sync_all().unwrap();
    drop(held);
    volume.heals();

    volume.has(0, &[bytes(0), b"more".to_vec()].concat());
    volume.has(1, &[vec![0; 4 << 16], bytes(1)[4 << 16..].to_vec()].concat());
    volume.has(2, &bytes(2)[..1000]);
    assert!(!volume.file(3).exists() && !volume.file(4).exists());
    volume.has(5, &bytes(4));
    assert!(fs::read(volume.large.join("../copy")).unwrap() == bytes(7));
    (6..FILES).for_each(|number| volume.has(number, &bytes(number)));
    volume.end();
}

/// Whoever wants what is there is told so after a while, and nobody else. Once the server is back all goes on, and nothing is missing that
/// was synced.
fn soft() {
    let volume = Volume::new("soft", "soft,timeo=10,retrans=2");
    let mut held = OpenOptions::new().append(true).open(volume.file(0)).unwrap();
    held.write_all(b"more").unwrap();
    let (told, _) = volume.write_until_told();
    let mut sure: Vec<PathBuf> = (0..3).map(|_| told.recv_timeout(PATIENCE).unwrap().unwrap()).collect();
    network(false);
    volume.files_are_made();
    // Nobody need be told of these: they are not synced. The owners of their objects are noted while there is no server.
    let unsure = ["unsure0", "unsure1", "unsure2"];
    let unsure = unsure.map(|name| volume.start(&format!("head -c 300000 /dev/zero >{name}")));
    let failing = [
        "dd if=/dev/zero of=1 bs=64K count=4 conv=notrunc,fsync status=none",
        "truncate -s 1000 2",
        "dd if=6 of=/dev/null iflag=direct bs=64K status=none",
        "cp 7 ../copy",
        "cat 8",
    ];
    let failing = failing.map(|line| volume.start(line));
    volume.others_go_on(20);
    unsure.into_iter().for_each(Caller::comes_to_an_end);
    failing.into_iter().for_each(Caller::hears_of_an_error);
    is_eio(held.sync_all());
    loop {
        match told.recv_timeout(PATIENCE).unwrap() {
            Ok(path) => sure.push(path),
            error => break is_eio(error),
        }
    }
    sh(&format!("cd {}; rm 3; mv 4 5", volume.large.display()));
    volume.others_go_on(5);
    network(true);
    volume.heals();
    // Whoever was told once is not told later that all is well. Who opens it after him begins anew.
    is_eio(held.sync_all());
    drop(held);
    volume.files_are_written();
    (0..3).for_each(|number| volume.write_anew(number));
    // And a file that nobody had before knows nothing of all that.
    let new = volume.large.join("new");
    write_synced(&new, sure.len()).unwrap();
    sure.push(new);

    // What the kernel knows is not asked for.
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    for (number, path) in sure.iter().enumerate() {
        assert!(fs::read(path).unwrap() == bytes(number), "{}", path.display());
    }
    assert!(!volume.file(3).exists() && !volume.file(4).exists());
    volume.has(5, &bytes(4));
    (0..3).chain(6..FILES).for_each(|number| volume.has(number, &bytes(number)));
    volume.end();
}

/// Whoever works there waits until the server is back, or is told of an error. What was synced is there, and all goes on.
fn restart() {
    let volume = Volume::new("restart", "hard,timeo=20,retrans=2");
    let mut held = OpenOptions::new().append(true).open(volume.file(0)).unwrap();
    held.write_all(b"more").unwrap();
    held.sync_all().unwrap();
    let (told, writer) = volume.write_until_told();
    let mut sure: Vec<PathBuf> = (0..3).map(|_| told.recv_timeout(PATIENCE).unwrap().unwrap()).collect();
    stop_server();
    volume.files_are_made();
    let waits = volume.start("dd if=/dev/zero of=1 bs=64K count=4 conv=notrunc,fsync status=none");
    volume.others_go_on(5);
    start_server();
    waits.comes_to_an_end();
    // Until there is an error, or the server is known to serve again.
    let enough = sure.len() + 10;
    while sure.len() < enough
        && let Ok(path) = told.recv_timeout(PATIENCE).unwrap()
    {
        sure.push(path);
    }
    drop(told);
    writer.join().unwrap();
    volume.heals();
    volume.files_are_written();
    volume.write_anew(1);

    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    for (number, path) in sure.iter().enumerate() {
        assert!(fs::read(path).unwrap() == bytes(number), "{}", path.display());
    }
    assert!(fs::read(volume.file(0)).unwrap() == [bytes(0), b"more".to_vec()].concat());
    (1..FILES).for_each(|number| volume.has(number, &bytes(number)));
    drop(held);
    volume.end();
}

/// Whoever has a file open there is told that it is gone, and nobody else: all is opened anew.
fn forget() {
    let volume = Volume::new("forget", "hard,timeo=20,retrans=2");
    let mut held = OpenOptions::new().append(true).open(volume.file(0)).unwrap();
    held.write_all(b"more").unwrap();
    held.sync_all().unwrap();
    stop_server();
    let told = volume.start("dd if=/dev/zero of=1 bs=64K count=4 conv=notrunc,fsync status=none");
    volume.others_go_on(5);
    start_forgetful_server();
    told.comes_to_an_end();
    let lost = held.write_all(b"lost").and_then(|()| held.sync_all());
    assert!(lost.is_err(), "nothing was at stake");
    volume.heals();
    // Who finds out is told; then all goes on.
    (1..4).for_each(|number| volume.write_anew(number));
    for number in 0..40 {
        let path = volume.large.join(format!("new{number}"));
        write_synced(&path, number).unwrap();
        assert!(fs::read(&path).unwrap() == bytes(number), "{}", path.display());
    }
    drop(held);

    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    assert!(fs::read(volume.file(0)).unwrap() == [bytes(0), b"more".to_vec()].concat());
    (1..FILES).for_each(|number| volume.has(number, &bytes(number)));
    volume.end();
}
