//! `cofs`: the command line. One verb a file under `verbs/`; what several verbs share stands beside it.
//!
//! Standard output carries what was asked for, standard error carries words. This is the edge where an
//! error becomes a line and an exit code, once.

mod cli;
mod failpoints;
mod failure;
mod mount;
mod output;
mod progress;
mod verbs;
mod volume;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;
use failure::Failure;

/// An operation allocates and frees a few dozen small pieces, some of them freed by the drain's thread: glibc's allocator
/// took a sixth of the engine's time there (docs/adr/0006-a-journal-in-front-of-rocksdb.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let parsed = match verbs::helper::translate(&arguments) {
        Ok(Some(translated)) => cli::Cli::try_parse_from(translated),
        Ok(None) => cli::Cli::try_parse_from(&arguments),
        Err(failure) => return say(&failure),
    };
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Help and versions go to standard output with 0, wrong usage to standard error with 2.
            let _ = error.print();
            return match error.exit_code() {
                0 => ExitCode::SUCCESS,
                _ if is_fsck(&arguments) => ExitCode::from(verbs::fsck::USAGE),
                _ => ExitCode::from(failure::EXIT_USAGE),
            };
        }
    };
    match start_up(&cli).and_then(|()| cli.run()) {
        Ok(code) => code,
        Err(failure) => say(&failure.within(format!("cofs {}", cli.verb_name()))),
    }
}

/// Whether a line that could not be parsed was one for `fsck`, whose 2 would mean: restart the machine.
fn is_fsck(arguments: &[OsString]) -> bool {
    use clap::CommandFactory;
    let command = cli::Cli::command();
    let is_verb = |argument: &&OsString| command.get_subcommands().any(|verb| *argument == verb.get_name());
    arguments.iter().skip(1).find(is_verb).is_some_and(|verb| verb == "fsck")
}

fn say(failure: &Failure) -> ExitCode {
    eprintln!("{failure}");
    failure.exit_code()
}

fn start_up(cli: &cli::Cli) -> Result<(), Failure> {
    start_log(&cli.log)?;
    arm_failpoint()
}

fn start_log(filter: &str) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::builder().parse(filter).map_err(|_| {
        Failure::usage(format!("`{filter}` is no log filter")).next("write error, warn, info, debug or trace")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(rustix::termios::isatty(rustix::stdio::stderr()))
        .init();
    Ok(())
}

/// `COFS_FAILPOINT=name[:nth]`: crash tests end the process at a named place.
fn arm_failpoint() -> Result<(), Failure> {
    let Ok(armed) = std::env::var("COFS_FAILPOINT") else { return Ok(()) };
    let (name, nth) = match armed.split_once(':') {
        Some((name, nth)) => (name, nth.parse().ok()),
        None => (armed.as_str(), Some(1)),
    };
    let nth = nth.filter(|nth| *nth > 0 && !name.is_empty()).ok_or_else(|| {
        Failure::usage(format!("COFS_FAILPOINT=`{armed}` is malformed"))
            .next("write NAME or NAME:NTH, or unset it")
    })?;
    if !failpoints::is_known(name) {
        return Err(Failure::usage(format!("COFS_FAILPOINT: there is no place `{name}`"))
            .next(format!("{}; or unset it", failpoints::near(name))));
    }
    cofs_types::arm_failpoint(name, nth);
    Ok(())
}
