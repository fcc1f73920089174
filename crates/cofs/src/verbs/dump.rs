//! `cofs dump`: all metadata of a volume as one stream.

use std::{
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use cofs_namespace::dump::dump;
use cofs_types::FsError;

use crate::{
    apart::refuse_file,
    failure::{Done, Failure, Within},
    output::{self, Format},
    progress::Progress,
    staged::{Readers, Staged},
    volume::{
        lock::Purpose,
        open::find,
        parts::{open_engine_read_only, refuse_foreign},
    },
};

/// Write all metadata of a volume that is not mounted: for backups, and to move it (cofs load).
///
/// The bytes of small files are among them, the objects in the pools are not.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The volume's directory.
    pub store: PathBuf,

    /// Where to write: not inside the volume's own directories. A file appears when it is whole, and replaces one of that name, whose owner and
    /// mode it takes; a new one is for its owner alone. Without it, or as `-`: standard output.
    #[arg(long = "file", short = 'o', value_name = "FILE")]
    pub file: Option<PathBuf>,
}

impl Args {
    fn file(&self) -> Option<&Path> {
        self.file.as_deref().filter(|file| *file != "-")
    }
}

pub fn run(args: &Args, form: Format, progress: Progress) -> Done {
    let found = find(&args.store)?;
    match args.file() {
        Some(file) => refuse_file(file, &found.parts().collect::<Vec<_>>())?,
        None => {
            output::refuse_form(form, "a dump has a form of its own")?;
            refuse_closed()?;
        }
    }
    let locked = found.lock(Purpose::Look)?;
    let engine = open_engine_read_only(&locked.store, &locked.config)?;
    refuse_foreign(&engine, &locked.config).within(locked.metadata())?;
    let sign = progress.bytes("writing the metadata:", None);
    let write = |out: &mut dyn Write| dump(&engine, &mut sign.wrap_write(out)).map_err(cut_short);
    let totals = match args.file() {
        Some(file) => {
            let (staged, totals) = Staged::write(file, Readers::Owner, write)?;
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

/// A dump that nobody receives is no backup. Who throws it away on purpose can say so.
fn refuse_closed() -> Done {
    if !output::was_closed() {
        return Ok(());
    }
    Err(Failure::new("standard output is closed: nobody would have the dump")
        .next("write it to a file (-o FILE), or, to have it nowhere, to /dev/null (-o /dev/null)"))
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
