//! Creates very many files, empty or of BYTES bytes each, by one process, in one directory of DIR or spread over several, and says how
//! fast each tenth of them came: whether it matters how many there are already.
//!
//!     cargo run --release -p cofs-bench --features bench --example many_files -- DIR FILES [DIRECTORIES [BYTES]]
//!
//! `scripts/bench-ten-million.sh` does so with a volume, and looks at it afterwards.

use std::{
    ffi::CString,
    fs::{self, File},
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use rustix::fs::{CWD, Mode, OFlags, openat};

const PARTS: u64 = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(dir), Some(files @ PARTS..)) = (arguments.first().map(PathBuf::from), number(1)) else {
        eprintln!("usage: many_files DIR FILES [DIRECTORIES [BYTES]]");
        return ExitCode::from(2);
    };
    let bytes = vec![b'x'; number(3).unwrap_or(0) as usize];
    match create(&dir, files, number(2).unwrap_or(1).max(1), &bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("many_files: {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}

/// One directory after the other is filled; within it names ascend, as a program's do that counts.
fn create(dir: &Path, files: u64, directories: u64, bytes: &[u8]) -> io::Result<()> {
    let each = files.div_ceil(directories);
    let mut rates = Vec::new();
    let (from, mut part) = (Instant::now(), Instant::now());
    for number in 0..files {
        let directory = dir.join(format!("d{:05}", number / each));
        if number % each == 0 {
            fs::create_dir(&directory)?;
        }
        let path = directory.join(format!("f{number:08}"));
        let name = CString::new(path.as_os_str().as_bytes())?;
        let file = openat(CWD, &*name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, Mode::from(0o644))?;
        if !bytes.is_empty() {
            File::from(file).write_all(bytes)?;
        }
        if (number + 1) * PARTS / files > number * PARTS / files {
            let part_files = files / PARTS;
            rates.push(part_files as f64 / part.elapsed().as_secs_f64());
            println!("{:>9} files: {:>8.0} creates/s", number + 1, rates[rates.len() - 1]);
            io::stdout().flush()?;
            part = Instant::now();
        }
    }
    let (first, last) = (rates[0], rates[rates.len() - 1]);
    println!(
        "all: {:.0} creates/s; last tenth / first: {:.2}",
        files as f64 / from.elapsed().as_secs_f64(),
        last / first
    );
    Ok(())
}
