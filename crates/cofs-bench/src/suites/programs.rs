//! Programs that a suite runs, as people run them.

use std::{
    env, io,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

/// Runs a program within `directory`, whose output goes nowhere.
///
/// Errors: it cannot be started, or fails; with the last line of what it said then.
pub fn run(directory: &Path, words: &[&str]) -> io::Result<()> {
    output(command(directory, words)?.stdout(Stdio::null())).map(drop)
}

/// Runs a program within `directory` that has to say this number: it did what it was made for, with all that it needs.
///
/// Errors: those of [`run`]; it says something else.
pub fn says(directory: &Path, words: &[&str], number: u64) -> io::Result<()> {
    let output = output(&mut command(directory, words)?)?;
    let said = String::from_utf8_lossy(&output.stdout);
    match said.trim() == number.to_string() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{} says {}, not {number}", words.join(" "), said.trim()))),
    }
}

fn command(directory: &Path, words: &[&str]) -> io::Result<Command> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::piped());
    // What it says must not depend on the person's language.
    command.env("LC_ALL", "C").stderr(Stdio::piped());
    Ok(command)
}

fn output(command: &mut Command) -> io::Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let told = |error: &dyn std::fmt::Display| io::Error::other(format!("{name}: {error}"));
    let output = command.output().map_err(|error| told(&error))?;
    if output.status.success() {
        return Ok(output);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(told(&words.lines().last().map_or_else(|| output.status.to_string(), str::to_owned)))
}

/// Whether these programs are there to be run.
///
/// Errors: one line that names the first that is not.
pub fn needed(suite: &str, programs: &[&str]) -> Result<(), String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let runs =
        |file: &Path| file.metadata().is_ok_and(|of| of.is_file() && of.permissions().mode() & 0o111 != 0);
    let there = |program: &&&str| env::split_paths(&path).any(|directory| runs(&directory.join(program)));
    match programs.iter().find(|program| !there(program)) {
        Some(program) => {
            Err(format!("{suite} runs {program}, which is not installed here: install it first"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_last_is_why_it_failed() {
        let here = Path::new("/");
        says(here, &["sh", "-c", "pwd | wc -c"], 2).unwrap();
        let error = says(here, &["echo", "7"], 8).unwrap_err();
        assert_eq!(error.to_string(), "echo 7 says 7, not 8");
        let error = run(here, &["sh", "-c", "echo first >&2; echo no luck >&2; exit 3"]).unwrap_err();
        assert_eq!(error.to_string(), "sh: no luck");
        assert!(run(here, &["false"]).unwrap_err().to_string().contains("exit status: 1"));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        assert_eq!(needed("x", &["sh", "ls"]), Ok(()));
        assert!(needed("x", &["sh", "no-such-program"]).unwrap_err().contains("no-such-program"));
    }
}
