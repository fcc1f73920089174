//! The kernel's pages of files, for the tests of those who do not wait for the disk.

use std::{
    fs::File,
    io::{IoSliceMut, Seek, Write},
    os::fd::AsRawFd,
    path::Path,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::{
    fs::{Advice, fadvise},
    io::{Errno, ReadWriteFlags, preadv2},
};

/// Whether the file system of `directory` lets go of pages and says what is not in memory; says it where not. (A tmpfs has
/// nothing else; others do not know.)
pub fn file_system_tells(directory: &Path) -> bool {
    let mut file = tempfile::tempfile_in(directory).unwrap();
    file.write_all(&[1; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    let mut bytes = [0; 16];
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let tells = lets_go(&file, Duration::from_secs(3))
        && preadv2(&file, into, 1 << 19, ReadWriteFlags::NOWAIT) == Err(Errno::AGAIN);
    if !tells {
        eprintln!(
            "not tried: the file system of {} does not tell what must be waited for",
            directory.display()
        );
    }
    tells
}

/// Has the kernel let go of all pages of `file`, whose file system tells.
pub fn let_go(file: &File) {
    assert!(lets_go(file, Duration::from_secs(60)), "{} bytes stay in memory", resident_bytes(file));
}

/// Whether who asks for what he has taken out of memory is refused it (`None`), in some try at least. Linux begins a read for who does not wait, too,
/// and answers where the disk is done before it looks: 8 of 2000 such reads were answered, on an idle machine.
pub fn is_refused<T>(mut ask: impl FnMut() -> Option<T>) -> bool {
    (0..10).any(|_| ask().is_none())
}

/// One fadvise(2) is no promise: it passes over pages that somebody has in hand.
fn lets_go(file: &File, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        file.sync_all().unwrap();
        // What is just being read ahead comes in before, and not after.
        (&*file).rewind().unwrap();
        std::io::copy(&mut &*file, &mut std::io::sink()).unwrap();
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
        if resident_bytes(file) == 0 {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        sleep(Duration::from_millis(5));
    }
}

fn resident_bytes(file: &File) -> u64 {
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let said = Command::new("fincore")
        .args(["--raw", "--noheadings", "--bytes", "--output", "RES", &path])
        .output()
        .expect("fincore, of util-linux");
    let text = String::from_utf8_lossy(&said.stdout);
    text.trim().parse().unwrap_or_else(|_| panic!("{said:?}"))
}
