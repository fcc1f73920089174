//! The words behind `-o`: those of mount(8) and fstab(5), and cofs's own.
//!
//! A word that is not known is an error that names it: silently ignoring `noexecc` would be worse.

use std::path::Path;

use crate::failure::{Done, Failure};

/// How the kernel's requests reach the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Transport {
    /// io_uring where the kernel has it, else /dev/fuse.
    #[default]
    Auto,
    /// FUSE over io_uring (module parameter fuse.enable_uring); where it cannot be had, /dev/fuse and a warning.
    Uring,
    /// /dev/fuse.
    Dev,
}

/// What idle CPUs do while requests come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum IdleCpus {
    /// They poll in a virtual machine whose kernel lets them, where we may have it so.
    #[default]
    Auto,
    /// They poll; where that cannot be had, they do as ever, and there is a warning.
    Poll,
    /// As ever.
    Halt,
}

/// When reading a file changes its access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atime {
    Never,
    /// Once after each change, and once a day.
    #[default]
    Relative,
    Always,
}

/// Everything `-o` can say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MountOptions {
    pub read_only: bool,
    pub allow_other: bool,
    /// The kernel checks permissions even where they could be left to us.
    pub default_permissions: bool,
    /// `None`: as mount(8) has it, which is: allowed for root, forbidden for users.
    pub suid: Option<bool>,
    pub dev: Option<bool>,
    pub exec: Option<bool>,
    pub atime: Atime,
    pub no_dir_atime: bool,
    pub sync: bool,
    pub dir_sync: bool,
    /// Mount over a directory that has entries.
    pub non_empty: bool,
    pub fsname: Option<String>,
    pub transport: Option<Transport>,
    /// Workers that serve the kernel's requests; `None`: one for each CPU.
    pub threads: Option<u16>,
    /// Whether the kernel may move bytes of large files itself; `None`: where it can.
    pub passthrough: Option<bool>,
    /// Whether files can be found by handles; `None`: they can.
    pub handles: Option<bool>,
    /// Whether workers give way to busy clients on their CPUs; `None`: where they can.
    pub stacking: Option<bool>,
    /// What idle CPUs do while requests come.
    pub idle_cpus: Option<IdleCpus>,
    /// A second process watches over the one that serves, and starts another when it has died, which goes on with the mount where it
    /// can be handed on.
    pub supervise: bool,
    /// The same, but the volume is mounted anew; `None`: it is, but with `auto_unmount`.
    pub restart: Option<bool>,
    /// The mount is taken down when its process dies.
    pub auto_unmount: bool,
}

/// More workers than this help nobody.
const THREADS_MAX: u16 = 1024;

/// The kernel takes no more where the mount takes the place of a dead one (fsconfig(2)).
const FSNAME_BYTES_MAX: usize = 255;

/// Words of fstab(5) that are for mount(8), systemd and the boot, not for a file system.
const NOT_FOR_US: &[&str] =
    &["defaults", "auto", "noauto", "nofail", "_netdev", "user", "nouser", "users", "owner", "group"];

impl MountOptions {
    /// Whether the volume is served again when the process that serves it has died.
    pub fn is_watched(&self) -> bool {
        self.supervise || self.restart.unwrap_or(!self.auto_unmount)
    }

    /// Whether the mount outlives the process that serves it. Requests over io_uring do not: who asks for it by name has the volume
    /// mounted anew after a crash.
    pub fn survives(&self) -> bool {
        self.supervise && self.transport != Some(Transport::Uring)
    }

    /// What the kernel's tables call the source of the mount.
    pub fn source<'a>(&'a self, store: &'a Path) -> &'a Path {
        self.fsname.as_deref().map_or(store, Path::new)
    }

    /// Refuses words that contradict each other.
    pub fn refuse_contradictions(&self) -> Done {
        let (one, other) = match (self.auto_unmount, self.supervise, self.restart) {
            (true, true, _) => {
                ("`auto_unmount` takes the mount away when its process dies", "`supervise` keeps it")
            }
            (true, _, Some(true)) => {
                ("`auto_unmount` takes the mount away when its process dies", "`restart` mounts it anew")
            }
            (_, true, Some(false)) => {
                ("`supervise` has the mount served again when its process dies", "`norestart` does not")
            }
            _ => return Ok(()),
        };
        Err(Failure::usage(format!("{one}, {other}")).next("name one of them"))
    }

    /// Adds the comma-separated words of one `-o`. `sloppy` (mount -s): unknown words are passed over.
    pub fn add(&mut self, words: &str, sloppy: bool) -> Done {
        for word in words.split(',').filter(|word| !word.is_empty()) {
            if word == "remount" {
                // Nor may it be passed over: it would be mounted twice.
                return Err(Failure::usage("the options of a mount stay as they are while it is mounted")
                    .next("unmount it, and mount it with others (cofs umount DIR, cofs mount -o …)"));
            }
            match self.add_word(word) {
                Ok(true) => {}
                Ok(false) if sloppy => {}
                Ok(false) => {
                    return Err(Failure::usage(format!("mount option `{word}` is not known"))
                        .next("see cofs mount --help for those that are"));
                }
                Err(why) => {
                    let (key, shown) = (word.split('=').next().unwrap_or_default(), abridged(word));
                    return Err(Failure::usage(format!("mount option `{shown}` is malformed: {key} {why}"))
                        .next("see cofs mount --help"));
                }
            }
        }
        Ok(())
    }

    /// `false`: not a word of ours.
    fn add_word(&mut self, word: &str) -> Result<bool, String> {
        if let Some((key, value)) = word.split_once('=') {
            return self.add_pair(key, value);
        }
        match word {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = true,
            "default_permissions" => self.default_permissions = true,
            "suid" | "nosuid" => self.suid = Some(word == "suid"),
            "dev" | "nodev" => self.dev = Some(word == "dev"),
            "exec" | "noexec" => self.exec = Some(word == "exec"),
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dir_sync = true,
            "nonempty" => self.non_empty = true,
            "nodiratime" | "diratime" => self.no_dir_atime = word == "nodiratime",
            "supervise" | "nosupervise" => self.supervise = word == "supervise",
            "restart" | "norestart" => self.restart = Some(word == "restart"),
            "auto_unmount" => self.auto_unmount = true,
            "noatime" => self.atime = Atime::Never,
            "relatime" => self.atime = Atime::Relative,
            "atime" | "strictatime" => self.atime = Atime::Always,
            "fsname" | "transport" | "threads" | "passthrough" | "handles" | "stacking" | "idle" => {
                return Err("needs a value".to_owned());
            }
            _ => return Ok(word.starts_with("x-") || NOT_FOR_US.contains(&word)),
        }
        Ok(true)
    }

    fn add_pair(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "fsname" if value.is_empty() => return Err("needs a value".to_owned()),
            "fsname" if value.len() > FSNAME_BYTES_MAX => {
                return Err(format!("is of at most {FSNAME_BYTES_MAX} bytes"));
            }
            "fsname" => self.fsname = Some(value.to_owned()),
            "transport" => {
                let parsed = <Transport as clap::ValueEnum>::from_str(value, false);
                self.transport = Some(parsed.map_err(|_| "is auto, uring or dev".to_owned())?);
            }
            "threads" => {
                let threads = value.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
                self.threads = Some(threads.ok_or_else(|| format!("is a number from 1 to {THREADS_MAX}"))?);
            }
            "passthrough" => self.passthrough = Some(on_or_off(value)?),
            "handles" => self.handles = Some(on_or_off(value)?),
            "stacking" => self.stacking = Some(on_or_off(value)?),
            "idle" => {
                let parsed = <IdleCpus as clap::ValueEnum>::from_str(value, false);
                self.idle_cpus = Some(parsed.map_err(|_| "is auto, poll or halt".to_owned())?);
            }
            _ => return Ok(key.starts_with("x-") || ["user", "comment"].contains(&key)),
        }
        Ok(true)
    }
}

/// As much of a word as fits into a line.
fn abridged(word: &str) -> String {
    const SHOWN_MAX: usize = 60;
    match word.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", word.get(..end).unwrap_or_default()),
        None => word.to_owned(),
    }
}

fn on_or_off(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("is on or off".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Done<MountOptions> {
        let mut options = MountOptions::default();
        options.add(words, false).map(|()| options)
    }

    #[test]
    fn known_words_are_understood() {
        let options = parse(
            "defaults,ro,allow_other,default_permissions,nosuid,noatime,transport=dev,threads=3,passthrough=off,handles=off,stacking=off,idle=poll,supervise,auto_unmount,x-a.b=c,",
        );
        let expected = MountOptions {
            read_only: true,
            allow_other: true,
            default_permissions: true,
            suid: Some(false),
            atime: Atime::Never,
            transport: Some(Transport::Dev),
            threads: Some(3),
            passthrough: Some(false),
            handles: Some(false),
            stacking: Some(false),
            idle_cpus: Some(IdleCpus::Poll),
            supervise: true,
            auto_unmount: true,
            ..MountOptions::default()
        };
        assert_eq!(options.unwrap(), expected);
    }

    #[test]
    fn who_wants_other_options_is_told_what_to_do() {
        for sloppy in [false, true] {
            let refused = MountOptions::default().add("rw,remount", sloppy).unwrap_err();
            assert!(refused.to_string().contains("unmount it"), "{refused}");
        }
    }

    #[test]
    fn the_last_of_two_words_wins() {
        assert!(!parse("ro,rw").unwrap().read_only);
    }

    #[test]
    fn unknown_and_malformed_words_are_named() {
        for word in [
            "noexecc",
            "ro=1",
            "threads=0",
            "threads=",
            "threads=x",
            "threads=99999",
            "transport=tcp",
            "passthrough",
            "passthrough=yes",
            "handles=none",
            "stacking=maybe",
            "idle=mwait",
            "idle",
            "fsname",
            "fsname=",
            "supervise=on",
            "=",
            "size=1G",
        ] {
            let said = parse(word).unwrap_err().to_string();
            assert!(said.contains(&format!("`{word}`")), "{said}");
        }
    }

    #[test]
    fn a_name_that_the_kernel_does_not_take_is_malformed() {
        let name = |length: usize| format!("fsname={}", "é".repeat(length / 2));
        assert!(parse(&name(254)).is_ok());
        let said = parse(&name(256)).unwrap_err().to_string();
        assert!(said.contains("at most 255 bytes") && said.len() < 256, "{said}");
    }

    #[test]
    fn a_sloppy_mount_passes_over_unknown_words_but_not_over_malformed_ones() {
        let mut options = MountOptions::default();
        options.add("size=1G,ro", true).unwrap();
        assert!(options.read_only);
        assert!(options.add("threads=x", true).is_err());
    }
}
