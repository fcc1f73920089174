//! `cofs load`: makes a volume's metadata from a dump.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
};

use cofs_engine::{EmbeddedEngine, Engine};
use cofs_namespace::{
    check::Checker,
    dump::{Totals, load},
};
use cofs_types::{CLAIM, FsError, failpoint};

use crate::{
    failure::{Done, Failure, Within},
    output,
    progress::Progress,
    volume::{
        claim::{Claim, Work},
        config::{self, INLINE_MAX_DEFAULT},
        format::{self, Plan},
        lock::Purpose,
        open::{Locked, find},
        parts,
    },
};

/// Make a volume's metadata from a dump (cofs dump).
///
/// STORE is a new or empty directory, or a volume whose metadata directory is lost or empty: then its pools are
/// used as they are. A new volume has new pools: the bytes of files that were in objects are not there.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The volume's directory.
    pub store: PathBuf,

    /// The dump; `-` for standard input.
    pub file: PathBuf,
}

pub fn run(args: &Args, progress: Progress) -> Done {
    let total = std::fs::metadata(&args.file).ok().filter(|file| file.is_file()).map(|file| file.len());
    let sign = progress.bytes("reading the dump:", total);
    let mut input = sign.wrap_read(open(&args.file)?);
    let totals = match args.store.join(config::FILE_NAME).exists() {
        true => restore(&find(&args.store)?.lock(Purpose::Change)?, &args.file, &mut input)?,
        false => make(&args.store, &args.file, &mut input)?,
    };
    drop(sign);
    output::say(format_args!("Loaded {} inodes, {} records.", totals.inodes, totals.records));
    Ok(())
}

fn open(file: &Path) -> Done<Box<dyn BufRead>> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let unreadable = |error: io::Error| Failure::io("cannot read", file, &error);
    let opened = File::open(file).map_err(unreadable)?;
    if opened.metadata().map_err(unreadable)?.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    Ok(Box::new(BufReader::new(opened)))
}

/// A volume of its own.
fn make(store: &Path, file: &Path, input: &mut dyn BufRead) -> Done<Totals> {
    let plan =
        Plan { store: store.to_owned(), meta: None, pools: Vec::new(), inline_max: INLINE_MAX_DEFAULT };
    let mut totals = Totals::default();
    let (_, config) = format::format_with(&plan, &mut |engine, config| {
        totals = fill(engine, file, input)?;
        let options = Checker::new(&**engine).options().within(file.display())?;
        config.inline_max = options.inline_bytes_max;
        config.hash_key = config::HashKey(options.hash_key);
        Ok(())
    })?;
    tracing::info!(uuid = %config.uuid, "a new volume");
    Ok(totals)
}

/// The metadata of a volume that has lost them.
fn restore(locked: &Locked, file: &Path, input: &mut dyn BufRead) -> Done<Totals> {
    let Locked { store, config, .. } = locked;
    let meta = config.meta_directory(store);
    let before = Claim::find(&meta).filter(|claim| claim.volume == config.uuid);
    let is_half_loaded = before.as_ref().is_some_and(|claim| claim.is_held_for(Work::Load));
    if EmbeddedEngine::is_in(&meta) && !is_half_loaded {
        return Err(Failure::new(format!(
            "{} is already a volume, and has its metadata in {}",
            store.display(),
            meta.display()
        ))
        .next("name a new store, or move that directory away first"));
    }
    for pool in &config.pools {
        let next = format!(
            "all pools must be there: mount it, or say where it is now (cofs config STORE pool.{}.directory=DIR)",
            pool.name
        );
        parts::refuse_foreign_pool(store, config.uuid, pool, &next)?;
    }
    if let Some(claim) = before {
        take_back(&meta, &claim)?;
    }
    let claim = Claim::stake(&meta, Work::Load, config.uuid, store, &[CLAIM])?;
    failpoint("cofs.load.claimed");
    let loaded = fill_lost(locked, file, input);
    failpoint("cofs.load.filled");
    let Ok(totals) = loaded else {
        // What cannot be taken back is half loaded, and told to be so.
        let _ = take_back(&meta, &claim);
        return loaded;
    };
    claim.release().map_err(|error| Failure::io("cannot change", &meta, &error))?;
    Ok(totals)
}

/// Removes what was loaded beside a claim.
fn take_back(meta: &Path, claim: &Claim) -> Done {
    if claim.is_held_for(Work::Load) {
        parts::remove_metadata(meta)?;
    }
    claim.withdraw().map_err(|error| Failure::io("cannot change", meta, &error))
}

fn fill_lost(locked: &Locked, file: &Path, input: &mut dyn BufRead) -> Done<Totals> {
    let Locked { store, config, .. } = locked;
    let mut totals = Totals::default();
    parts::make_metadata(store, config, &mut |engine| {
        totals = fill(engine, file, input)?;
        match Checker::new(&**engine).options().within(file.display())?.hash_key == config.hash_key.0 {
            true => Ok(()),
            false => Err(parts::foreign_metadata()
                .within(file.display())
                .next("load a dump of this volume, or name a new store")),
        }
    })?;
    // What the pools hold beyond these metadata may be all that is left of some files: fsck tells of it.
    parts::open_placement(store, config)
        .and_then(|placement| placement.disown_left_behind())
        .within("pools")?;
    Ok(totals)
}

fn fill(engine: &Arc<dyn Engine>, file: &Path, input: &mut dyn BufRead) -> Done<Totals> {
    load(&**engine, input).map_err(|error| {
        let is_no_dump = matches!(error, FsError::Corrupt(_));
        let failure = Failure::from(error).within(file.display());
        if is_no_dump { failure.next("name a whole file that cofs dump has written") } else { failure }
    })
}
