//! Signs of life from verbs that may take long: on standard error, if that is a terminal and a person reads along
//! (no `--output json`, no `--quiet`); else nothing at all. They are gone when the verb has ended.

use std::{
    io::{IsTerminal, stderr},
    ops::Deref,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Format;

/// How often a sign changes by itself.
const TICK: Duration = Duration::from_millis(200);

/// Whether signs are shown.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    shown: bool,
}

/// One sign; it goes when this goes.
pub struct Sign(ProgressBar);

impl Progress {
    pub fn new(form: Format, quiet: bool) -> Self {
        Self { shown: form == Format::Table && !quiet && stderr().is_terminal() }
    }

    /// What is being done, and for how long already.
    pub fn stage(self, what: &str) -> Sign {
        self.sign(None, "{spinner} {msg} ({elapsed})", what)
    }

    /// As [`stage`](Self::stage), with how many of how many are done; the total may come later (`set_length`).
    pub fn count(self, what: &str) -> Sign {
        self.sign(None, "{spinner} {msg} {wide_bar} {human_pos}/{human_len} (left: {eta})", what)
    }

    /// As [`stage`](Self::stage), with the bytes done, of `total` if that is known.
    pub fn bytes(self, what: &str, total: Option<u64>) -> Sign {
        let template = match total {
            Some(_) => "{spinner} {msg} {wide_bar} {binary_bytes}/{binary_total_bytes} (left: {eta})",
            None => "{spinner} {msg} {binary_bytes} ({elapsed})",
        };
        self.sign(total, template, what)
    }

    fn sign(self, total: Option<u64>, template: &str, what: &str) -> Sign {
        if !self.shown {
            return Sign(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.tick();
        bar.enable_steady_tick(TICK);
        Sign(bar)
    }
}

impl Deref for Sign {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.0
    }
}

impl Drop for Sign {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
