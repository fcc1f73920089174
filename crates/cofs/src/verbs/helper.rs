//! cofs as a mount helper: what mount(8) and mount.fuse3(8) call for `mount -t fuse.cofs STORE DIR`, and umount(8) for its end.
//!
//! - as `mount.fuse.cofs` or `mount.cofs`: `STORE DIR [-sfnv] [-N NS] [-o OPTIONS] [-t TYPE]` (mount(8), "EXTERNAL HELPERS");
//! - as `cofs`, by mount.fuse3: `STORE DIR [-o OPTIONS]`, recognised by a first argument that is a path;
//! - as `umount.fuse.cofs` or `umount.cofs`: `DIR [-flnrv] [-N NS] [-t TYPE]` (umount(8), "EXTERNAL HELPERS").
//!
//! The first two become `cofs mount -d STORE DIR -o OPTIONS`, the last `cofs umount DIR`, which, unlike umount(2), returns when the
//! volume is closed: what umount(8) is followed by, such as the unmounting of the file system below, finds nobody at it.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::Path};

use crate::failure::{Done, Failure};

/// The command line meant, if this is a mount helper's.
pub fn translate(arguments: &[OsString]) -> Done<Option<Vec<OsString>>> {
    let Some((program, rest)) = arguments.split_first() else { return Ok(None) };
    let name = Path::new(program).file_name().unwrap_or_default();
    if ["umount.fuse.cofs", "umount.cofs"].iter().any(|helper| name == *helper) {
        return umount_line(rest).map(Some);
    }
    let is_helper = ["mount.fuse.cofs", "mount.cofs"].iter().any(|helper| name == *helper);
    let is_path =
        |argument: &OsString| argument.as_bytes().contains(&b'/') && !argument.as_bytes().starts_with(b"-");
    if is_helper {
        return mount_line(rest).map(Some);
    }
    // What is no helper's line is somebody's who has left out the verb.
    Ok(if rest.first().is_some_and(is_path) { mount_line(rest).ok() } else { None })
}

fn mount_line(arguments: &[OsString]) -> Done<Vec<OsString>> {
    let usage = || Failure::usage("mount.fuse.cofs: usage: mount.fuse.cofs STORE DIR [-sfnv] [-o OPTIONS]");
    let mut line: Vec<OsString> = ["cofs", "mount", "-d"].map(OsString::from).into();
    let mut places = 0;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-o") => line.extend(["-o".into(), rest.next().ok_or_else(usage)?.clone()]),
            // The namespace and the type are mount(8)'s business.
            Some("-N" | "-t") => drop(rest.next().ok_or_else(usage)?),
            Some("-r") => line.extend(["-o".into(), "ro".into()]),
            Some("-w") => line.extend(["-o".into(), "rw".into()]),
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                for flag in flags.chars().skip(1) {
                    match flag {
                        's' => line.push("--sloppy".into()),
                        'f' => line.push("--fake".into()),
                        'n' | 'v' => {}
                        _ => return Err(usage()),
                    }
                }
            }
            _ => {
                places += 1;
                line.push(argument.clone());
            }
        }
    }
    if places == 2 { Ok(line) } else { Err(usage()) }
}

fn umount_line(arguments: &[OsString]) -> Done<Vec<OsString>> {
    let usage = || Failure::usage("umount.fuse.cofs: usage: umount.fuse.cofs DIR [-flnrv]");
    let mut line: Vec<OsString> = ["cofs", "umount"].map(OsString::from).into();
    let mut places = 0;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            // The namespace and the type are umount(8)'s business.
            Some("-N" | "-t") => drop(rest.next().ok_or_else(usage)?),
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                for flag in flags.chars().skip(1) {
                    match flag {
                        'l' => line.push("--lazy".into()),
                        'f' => line.push("--force".into()),
                        'r' => line.push("--or-read-only".into()),
                        'n' | 'v' => {}
                        _ => return Err(usage()),
                    }
                }
            }
            _ => {
                places += 1;
                line.push(argument.clone());
            }
        }
    }
    if places == 1 { Ok(line) } else { Err(usage()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Option<String> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let line = translate(&arguments).expect("a sound line")?;
        Some(line.join(std::ffi::OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn a_helpers_line_becomes_a_mount() {
        for (line, expect) in [
            ("/sbin/mount.fuse.cofs /s /m -o rw,dev", "cofs mount -d /s /m -o rw,dev"),
            ("mount.cofs s m -sv -N 3 -t fuse.cofs", "cofs mount -d s m --sloppy"),
            ("mount.cofs s m -f", "cofs mount -d s m --fake"),
            ("cofs /s m -o ro", "cofs mount -d /s m -o ro"),
            ("/sbin/umount.fuse.cofs /m -n -t fuse.cofs", "cofs umount /m"),
            ("umount.cofs m -vl -N 3", "cofs umount m --lazy"),
            ("umount.fuse.cofs -f /m", "cofs umount --force /m"),
            ("umount.fuse.cofs /m -nr", "cofs umount /m --or-read-only"),
        ] {
            assert_eq!(translated(line).as_deref(), Some(expect));
        }
    }

    #[test]
    fn ordinary_lines_are_left_alone() {
        for line in [
            "cofs mount /s /m",
            "cofs --help",
            "cofs",
            "cofs --log=a/b status",
            "cofs /s",
            "cofs ./s m --create",
        ] {
            assert_eq!(translated(line), None);
        }
    }

    #[test]
    fn a_malformed_helpers_line_is_refused() {
        for line in [
            "mount.cofs",
            "mount.cofs /s",
            "mount.cofs /s /m /x",
            "mount.cofs /s /m -o",
            "mount.cofs /s /m -q",
            "umount.cofs",
            "umount.cofs /m /n",
            "umount.cofs /m -t",
            "umount.cofs /m -q",
        ] {
            let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert!(translate(&arguments).is_err(), "{line}");
        }
    }
}
