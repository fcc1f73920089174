//! The kernel's server exports a mounted volume: who gets in there, with the checks of permissions left to cofs and to the kernel (the manual, *Permissions*).

use std::process::Output;

use cofs_testkit::machine::{sh, try_sh};

use crate::cases::{MOUNT, NFS};

const STORE: &str = "/mnt/disk/exported";

/// What a client does by NFS, as user 1000, and whether it may.
const ACTS: [(&str, bool); 10] = [
    ("cat readable", true),
    ("ls open", true),
    ("echo text >open/new && test $(stat -c %u open/new) = 1000 && rm open/new", true),
    ("mkdir open/dir && rmdir open/dir", true),
    ("echo more >>writable", true),
    ("cat secret", false),
    ("echo text >readable", false),
    ("rm readable", false),
    ("touch new", false),
    ("chmod 777 readable", false),
];

/// A mount that root alone may enter refuses who acts for another user, and one with the kernel's checks holds him to the modes.
pub fn case() {
    let cofs = std::env::var("COFS_TEST_BINARY").unwrap();
    sh(&format!("{cofs} format {STORE}"));
    refused_where_cofs_checks(&cofs);
    for options in ["default_permissions", "allow_other"] {
        held_to_the_modes(&cofs, options);
    }
    sh(&format!("{cofs} fsck {STORE}; sh /mnt/export"));
}

fn refused_where_cofs_checks(cofs: &str) {
    exported(cofs, "norestart", || {
        for (act, _) in ACTS {
            is_refused(act);
        }
        // Root is root's own client.
        sh(&format!("cd {NFS}; cat readable secret; echo text >new; rm new; ls open"));
    });
}

fn held_to_the_modes(cofs: &str, options: &str) {
    exported(cofs, options, || {
        for (act, may) in ACTS {
            if may {
                let done = as_user(act);
                assert!(done.status.success(), "{options}: {act}: {done:?}");
            } else {
                is_refused(act);
            }
        }
    });
}

#[track_caller]
fn is_refused(act: &str) {
    let done = as_user(act);
    let said = String::from_utf8_lossy(&done.stderr);
    let refused = ["Permission denied", "Operation not permitted"].iter().any(|words| said.contains(words));
    assert!(!done.status.success() && refused, "{act}: {done:?}");
}

fn as_user(act: &str) -> Output {
    try_sh(&format!("cd {NFS}; setpriv --reuid=1000 --regid=1000 --clear-groups sh -c '{act}'"))
}

/// The volume is mounted with these options, exported, and mounted by NFS for as long as that takes.
fn exported(cofs: &str, options: &str, work: impl FnOnce()) {
    sh(&format!(
        "{cofs} mount -d {STORE} {MOUNT} -o {options}
        cd {MOUNT}; mkdir -p open; chmod 1777 open; echo text >readable; echo text >writable; chmod 666 writable; echo text >secret; chmod 600 secret; cd /
        sh /mnt/withdraw; sh /mnt/export {MOUNT}
        mount -i -t nfs4 -o vers=4.1,addr=127.0.0.1,clientaddr=127.0.0.1 127.0.0.1:/ {NFS}"
    ));
    work();
    sh(&format!("umount {NFS}; sh /mnt/withdraw; {cofs} umount {MOUNT}"));
}
