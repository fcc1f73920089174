//! A source tree, unpacked and compiled, as developers do all day: tar(1), make(1), the C compiler, rm(1).
//!
//! The tree is made here, because nothing may be fetched: modules in directories, each with a header, each including some
//! others' headers, linked to a program which says a number that is known.

use std::{fmt::Write, fs, io, path::Path};

use serde::{Deserialize, Serialize};

use super::programs;
use crate::{Need, Observer, Phase, Seat, Suite, Unit};

/// Unpack a source tree, compile it, find nothing to compile, clean and remove it.
#[derive(clap::Args, Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// Modules of the program: each is a C file and a header.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=MODULES_MAX))]
    pub modules: u64,

    /// Modules in each directory.
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..))]
    pub per_directory: u64,

    /// Compilers at the same time; else one for each CPU.
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

const MODULES_MAX: u64 = 100_000;
/// How many other modules a module knows.
const KNOWS: u64 = 12;
/// Functions of a module.
const FUNCTIONS: u64 = 20;
/// What a module takes at most, unpacked and compiled, with its part of the archive and of the program.
const MODULE_BYTES: u64 = 48 << 10;

const PREPARE: &str = "prepare";
const UNPACK: &str = "unpack";
const COMPILE: &str = "compile";
const NOTHING: &str = "compile nothing";
const CLEAN: &str = "clean";
const REMOVE: &str = "remove";
const ARCHIVE: &str = "source.tar";
const TREE: &str = "source";

impl Source {
    fn directory(&self, module: u64) -> String {
        format!("part{}", module / self.per_directory)
    }

    fn stem(&self, module: u64) -> String {
        format!("{}/m{module}", self.directory(module))
    }

    /// The other modules that this one calls.
    fn known(&self, module: u64) -> impl Iterator<Item = u64> {
        let all = self.modules;
        let step = 7;
        (1..=KNOWS.min(all - 1))
            .map(move |turn| (module + turn * step) % all)
            .filter(move |other| *other != module)
    }

    fn header(&self, module: u64) -> String {
        let mut text = format!("#ifndef M{module}_H\n#define M{module}_H\n");
        let _ = writeln!(text, "struct m{module} {{ long value; long weight[{}]; }};", module % 8 + 1);
        for function in 0..FUNCTIONS {
            let _ = writeln!(text, "long m{module}_{function}(long x, struct m{module} *of);");
        }
        text + "#endif\n"
    }

    fn code(&self, module: u64) -> String {
        let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
        for other in self.known(module).chain([module]) {
            let _ = writeln!(text, "#include \"../{}.h\"", self.stem(other));
        }
        for function in 0..FUNCTIONS {
            let _ = write!(
                text,
                "\nlong m{module}_{function}(long x, struct m{module} *of)\n{{\n\
                 \tlong sum = of ? of->value : {module};\n\
                 \tfor (long i = 0; i < {function} + 3; i++)\n\
                 \t\tsum = sum % 1000003 * 31 + i * x;\n\
                 \tif (sum < 0) {{ fprintf(stderr, \"m{module} %ld\\n\", sum); abort(); }}\n\
                 \treturn sum;\n}}\n"
            );
        }
        let _ = write!(text, "\nlong m{module}(void)\n{{\n\tlong sum = 1;\n");
        for other in self.known(module) {
            let _ = writeln!(text, "\tsum += m{other}_0(1, NULL) > 0;");
        }
        text + "\treturn sum;\n}\n"
    }

    fn main(&self) -> String {
        let mut text = String::from("#include <stdio.h>\n");
        (0..self.modules).for_each(|module| writeln!(text, "long m{module}(void);").unwrap_or_default());
        text.push_str("int main(void)\n{\n\tlong sum = 0;\n");
        (0..self.modules).for_each(|module| writeln!(text, "\tsum += m{module}();").unwrap_or_default());
        text + "\tprintf(\"%ld\\n\", sum);\n\treturn 0;\n}\n"
    }

    /// What the program says: one for each module, and one for each that it calls.
    fn says(&self) -> u64 {
        (0..self.modules).map(|module| 1 + self.known(module).count() as u64).sum()
    }

    /// Dependencies are found by the compiler, as in most makefiles: what is compiled writes which headers it read.
    fn makefile(&self) -> String {
        let objects: String = (0..self.modules).map(|module| format!(" {}.o", self.stem(module))).collect();
        format!(
            "CFLAGS = -O1 -MMD\nOBJECTS = main.o{objects}\n\
             program: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n\
             clean:\n\t@find . -name '*.[od]' -delete\n\t@rm -f program\n\
             -include $(OBJECTS:.o=.d)\n"
        )
    }

    /// The archive, and nothing else.
    fn prepare(&self, root: &Path) -> io::Result<()> {
        let tree = root.join(TREE);
        fs::create_dir(&tree)?;
        for module in 0..self.modules {
            if module.is_multiple_of(self.per_directory) {
                fs::create_dir(tree.join(self.directory(module)))?;
            }
            fs::write(tree.join(format!("{}.h", self.stem(module))), self.header(module))?;
            fs::write(tree.join(format!("{}.c", self.stem(module))), self.code(module))?;
        }
        fs::write(tree.join("main.c"), self.main())?;
        fs::write(tree.join("Makefile"), self.makefile())?;
        programs::run(root, &["tar", "-cf", ARCHIVE, TREE])?;
        fs::remove_dir_all(tree)
    }

    fn compile(&self, root: &Path) -> io::Result<()> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.jobs.map_or(cpus, usize::from).to_string();
        programs::run(&root.join(TREE), &["make", "-s", "-j", &jobs])
    }
}

impl Suite for Source {
    fn name(&self) -> &'static str {
        "source"
    }

    fn phases(&self) -> Vec<Phase> {
        let phase = |name| Phase::new(name, Unit::Seconds);
        let measured = [UNPACK, COMPILE, NOTHING, CLEAN, REMOVE].map(phase);
        [phase(PREPARE).silent()].into_iter().chain(measured).collect()
    }

    fn check(&self, _processes: usize) -> Result<(), String> {
        programs::needed(self.name(), &["tar", "make", "cc", "find", "rm"])
    }

    fn own_time(&self) -> Option<&'static str> {
        Some("--modules does")
    }

    fn need(&self, _processes: usize) -> Need {
        let directories = self.modules.div_ceil(self.per_directory);
        // C file, header, object, dependencies.
        Need { bytes: self.modules * MODULE_BYTES, inodes: self.modules * 4 + directories + 8 }
    }

    fn processes_max(&self) -> usize {
        1
    }

    fn work(&mut self, phase: &str, seat: &Seat, observer: &mut dyn Observer) -> io::Result<()> {
        let root = &seat.root;
        if phase == PREPARE {
            return self.prepare(root);
        }
        observer.operation(&mut || match phase {
            UNPACK => programs::run(root, &["tar", "-xf", ARCHIVE]),
            COMPILE | NOTHING => self.compile(root),
            CLEAN => programs::run(&root.join(TREE), &["make", "-s", "clean"]),
            _ => programs::run(root, &["rm", "-rf", TREE]),
        })?;
        match phase {
            COMPILE => programs::says(&root.join(TREE), &["./program"], self.says()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_knows_others_and_not_itself() {
        for modules in [1, 2, 3, 7, 12, 100] {
            let source = Source { modules, per_directory: 5, jobs: None };
            for module in 0..modules {
                assert!(source.known(module).all(|other| other < modules && other != module));
            }
        }
        assert_eq!(Source { modules: 1, per_directory: 5, jobs: None }.says(), 1);
        assert_eq!(Source { modules: 100, per_directory: 5, jobs: None }.says(), 1300);
    }
}
