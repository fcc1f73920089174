//! The shell, for who is in a machine.

use std::{
    process::{Command, Output},
    time::Duration,
};

/// For what must come true. With `soft`, too, the kernel's client may take minutes to give up: its state manager asks for long, and all wait
/// for it.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A line for the shell that must succeed, and not take for ever. What it prints.
#[track_caller]
pub fn sh(line: &str) -> String {
    let output = try_sh(line);
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The same, which may fail.
pub fn try_sh(line: &str) -> Output {
    let seconds = PATIENCE.as_secs().to_string();
    Command::new("timeout").args(["-k", "5", &seconds, "sh", "-euc", line]).output().unwrap()
}
