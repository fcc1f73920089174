//! `cofs dump`: all metadata of a volume as one stream.

use std::{
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use cofs_namespace::dump::dump;
use cofs_types::FsError;

use crate::{
    failure::{Done, Failure, Within},
    output,
    progress::Progress,
    staged::Staged,
    volume::{
        lock::Purpose,
        open::{Found, find},
        parts::open_engine_read_only,
    },
};

/// Write all metadata of a volume that is not mounted: for backups, and to move it (cofs load).
///
/// The bytes of small files are among them, the objects in the pools are not.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The volume's directory.
    pub store: PathBuf,

    /// Where to write: not inside the volume's own directories. A file appears when it is whole, and replaces one of that name. Without it:
    /// standard output.
    #[arg(long = "file", short = 'o', value_name = "FILE")]
    pub file: Option<PathBuf>,
}

pub fn run(args: &Args, progress: Progress) -> Done {
    let found = find(&args.store)?;
    args.file.iter().try_for_each(|file| refuse_own(&found, file))?;
    let locked = found.lock(Purpose::Look)?;
    let engine = open_engine_read_only(&locked.store, &locked.config)?;
    let sign = progress.bytes("writing the metadata:", None);
    let write = |out: &mut dyn Write| dump(&engine, &mut sign.wrap_write(out)).map_err(cut_short);
    let totals = match &args.file {
        Some(file) => {
            let (staged, totals) = Staged::write(file, write)?;
            staged.place().map(|()| totals)?
        }
        None => {
            let mut out = BufWriter::new(io::stdout().lock());
            let totals = write(&mut out).within("standard output")?;
            out.flush().within("standard output")?;
            totals
        }
    };
    drop(sign);
    output::say(format_args!("Dumped {} inodes, {} records.", totals.inodes, totals.records));
    Ok(())
}

/// What is written takes the place of what is there: of a volume's own files that would be a loss.
fn refuse_own(found: &Found, file: &Path) -> Done {
    // Where nothing can stand, writing fails.
    let Some(place) = place_of(file) else { return Ok(()) };
    let holds = |part: &Path| place.starts_with(part.canonicalize().as_deref().unwrap_or(part));
    match found.parts().find(|(part, _)| holds(part)) {
        Some((part, what)) => {
            Err(Failure::new(format!("{} lies inside {what} ({})", file.display(), part.display()))
                .next("name a file outside"))
        }
        None => Ok(()),
    }
}

/// Where that stands, or will, without links.
fn place_of(file: &Path) -> Option<PathBuf> {
    file.canonicalize().ok().or_else(|| {
        let path = std::path::absolute(file).ok()?;
        Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
    })
}

/// A reader that goes away is an error, unlike for verbs that only tell something: what comes after it in a pipe may make a sound
/// file of half a dump, and the status of a pipe is that of its last program.
fn cut_short(error: FsError) -> Failure {
    match &error {
        FsError::Backing { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
            Failure::new("its reader has gone, and what it has read is no whole dump")
                .next("have all of it read, or write to a file (-o FILE)")
        }
        _ => error.into(),
    }
}
