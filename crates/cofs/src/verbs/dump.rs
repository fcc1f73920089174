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

    /// Where to write; it appears when it is whole. Without it: standard output.
    #[arg(long = "file", short = 'o', value_name = "FILE")]
    pub file: Option<PathBuf>,
}

pub fn run(args: &Args, progress: Progress) -> Done {
    let locked = find(&args.store)?.lock(Purpose::Look)?;
    let engine = open_engine_read_only(&locked.store, &locked.config)?;
    let sign = progress.bytes("writing the metadata:", None);
    let totals = match &args.file {
        Some(file) => {
            let temporary = temporary(file);
            let written = write_file(&temporary, |out| Ok(dump(&engine, &mut sign.wrap_write(out))?));
            let finished = written.and_then(|totals| {
                fs::rename(&temporary, file)
                    .and_then(|()| sync_parent(&std::path::absolute(file)?))
                    .map_err(|error| Failure::io("cannot write", file, &error))
                    .map(|()| totals)
            });
            if finished.is_err() {
                let _ = fs::remove_file(&temporary);
            }
            finished?
        }
        None => {
            let mut out = BufWriter::new(io::stdout().lock());
            let totals = dump(&engine, &mut sign.wrap_write(&mut out)).within("standard output")?;
            out.flush().within("standard output")?;
            totals
        }
    };
    drop(sign);
    eprintln!("Dumped {} inodes, {} records.", totals.inodes, totals.records);
    Ok(())
}

fn temporary(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> Done<Totals>) -> Done<Totals> {
    let cannot = |error: io::Error| Failure::io("cannot write", path, &error);
    let mut out = BufWriter::new(File::create(path).map_err(cannot)?);
    let totals = write(&mut out)?;
    let file = out.into_inner().map_err(|error| cannot(error.into_error()))?;
    file.sync_all().map_err(cannot)?;
    Ok(totals)
}
