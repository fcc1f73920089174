//! `cofs dump`: all metadata of a volume as one stream.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use cofs_namespace::dump::{Totals, dump};

use crate::{
    failure::{Done, Failure, Within},
    progress::Progress,
    volume::{config::sync_parent, lock::Purpose, open::find, parts::open_engine_read_only},
};

/// Write all metadata of a volume that is not mounted: for backups, and to move it (cofs load).
///
/// The bytes of small files are among them, the objects in the pools are not.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The volume's directory.
    pub store: PathBuf,

    /// Where to write. A file appears when it is whole, and replaces one of that name. Without it: standard output.
    #[arg(long = "file", short = 'o', value_name = "FILE")]
    pub file: Option<PathBuf>,
}

pub fn run(args: &Args, progress: Progress) -> Done {
    let locked = find(&args.store)?.lock(Purpose::Look)?;
    let engine = open_engine_read_only(&locked.store, &locked.config)?;
    let sign = progress.bytes("writing the metadata:", None);
    let write = |out: &mut dyn Write| Ok(dump(&engine, &mut sign.wrap_write(out))?);
    let totals = match &args.file {
        Some(file) => write_to(file, write)?,
        None => {
            let mut out = BufWriter::new(io::stdout().lock());
            let totals = write(&mut out).within("standard output")?;
            out.flush().within("standard output")?;
            totals
        }
    };
    drop(sign);
    eprintln!("Dumped {} inodes, {} records.", totals.inodes, totals.records);
    Ok(())
}

/// A file is replaced as a whole. Anything else, such as a FIFO or a device, is written to: a file in its place would be a loss.
fn write_to(path: &Path, write: impl FnOnce(&mut dyn Write) -> Done<Totals>) -> Done<Totals> {
    // What a symbolic link leads to, not the link.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&path).is_ok_and(|at| !at.is_file()) {
        let file = File::options().write(true).open(&path);
        return write_file(file.map_err(|error| cannot_write(&path, &error))?, &path, write);
    }
    let temporary = temporary(&path);
    let file = File::options().write(true).create_new(true).open(&temporary);
    let file = file.map_err(|error| cannot_write(&temporary, &error))?;
    let written = write_file(file, &temporary, write).and_then(|totals| {
        fs::rename(&temporary, &path)
            .and_then(|()| sync_parent(&std::path::absolute(&path)?))
            .map_err(|error| cannot_write(&path, &error))
            .map(|()| totals)
    });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::io("cannot write", path, error)
}

/// A name beside `file` that nobody else has.
fn temporary(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    name.into()
}

fn write_file(file: File, path: &Path, write: impl FnOnce(&mut dyn Write) -> Done<Totals>) -> Done<Totals> {
    let mut out = BufWriter::new(file);
    let totals = write(&mut out).within(path.display())?;
    let file = out.into_inner().map_err(|error| cannot_write(path, error.error()))?;
    match file.sync_all() {
        // A device or a FIFO may have nothing to sync.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(totals),
        synced => synced.map_err(|error| cannot_write(path, &error)).map(|()| totals),
    }
}
