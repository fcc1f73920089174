//! The command line's definition: `--help`, man pages and completions all come from here.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{failure::Done, output::Format, progress::Progress, verbs};

/// A composite file system: one fast, complete, crash-safe POSIX tree over directories of file systems you
/// already have.
#[derive(Parser, Debug)]
#[command(name = "cofs", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done; 1 failed, nothing changed unless the message says so; 2 wrong usage; \
                        fsck has those of fsck(8)."
)]
pub struct Cli {
    /// The form of what is printed on standard output.
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Format,

    /// Which messages go to standard error: error, warn, info, debug, trace, off, or a filter for each module (cofs_fs=debug).
    #[arg(long, global = true, env = "COFS_LOG", value_name = "FILTER", default_value = "warn")]
    pub log: String,

    /// Show no progress on standard error (it is shown only where that is a terminal).
    #[arg(long, short, global = true)]
    pub quiet: bool,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    Format(verbs::format::Args),
    Mount(verbs::mount::Args),
    Umount(verbs::umount::Args),
    Status(verbs::status::Args),
    Info(verbs::info::Args),
    Fsck(verbs::fsck::Args),
    Gc(verbs::gc::Args),
    Dump(verbs::dump::Args),
    Load(verbs::load::Args),
    Bench(Box<verbs::bench::Args>),
    Config(verbs::config::Args),
    Man(verbs::man::Args),
    Completions(verbs::completions::Args),
}

impl Cli {
    pub fn run(&self) -> Done<ExitCode> {
        let done = |()| ExitCode::SUCCESS;
        let progress = Progress::new(self.output, self.quiet);
        match &self.verb {
            Verb::Format(args) => verbs::format::run(args, self.output).map(done),
            Verb::Mount(args) => verbs::mount::run(args),
            Verb::Umount(args) => verbs::umount::run(args).map(done),
            Verb::Status(args) => verbs::status::run(args, self.output).map(done),
            Verb::Info(args) => verbs::info::run(args, self.output).map(done),
            Verb::Fsck(args) => verbs::fsck::run(args, self.output, progress),
            Verb::Gc(args) => verbs::gc::run(args, self.output, progress).map(done),
            Verb::Dump(args) => verbs::dump::run(args, self.output, progress).map(done),
            Verb::Load(args) => verbs::load::run(args, progress).map(done),
            Verb::Bench(args) => verbs::bench::run(args, self.output, progress).map(done),
            Verb::Config(args) => verbs::config::run(args, self.output).map(done),
            Verb::Man(args) => verbs::man::run(args, self.output).map(done),
            Verb::Completions(args) => verbs::completions::run(args, self.output).map(done),
        }
    }

    pub fn verb_name(&self) -> &'static str {
        match &self.verb {
            Verb::Format(_) => "format",
            Verb::Mount(_) => "mount",
            Verb::Umount(_) => "umount",
            Verb::Status(_) => "status",
            Verb::Info(_) => "info",
            Verb::Fsck(_) => "fsck",
            Verb::Gc(_) => "gc",
            Verb::Dump(_) => "dump",
            Verb::Load(_) => "load",
            Verb::Bench(_) => "bench",
            Verb::Config(_) => "config",
            Verb::Man(_) => "man",
            Verb::Completions(_) => "completions",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
