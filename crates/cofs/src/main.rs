//! `cofs`: the command line. One verb a file under `verbs/`; what several verbs share stands beside it.
//!
//! Standard output carries what was asked for, standard error carries words. This is the edge where an
//! error becomes a line and an exit code, once.

mod apart;
mod cli;
mod failpoints;
mod failure;
mod mount;
mod output;
mod progress;
mod staged;
mod verbs;
mod volume;

use std::{env::VarError, ffi::OsString, io, process::ExitCode, sync::Arc};

use clap::{Parser, error::ErrorKind};
use failure::Failure;

/// An operation allocates and frees a few dozen small pieces, some of them freed by the drain's thread: glibc's allocator
/// took a sixth of the engine's time there (docs/adr/0006-a-journal-in-front-of-rocksdb.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Err(failure) = check_environment() {
        return say(&failure.within("cofs"));
    }
    let parsed = match verbs::helper::translate(&arguments) {
        Ok(Some(translated)) => cli::Cli::try_parse_from(translated),
        Ok(None) => cli::Cli::try_parse_from(&arguments),
        Err(failure) => return say(&failure),
    };
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Help and versions go to standard output with 0, and so does what is shown to who says nothing, but
            // to standard error and with 2, as all wrong usage.
            if error.exit_code() == 0 || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                let code = u8::try_from(error.exit_code()).unwrap_or(failure::EXIT_USAGE);
                return match output::print_with(|| error.print()) {
                    Err(unwritten) if code == 0 => say(&Failure::from(unwritten).within("cofs")),
                    _ => ExitCode::from(code),
                };
            }
            return say(&wrong_usage(&error, &arguments));
        }
    };
    match start_up(&cli).and_then(|()| cli.run()) {
        Ok(code) => code,
        Err(failure) => say(&failure.within(format!("cofs {}", cli.verb_name()))),
    }
}

/// The verb of a line that could not be parsed, if it has one.
fn verb_in(arguments: &[OsString]) -> Option<String> {
    use clap::CommandFactory;
    let command = cli::Cli::command();
    let is_verb = |argument: &&OsString| command.get_subcommands().any(|verb| *argument == verb.get_name());
    arguments.iter().skip(1).find(is_verb).and_then(|verb| verb.to_str()).map(str::to_owned)
}

/// Of what clap has to say the paragraph that tells what is wrong and its tips, in one line; the others are the same for all.
fn wrong_usage(error: &clap::Error, arguments: &[OsString]) -> Failure {
    let text = error.to_string();
    let told = text.split("\n\n").map(str::trim).enumerate();
    // How an unknown option may be passed for a value is not what its writer wants to know.
    let is_tip = |paragraph: &str| paragraph.starts_with("tip:") && !paragraph.starts_with("tip: to pass");
    let told = told.filter(|(at, paragraph)| *at == 0 || is_tip(paragraph));
    let told: Vec<_> = told.map(|(_, paragraph)| paragraph.trim_start_matches("error: ")).collect();
    let told = match arguments.iter().find(|argument| argument.to_str().is_none()) {
        Some(odd) if error.kind() == ErrorKind::InvalidUtf8 => {
            format!("`{}` is no UTF-8", odd.to_string_lossy())
        }
        _ => told.join("; "),
    };
    let verb = verb_in(arguments);
    let program = verb.as_ref().map_or_else(|| "cofs".to_owned(), |verb| format!("cofs {verb}"));
    let failure = Failure::usage(told).within(&program).next(format!("see {program} --help"));
    // Its 2 would mean: restart the machine.
    if verb.as_deref() == Some("fsck") { failure.code(verbs::fsck::USAGE) } else { failure }
}

/// What clap reads by itself and would not name.
fn check_environment() -> Result<(), Failure> {
    match std::env::var("COFS_LOG") {
        Err(VarError::NotUnicode(value)) => Err(Failure::usage(format!(
            "COFS_LOG=`{}` is no text",
            output::printable(&value.to_string_lossy())
        ))
        .next("write error, warn, info, debug or trace, or unset it")),
        _ => Ok(()),
    }
}

fn say(failure: &Failure) -> ExitCode {
    output::say(failure);
    failure.exit_code()
}

fn start_up(cli: &cli::Cli) -> Result<(), Failure> {
    start_log(&cli.log)?;
    outlive_large_files()?;
    arm_failpoint()
}

/// Whether a filter's words are levels, or are about modules of ours: any other word would be taken for a module's name, and nothing be told.
fn is_about_us(filter: &str) -> bool {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    filter
        .split(',')
        .all(|word| LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level)) || word.starts_with("cofs"))
}

/// A write beyond the limit on a file's size (ulimit -f) is to fail with EFBIG, and not to end the process and its mount with it. By a
/// handler, as what is executed would inherit that a signal is ignored.
fn outlive_large_files() -> io::Result<()> {
    signal_hook::flag::register(libc::SIGXFSZ, Arc::default()).map(drop)
}

fn start_log(filter: &str) -> Result<(), Failure> {
    let parsed = tracing_subscriber::EnvFilter::builder().parse(filter);
    let filter = parsed.ok().filter(|_| is_about_us(filter)).ok_or_else(|| {
        Failure::usage(format!("`{filter}` is no log filter"))
            .next("write error, warn, info, debug, trace or off, or one for a module (cofs_fs=debug)")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // That a message cannot be written would be told there, too, by a macro that panics: on a full disk the thread that serves would end.
        .log_internal_errors(false)
        // In the background messages go elsewhere before long.
        .with_ansi(rustix::termios::isatty(rustix::stdio::stderr()) && !mount::daemon::is_background())
        .init();
    Ok(())
}

/// `COFS_FAILPOINT=name[:nth][:stop]`: crash tests end the process at a named place, or have it stopped there.
fn arm_failpoint() -> Result<(), Failure> {
    let Some(armed) = std::env::var_os("COFS_FAILPOINT") else { return Ok(()) };
    // What is no text names no place, and is told as far as it can be shown.
    let armed = armed.to_string_lossy();
    let (place, act): (_, fn()) = match armed.strip_suffix(":stop") {
        Some(place) => (place, stop),
        None => (&*armed, || std::process::abort()),
    };
    let (name, nth) = match place.split_once(':') {
        Some((name, nth)) => (name, nth.parse().ok()),
        None => (place, Some(1)),
    };
    let nth = nth.filter(|nth| *nth > 0 && !name.is_empty()).ok_or_else(|| {
        Failure::usage(format!("COFS_FAILPOINT=`{armed}` is malformed"))
            .next("write NAME[:NTH][:stop], or unset it")
    })?;
    if !failpoints::is_known(name) {
        return Err(Failure::usage(format!("COFS_FAILPOINT: there is no place `{name}`"))
            .next(format!("{}; or unset it", failpoints::near(name))));
    }
    cofs_types::arm_failpoint(name, nth, act);
    Ok(())
}

/// Until somebody has it go on.
fn stop() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
}
