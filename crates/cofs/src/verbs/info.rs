//! `cofs info`: an inode and where its bytes are.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    failure::{Done, Failure},
    mount::live,
    output::{self, Format},
};

/// Show what an inode is and where its bytes are: layout, pool, object, path below.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Files or directories in a mounted volume. Symlinks are not followed.
    #[arg(required = true)]
    pub path: Vec<PathBuf>,
}

pub fn run(args: &Args, form: Format) -> Done {
    let mut all = Vec::new();
    for path in &args.path {
        if live::containing(path)?.is_none() {
            return Err(Failure::new(format!("{}: no cofs volume is mounted there", path.display()))
                .next("mount the volume first, and name a path in it"));
        }
        let mut info = live::info(path)?;
        info["name"] = json!(path.to_string_lossy());
        all.push(info);
    }
    match (form, all.as_mut_slice()) {
        // One path needs no name before each row.
        (Format::Table, [only]) => output::document(form, only)?,
        _ => output::document(form, &Value::Array(all))?,
    }
    Ok(())
}
