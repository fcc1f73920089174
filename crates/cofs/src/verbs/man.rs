//! `cofs man`: the man pages, made from the same definition as `--help`.

use std::path::PathBuf;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::{
    failure::{Done, Within},
    output::{self, Format},
    staged::{Readers, Staged},
};

/// Write the man pages: cofs(1) and one for each verb.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The directory to write them to; it must exist.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

/// All pages are written before the first is put in its place: where there is no room for them, nothing is changed.
pub fn run(args: &Args, form: Format) -> Done {
    output::refuse_form(form, "man pages are written to files")?;
    let mut program = crate::cli::Cli::command().disable_help_subcommand(true);
    program.build();
    let stage = |page: Man| {
        let path = args.dir.join(page.get_filename());
        Staged::write(&path, Readers::All, |out| page.render(out).within("cannot be written"))
    };
    let staged = pages(&program).into_iter().map(stage).collect::<Done<Vec<_>>>()?;
    staged.into_iter().try_for_each(|(page, ())| page.place())
}

/// A command's page and those of its verbs, as `clap_mangen::generate_to` has them, which writes each to its place at once.
fn pages(command: &Command) -> Vec<Man> {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    verbs.flat_map(pages).chain([Man::new(command.clone())]).collect()
}
