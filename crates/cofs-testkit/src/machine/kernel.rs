//! The kernels that a machine can be booted with.

use std::path::{Path, PathBuf};

/// A kernel of user-mode Linux: the program, and the directory that has its modules, in one of its release's name.
pub struct Kernel {
    program: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// This machine's own (Debian's package `user-mode-linux`).
    pub fn own() -> Self {
        Self { program: "linux.uml".into(), modules: "/usr/lib/uml/modules".into() }
    }

    /// One that lies in a directory of its own, as `tests/kernels.sh` puts it there.
    pub fn unpacked(dir: &Path) -> Self {
        Self { program: dir.join("boot"), modules: dir.join("usr/lib/uml/modules") }
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// A script in which `@MODULES@` stands for their directory.
    pub(super) fn with_modules(&self, script: &str) -> String {
        script.replace("@MODULES@", self.modules.to_str().unwrap())
    }
}

/// Linux `(major, minor)`.
pub type Release = (u32, u32);

/// The kernel that runs here.
pub fn running() -> Release {
    let name = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = name.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}
