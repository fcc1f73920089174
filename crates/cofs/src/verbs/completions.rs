//! `cofs completions`: completions for a shell, made from the same definition as `--help`.

use clap::{Command, CommandFactory};

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
    clap_complete::generate(args.shell, &mut shown(&crate::cli::Cli::command()), "cofs", &mut text);
    Ok(output::print(&String::from_utf8_lossy(&text))?)
}

/// Without what is hidden from `--help`: the generators know no difference.
fn shown(command: &Command) -> Command {
    Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .version(command.get_version().unwrap_or_default().to_owned())
        .propagate_version(true)
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned())
        .subcommands(command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(shown))
}
