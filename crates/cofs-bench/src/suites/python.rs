//! A Python environment, imported: the many small files, and the many names that are not there, that a program touches
//! before its first line runs.
//!
//! The environment is made here, because nothing may be fetched: distributions in several directories of the search path, each
//! a package whose modules import each other's.

use std::{
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::programs;
use crate::{Need, Observer, Phase, Seat, Suite, Unit};

/// Make a Python environment, import all of it, first without byte code, then with it, cold and warm.
#[derive(clap::Args, Clone, Debug, Serialize, Deserialize)]
pub struct Python {
    /// Packages.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub packages: u64,

    /// Modules of each package.
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub modules: u64,

    /// Directories that the packages lie in; a name is looked for in one after the other.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub paths: u64,

    /// The interpreter.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: String,
}

const MAKE: &str = "make";
const FIRST: &str = "import first";
const COLD: &str = "import cold";
const WARM: &str = "import";
const REMOVE: &str = "remove";
const TOP: &str = "environment";
/// Functions of a module.
const FUNCTIONS: u64 = 30;
/// What a module takes at most, with its byte code.
const MODULE_BYTES: u64 = 24 << 10;

impl Python {
    fn path(&self, package: u64) -> PathBuf {
        Path::new(TOP).join(format!("path{}", package % self.paths))
    }

    fn module(&self, package: u64, module: u64) -> String {
        let mut text = String::from("import os, sys, json\n");
        if let Some(other) = package.checked_sub(1) {
            let _ = writeln!(text, "from package{other} import module0 as other");
        }
        for function in 0..FUNCTIONS {
            let _ = write!(
                text,
                "\n\ndef function{function}(first, second={function}, *rest, **named):\n    \
                 \"\"\"What module {module} of package {package} does with two numbers, and {function} more.\"\"\"\n    \
                 total = first * second + len(rest)\n    \
                 for name, value in sorted(named.items()):\n        \
                 total += len(name) if value is None else value\n    \
                 return total % {}\n",
                function + 2
            );
        }
        text
    }

    fn make(&self, root: &Path) -> io::Result<()> {
        fs::create_dir(root.join(TOP))?;
        for path in 0..self.paths {
            fs::create_dir(root.join(self.path(path)))?;
        }
        for package in 0..self.packages {
            let directory = root.join(self.path(package)).join(format!("package{package}"));
            fs::create_dir(&directory)?;
            let mut all = String::new();
            for module in 0..self.modules {
                let _ = writeln!(all, "from . import module{module}");
                fs::write(directory.join(format!("module{module}.py")), self.module(package, module))?;
            }
            fs::write(directory.join("__init__.py"), all)?;
        }
        fs::write(root.join(TOP).join("main.py"), self.main())
    }

    /// Imports all, and says how many modules of the environment there are then.
    fn main(&self) -> String {
        let mut text = String::from("import os, sys\ntop = os.path.dirname(os.path.abspath(__file__))\n");
        let _ = writeln!(text, "sys.path[1:1] = [f'{{top}}/path{{n}}' for n in range({})]", self.paths);
        (0..self.packages).for_each(|package| writeln!(text, "import package{package}").unwrap_or_default());
        text + "print(sum(name.startswith('package') for name in sys.modules))\n"
    }

    fn import(&self, root: &Path) -> io::Result<()> {
        let main = format!("{TOP}/main.py");
        // Nothing of the person's own environment: what is imported is what was made here.
        programs::says(root, &[&self.python, "-E", "-s", &main], self.packages * (self.modules + 1))
    }
}

impl Suite for Python {
    fn name(&self) -> &'static str {
        "python"
    }

    fn phases(&self) -> Vec<Phase> {
        let phase = |name| Phase::new(name, Unit::Seconds);
        vec![phase(MAKE), phase(FIRST), phase(COLD).cold(), phase(WARM), phase(REMOVE)]
    }

    fn check(&self, _processes: usize) -> Result<(), String> {
        programs::needed(self.name(), &[&self.python, "rm"])
    }

    fn own_time(&self) -> Option<&'static str> {
        Some("--packages and --modules do")
    }

    fn need(&self, _processes: usize) -> Need {
        let modules = self.packages * (self.modules + 1);
        // A module and its byte code; directories of packages, and of byte code.
        Need { bytes: modules * MODULE_BYTES, inodes: modules * 2 + self.packages * 2 + self.paths + 2 }
    }

    fn processes_max(&self) -> usize {
        1
    }

    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        observer.operation(&mut || match phase {
            MAKE => self.make(&seat.root),
            REMOVE => programs::run(&seat.root, &["rm", "-rf", TOP]),
            _ => self.import(&seat.root),
        })
    }
}
