//! `cofs status`: space, files, pools, engine, caches and sessions of a volume.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{
    failure::{Done, Failure},
    mount::{
        live::{self, Place, place},
        mountinfo,
    },
    output::{self, Format},
    volume::{lock::Purpose, open::Found, sessions, tool::Tool},
};

/// Show the state of a volume: space, files, pools, engine, caches, sessions, mount.
///
/// A volume that is not mounted is opened for the moment, and nothing in it is changed. Without a path: all that are mounted.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A place in a mounted volume, or a volume's store.
    #[arg(value_name = "PATH|STORE")]
    pub path: Option<PathBuf>,
}

pub fn run(args: &Args, form: Format) -> Done {
    let (status, refused) = match &args.path {
        Some(path) => (status(path)?, None),
        None => all()?,
    };
    output::document(form, &status)?;
    refused.map_or(Ok(()), Err)
}

fn status(path: &Path) -> Done<Value> {
    match place(path)? {
        Place::Live(mount) => live::status(&mount),
        Place::Store(found) => unmounted(found),
    }
}

/// And the last of those that could not tell theirs; the others are said.
fn all() -> Done<(Value, Option<Failure>)> {
    let mut all = Vec::new();
    let mut refused = Vec::new();
    for mount in mountinfo::mounts()? {
        let whole = live::whole(&mount);
        // A part that was bound elsewhere.
        if whole.as_ref().is_ok_and(|whole| *whole != mount) {
            continue;
        }
        match whole.and_then(|mount| live::status(&mount)) {
            Ok(mut status) => {
                // Names the rows of the table.
                status["name"] = json!(mount.point.to_string_lossy());
                all.push(status);
            }
            Err(failure) => refused.push(failure),
        }
    }
    if all.is_empty() {
        return Err(refused.pop().unwrap_or_else(|| {
            Failure::new("no volume is mounted").next("name a store: cofs status STORE")
        }));
    }
    let last = refused.pop();
    refused.iter().for_each(output::say);
    Ok((Value::Array(all), last))
}

fn unmounted(found: Found) -> Done<Value> {
    let locked = found.lock(Purpose::Look)?;
    let tool = Tool::open(&locked)?;
    let status = tool.status();
    tool.close()?;
    let mut status = status?;
    live::plain_reasons(&mut status);
    if let Some(fields) = status.as_object_mut() {
        fields.remove("volume");
        fields.remove("uptime_secs");
        fields.remove("read_only");
        fields.insert("uuid".into(), json!(locked.config.uuid));
        fields.insert("store".into(), json!(locked.store.to_string_lossy()));
        fields.insert("mounted".into(), json!(false));
        fields.insert("mount".into(), Value::Null);
        // Nobody can change it while we look; others who look on other machines leave no trace.
        fields.insert("sessions".into(), Value::Array(sessions::readers(&locked.store, &[])));
        fields.insert("sessions_complete".into(), json!(false));
    }
    Ok(status)
}
