//! The suites, one a file. What is said of them on the command line stands with them.

mod btio;
mod dataset;
mod io;
mod ior;
mod mdtest;
mod metabench;
mod metarates;
mod mptio;
mod programs;
mod python;
mod source;
mod tree;

use clap::{Args, Command};
use serde::{Deserialize, Serialize};

pub use self::{
    btio::Btio,
    dataset::Dataset,
    io::Io,
    ior::Ior,
    mdtest::Mdtest,
    metabench::Metabench,
    metarates::Metarates,
    mptio::Mptio,
    python::Python,
    source::Source,
    tree::{Tool, Tree},
};
use crate::Suite;

macro_rules! kinds {
    ($($kind:ident),*) => {
        /// A suite and its options: what the command line makes, and what a worker is sent.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Kind {
            $($kind($kind)),*
        }

        impl Kind {
            #[cfg(test)]
            pub(crate) const NAMES: &[&str] = &[$(stringify!($kind)),*];

            /// The options of the suite of this name, as the command line has them.
            pub(crate) fn command(suite: &str) -> Option<Command> {
                $(if stringify!($kind).eq_ignore_ascii_case(suite) {
                    return Some($kind::augment_args(Command::new(stringify!($kind))));
                })*
                None
            }

            pub fn suite(&self) -> &dyn Suite {
                match self {
                    $(Self::$kind(suite) => suite),*
                }
            }

            pub fn suite_mut(&mut self) -> &mut dyn Suite {
                match self {
                    $(Self::$kind(suite) => suite),*
                }
            }
        }

        $(impl From<$kind> for Kind {
            fn from(suite: $kind) -> Self {
                Self::$kind(suite)
            }
        })*
    };
}

kinds!(Metarates, Tree, Io, Mdtest, Ior, Metabench, Mptio, Btio, Source, Python, Dataset);
