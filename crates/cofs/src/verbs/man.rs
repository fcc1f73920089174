//! `cofs man`: the man pages, made from the same definition as `--help`.

use std::{io, path::PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::{
    failure::{Done, Failure},
    staged::Staged,
};

/// Write the man pages: cofs(1) and one for each verb.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The directory to write them to; it must exist.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

/// All pages are written before the first is put in its place: where there is no room for them, nothing is changed.
pub fn run(args: &Args) -> Done {
    let pages = pages(crate::cli::Cli::command())
        .map_err(|error| Failure::new(format!("cannot make the pages: {error}")))?;
    let stage = |(name, text): (String, Vec<u8>)| Staged::of(&args.dir.join(name), &text);
    let staged: Vec<Staged> = pages.into_iter().map(stage).collect::<Done<_>>()?;
    staged.into_iter().try_for_each(Staged::place)
}

/// The name of each page and its text: the program's and its verbs'.
fn pages(program: Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    add_pages(program, &mut pages).map(|()| pages)
}

fn add_pages(command: Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned() {
        add_pages(verb, pages)?;
    }
    let page = Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    pages.push((page.get_filename(), text));
    Ok(())
}
