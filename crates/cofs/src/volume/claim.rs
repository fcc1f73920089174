//! Whose a directory is while something is made of it.
//!
//! `format` and `load` put a claim into each directory before anything else. Of two who come for one directory one is refused,
//! having touched nothing. What was interrupted is cleared away by its claims: nothing is removed from a directory that does not say
//! that it was being made for this very volume.
//!
//! A claim is a symbolic link, `cofs-claim -> WORK:VOLUME:wanted|held:made|found:STORE`, so that it is there with all it says or not at all;
//! where the file system has none it is a file. A directory is wanted until it is seen, with the claim in it, that there is nothing else: what
//! stands beside such a claim is another's. The claim goes when the work is done. One that a crash left in a whole volume says
//! nothing: only an unfinished `load` says so by it alone, an unfinished `format` by its plan, too.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{DirBuilderExt, symlink},
    },
    path::{Path, PathBuf},
};

use cofs_engine::read_small;
use cofs_types::{CLAIM, CLAIM_NEW, is_as_good_as_empty_with, limits};
use rustix::io::Errno;
use uuid::Uuid;

use super::config::sync_parent;
use crate::{
    failure::{Done, Failure},
    output::{printable, shell_word},
};

/// What is being done with a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    Format,
    Load,
}

impl Work {
    const fn word(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Load => "load",
        }
    }
}

/// The claim that stands in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    directory: PathBuf,
    pub work: Work,
    pub volume: Uuid,
    /// Whether all that is in the directory was put there for it.
    held: bool,
    /// Whether the directory was made for it.
    made: bool,
    /// Of the volume that is made, for people.
    pub store: PathBuf,
}

impl Claim {
    /// Claims a directory, which is made if it is not there, and must be as good as empty but for what is `known` of it.
    pub fn stake(directory: &Path, work: Work, volume: Uuid, store: &Path, known: &[&str]) -> Done<Self> {
        let made = make_directory(directory)?;
        let mut claim = Self {
            directory: directory.to_owned(),
            work,
            volume,
            held: false,
            made,
            store: store.to_owned(),
        };
        if let Err(error) = put(&directory.join(CLAIM), &claim.text()) {
            if made {
                let _ = fs::remove_dir(directory);
            }
            return Err(match error.kind() {
                io::ErrorKind::AlreadyExists => claimed(directory),
                _ => Failure::io("cannot write into", directory, &error),
            });
        }
        match refuse_used(directory, known).and_then(|()| claim.hold()) {
            Ok(()) => Ok(claim),
            Err(failure) => {
                let _ = claim.withdraw();
                Err(failure)
            }
        }
    }

    /// Whether what is in the directory was put there by this work, and may be taken back.
    pub fn is_held_for(&self, work: Work) -> bool {
        self.held && self.work == work
    }

    fn hold(&mut self) -> Done {
        self.held = true;
        let new = self.directory.join(CLAIM_NEW);
        let _ = fs::remove_file(&new);
        put(&new, &self.text())
            .and_then(|()| fs::rename(&new, self.directory.join(CLAIM)))
            .and_then(|()| sync_parent(&new))
            .map_err(|error| Failure::io("cannot write into", &self.directory, &error))
    }

    /// The claim in a directory, if there is one that can be read.
    pub fn find(directory: &Path) -> Option<Self> {
        let path = directory.join(CLAIM);
        let text = match fs::read_link(&path) {
            Ok(target) => target.into_os_string().into_vec(),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                read_small(&path, limits::CONFIG_BYTES_MAX).ok()?.into_bytes()
            }
            Err(_) => return None,
        };
        let mut parts = text.splitn(5, |byte| *byte == b':');
        let work = match parts.next()? {
            b"format" => Work::Format,
            b"load" => Work::Load,
            _ => return None,
        };
        let volume = Uuid::try_parse_ascii(parts.next()?).ok()?;
        let held = parts.next()? == b"held";
        let made = parts.next()? == b"made";
        let store = PathBuf::from(OsStr::from_bytes(parts.next()?));
        Some(Self { directory: directory.to_owned(), work, volume, held, made, store })
    }

    fn text(&self) -> OsString {
        let Self { work, volume, held, made, store, .. } = self;
        let held = if *held { "held" } else { "wanted" };
        let made = if *made { "made" } else { "found" };
        let mut text = OsString::from(format!("{}:{volume}:{held}:{made}:", work.word()));
        text.push(store);
        text
    }

    /// The work is done, or there is nothing of it.
    pub fn release(&self) -> io::Result<()> {
        let path = self.directory.join(CLAIM);
        let _ = fs::remove_file(self.directory.join(CLAIM_NEW));
        fs::remove_file(&path)?;
        sync_parent(&path)
    }

    /// The work is taken back: so is the directory, if it was made for it and nobody has put anything else there.
    pub fn withdraw(&self) -> io::Result<()> {
        self.release()?;
        if self.made {
            let _ = fs::remove_dir(&self.directory);
        }
        Ok(())
    }
}

fn put(path: &Path, text: &OsStr) -> io::Result<()> {
    match symlink(text, path).map_err(|error| (Errno::from_io_error(&error), error)) {
        // No symbolic links here.
        Err((Some(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP), _)) => {
            let mut file = File::create_new(path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
        }
        Err((_, error)) => return Err(error),
        Ok(()) => {}
    }
    sync_parent(path)
}

/// Refuses a directory in which there is anything: for people to look at before something is changed. Nobody can rely on it who has not
/// [claimed](Claim::stake) the directory.
pub fn refuse_used(directory: &Path, known: &[&str]) -> Done {
    let unreadable = |error: io::Error| Failure::io("cannot read", directory, &error);
    if !known.contains(&CLAIM) && directory.join(CLAIM).symlink_metadata().is_ok() {
        return Err(claimed(directory));
    }
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        if !known.iter().any(|known| name == *known) && !is_as_good_as_empty_with(name.as_bytes()) {
            let found = printable(&name.to_string_lossy());
            return Err(Failure::new(format!("{} is not empty: it holds {found}", directory.display()))
                .next("name a directory that is empty or does not exist"));
        }
    }
    Ok(())
}

fn claimed(directory: &Path) -> Failure {
    let shown = directory.display();
    let Some(Claim { work, store, .. }) = Claim::find(directory) else {
        return Failure::new(format!("{shown} is being made a part of another volume"))
            .next("name another, or empty it if nothing works on it any more");
    };
    let again = match work {
        Work::Format => super::format::again(&store),
        Work::Load => format!("cofs load {} FILE", shell_word(&store)),
    };
    let what = match store == directory {
        true => "a volume".to_owned(),
        false => format!("a part of the volume in {}", store.display()),
    };
    Failure::new(format!("{shown} is being made {what}")).next(format!(
        "name another; where that was interrupted finish it ({again}), or empty the directory if it was given up"
    ))
}

/// Makes one directory, for us alone; `false` if it was there.
pub fn make_directory(path: &Path) -> Done<bool> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(no_directory(path)),
        Err(error) => Err(Failure::io("cannot make the directory", path, &error)),
    }
}

/// Refuses what stands in the place of a directory.
pub fn no_directory(path: &Path) -> Failure {
    match fs::read_link(path) {
        Ok(target) if !path.exists() => Failure::new(format!(
            "{} is a link to {}, which does not exist",
            path.display(),
            target.display()
        ))
        .next("make the directory that it leads to, or remove the link"),
        _ => Failure::new(format!("{} is not a directory", path.display()))
            .next("name a directory that is empty or does not exist"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stake(directory: &Path, volume: u128) -> Done<Claim> {
        Claim::stake(directory, Work::Load, Uuid::from_u128(volume), Path::new("/a: store"), &[CLAIM])
    }

    #[test]
    fn of_two_who_come_for_a_directory_one_gets_it() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("part");
        let claim = stake(&directory, 1).unwrap();
        assert_eq!(Claim::find(&directory), Some(claim.clone()));
        let said = stake(&directory, 2).unwrap_err().to_string();
        assert!(said.contains("the volume in /a: store; ") && said.contains("cofs load"), "{said}");
        assert_eq!(Claim::find(&directory), Some(claim.clone()), "the loser has changed something");
        claim.withdraw().unwrap();
        assert!(!directory.exists());
    }

    #[test]
    fn what_is_used_is_left_as_it_was_found() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("precious"), "").unwrap();
        assert!(stake(root.path(), 1).unwrap_err().to_string().contains("it holds precious"));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        fs::rename(root.path().join("precious"), root.path().join("lost+found")).unwrap();
        stake(root.path(), 1).unwrap().withdraw().unwrap();
        assert!(root.path().exists(), "it was there before");
    }

    #[test]
    fn a_directory_is_held_from_when_it_is_seen_to_be_empty() {
        let root = tempfile::tempdir().unwrap();
        // As a change of the claim that was cut short leaves it.
        fs::write(root.path().join(CLAIM_NEW), "").unwrap();
        let claim = stake(root.path(), 1).unwrap();
        assert!(claim.held && Claim::find(root.path()) == Some(claim.clone()));
        let wanted = Claim { held: false, ..claim.clone() };
        claim.withdraw().unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        put(&root.path().join(CLAIM), &wanted.text()).unwrap();
        assert_eq!(Claim::find(root.path()), Some(wanted));
    }

    #[test]
    fn a_claim_may_be_a_file_and_rubbish_is_nobodys() {
        let root = tempfile::tempdir().unwrap();
        let claim = stake(root.path(), 1).unwrap();
        claim.release().unwrap();
        fs::write(root.path().join(CLAIM), claim.text().as_bytes()).unwrap();
        assert_eq!(Claim::find(root.path()), Some(claim));
        fs::write(root.path().join(CLAIM), "format:").unwrap();
        assert_eq!(Claim::find(root.path()), None);
        assert!(stake(root.path(), 2).unwrap_err().to_string().contains("empty it"));
    }
}
