//! `cofs mount`: serves a volume at a directory.

use std::{path::PathBuf, process::ExitCode};

use crate::{
    failure::Done,
    mount::options::{MountOptions, Transport},
};

/// Mount a volume on a directory.
///
/// Stays in the foreground until it is unmounted (cofs umount, umount, SIGTERM, SIGINT); with -d it goes
/// to the background as soon as the mount serves.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The volume's directory.
    pub store: PathBuf,

    /// The directory to mount it on.
    pub dir: PathBuf,

    /// Go to the background once the mount serves.
    #[arg(long = "daemon", short = 'd')]
    pub background: bool,

    /// Mount options, as in fstab.
    #[arg(short = 'o', value_name = "WORDS")]
    pub options: Vec<String>,

    /// Format the volume first if STORE does not exist or is empty.
    #[arg(long)]
    pub create: bool,

    /// How the kernel's requests reach cofs.
    #[arg(long, value_enum, value_name = "HOW")]
    pub transport: Option<Transport>,

    /// Pass over unknown mount options (mount -s).
    #[arg(long, hide = true)]
    pub sloppy: bool,

    /// Check everything, mount nothing (mount -f).
    #[arg(long, hide = true)]
    pub fake: bool,
}

pub fn run(args: &Args) -> Done<ExitCode> {
    let mut options = MountOptions::default();
    for words in &args.options {
        options.add(words, args.sloppy)?;
    }
    Ok(ExitCode::SUCCESS)
}
