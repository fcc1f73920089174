//! `cofs gc`: deletes what is on the reclaim list.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    failure::Done,
    mount::live::{self, Place, place},
    output::{self, Format},
    progress::Progress,
    volume::{lock::Purpose, open::Found, tool::Tool},
};

/// Delete the objects of removed files now.
///
/// A mounted volume does so by itself, in the background. Objects that nothing knows of are found by fsck.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A place in a mounted volume, or a volume's store.
    #[arg(value_name = "STORE|MOUNT")]
    pub path: PathBuf,
}

pub fn run(args: &Args, form: Format, progress: Progress) -> Done {
    let sign = progress.stage("removing objects");
    let removed = match place(&args.path)? {
        Place::Live(mount) => {
            let before = removed(&live::status(&mount)?);
            live::collect(&mount)?;
            removed(&live::status(&mount)?).saturating_sub(before)
        }
        Place::Store(found) => unmounted(found)?,
    };
    drop(sign);
    Ok(output::document(form, &json!({ "objects_removed": removed }))?)
}

fn unmounted(found: Found) -> Done<u64> {
    let locked = found.lock(Purpose::Change)?;
    let tool = Tool::open(&locked)?;
    let removed = tool.collect().and_then(|()| tool.status()).map(|status| removed(&status));
    let closed = tool.close();
    let store = locked.store.display();
    removed
        .and_then(|removed| closed.map(|()| removed))
        .map_err(|failure| failure.next(format!("cofs status {store} tells how its pools are")))
}

fn removed(status: &Value) -> u64 {
    status.get("objects_removed").and_then(Value::as_u64).unwrap_or_default()
}
