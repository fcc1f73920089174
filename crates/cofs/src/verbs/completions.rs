//! `cofs completions`: completions for a shell, made from the same definition as `--help`.

use clap::CommandFactory;

use crate::{
    failure::Done,
    output::{self, Format},
};

/// Print completions for a shell.
///
/// For bash: cofs completions bash > /etc/bash_completion.d/cofs
#[derive(clap::Args, Debug)]
pub struct Args {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

pub fn run(args: &Args, form: Format) -> Done {
    output::refuse_form(form, "completions are a shell's")?;
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::cli::Cli::command(), "cofs", &mut text);
    Ok(output::print(&String::from_utf8_lossy(&text))?)
}
