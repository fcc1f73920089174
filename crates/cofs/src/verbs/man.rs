//! `cofs man`: the man pages, made from the same definition as `--help`.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::failure::{Done, Failure};

/// Write the man pages: cofs(1) and one for each verb.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The directory to write them to; it must exist.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

pub fn run(args: &Args) -> Done {
    clap_mangen::generate_to(crate::cli::Cli::command(), &args.dir)
        .map_err(|error| Failure::io("cannot write man pages to", &args.dir, &error))
}
