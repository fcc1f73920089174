//! What `cofs dump` makes and `cofs load` takes, and what they refuse.

mod common;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use common::{cofs, format, path_str, refused, run, scratch};

#[test]
fn a_dump_whose_reader_goes_away_does_not_pass_for_whole() {
    let root = scratch();
    let store = format(&root);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = cofs(&["dump", &store]).stdout(writer).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(
        said,
        "cofs dump: standard output: its reader has gone, and what it has read is no whole dump; \
         have all of it read, or write to a file (-o FILE)\n"
    );
    let whole = cofs(&["dump", &store]).output().unwrap().stdout;
    let (file, new) = (path_str(&root, "file"), path_str(&root, "new"));
    let last_line = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for cut in [last_line, last_line + 5, whole.len() / 2] {
        fs::write(&file, &whole[..cut]).unwrap();
        refused(root.path(), &["load", &new, &file], 1, &["a whole file that cofs dump has written"]);
    }
}

#[test]
fn a_dump_that_is_none_is_not_loaded() {
    let root = scratch();
    let store = format(&root);
    let file = path_str(&root, "file");
    refused(root.path(), &["load", &path_str(&root, "new"), "/nonexistent"], 1, &["/nonexistent"]);
    for rubbish in [&b""[..], b"\0\0\0\0", b"{\"cofs_dump\": 99}\n", b"not a dump at all\n"] {
        fs::write(&file, rubbish).unwrap();
        let words = ["cofs load", "a whole file that cofs dump has written"];
        refused(root.path(), &["load", &path_str(&root, "new"), &file], 1, &words);
    }
    refused(
        root.path(),
        &["load", &path_str(&root, "new"), &store],
        1,
        &[&store, "is a directory", "name a file"],
    );
    refused(root.path(), &["load", &store, &file], 1, &["already a volume"]);
}

#[test]
fn a_dump_replaces_files_and_nothing_else() {
    let root = scratch();
    let store = format(&root);
    let [file, link, fifo, bystander] =
        ["file", "link", "fifo", "file.new"].map(|name| path_str(&root, name));
    fs::write(&file, "older").unwrap();
    fs::write(&bystander, "somebody's").unwrap();
    symlink(&file, &link).unwrap();
    assert!(cofs(&["dump", &store, "-o", &link]).status().unwrap().success());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "the link has gone");
    let dump = fs::read(&file).unwrap();
    assert!(dump.len() > 100);
    assert_eq!(fs::read(&bystander).unwrap(), b"somebody's");

    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    assert!(cofs(&["dump", &store, "-o", &fifo]).status().unwrap().success());
    use std::os::unix::fs::FileTypeExt;
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo(), "a file has taken its place");
    assert_eq!(reader.join().unwrap().len(), dump.len());
    let directory = root.path().to_str().unwrap();
    refused(Path::new(&store), &["dump", &store, "-o", directory], 1, &[directory, "is a directory"]);
    refused(Path::new(&store), &["dump", &store, "-o", "/nonexistent/x"], 1, &["/nonexistent/x", "spelling"]);
    refused(
        Path::new(&store),
        &["dump", &store, "-o", "/dev/full"],
        1,
        &["/dev/full", "no space", "make room"],
    );
    assert!(!fs::metadata("/dev/full").unwrap().is_file());
}

/// Runs a line of the shell in which `$0` is the program, `$1` a store.
fn in_a_shell(line: &str, store: &str, directory: &Path) -> std::process::Output {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", line, env!("CARGO_BIN_EXE_cofs"), store]).current_dir(directory);
    shell.output().unwrap()
}

#[test]
fn a_dump_that_nobody_would_have_is_refused() {
    let root = scratch();
    let store = format(&root);
    let output = in_a_shell("\"$0\" dump \"$1\" >&-", &store, root.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("standard output is closed") && said.contains("-o FILE"), "{said}");
    for thrown_away in ["\"$0\" dump \"$1\" >/dev/null", "\"$0\" dump \"$1\" -o /dev/null"] {
        assert!(in_a_shell(thrown_away, &store, root.path()).status.success(), "{thrown_away}");
    }
}

#[test]
fn a_dump_goes_to_standard_output_where_that_is_named() {
    let root = scratch();
    let store = format(&root);
    let dump = run(&["dump", &store]);
    assert!(dump.len() > 100);
    for name in ["-", "/dev/stdout"] {
        let output = cofs(&["dump", &store, "-o", name]).current_dir(root.path()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), dump, "{name}: {output:?}");
    }
    assert!(!root.path().join("-").exists());
}

#[test]
fn a_dump_is_made_where_a_link_leads() {
    let root = scratch();
    let store = format(&root);
    let [link, far, one, other, lost] =
        ["link", "far", "one", "other", "lost"].map(|name| path_str(&root, name));
    let directory = path_str(&root, "directory");
    fs::create_dir(&directory).unwrap();
    symlink("directory/file", &far).unwrap();
    symlink("far", &link).unwrap();
    run(&["dump", &store, "-o", &link]);
    assert!(fs::symlink_metadata(format!("{directory}/file")).unwrap().len() > 100);
    symlink(&one, &other).unwrap();
    symlink(&other, &one).unwrap();
    refused(root.path(), &["dump", &store, "-o", &one], 1, &[&one, "symbolic link"]);
    symlink("missing/file", &lost).unwrap();
    refused(root.path(), &["dump", &store, "-o", &lost], 1, &[&lost, "no such file"]);
    let no_directory = path_str(&root, "none/");
    refused(root.path(), &["dump", &store, "-o", &no_directory], 1, &[&no_directory, "a directory's name"]);
    for link in [link, far, one, other, lost] {
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "{link} has gone");
    }
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "something was left");
}

#[test]
fn a_dump_is_for_its_owner_and_keeps_whom_a_file_belongs_to() {
    use std::os::unix::fs::{MetadataExt, chown};
    let root = scratch();
    let store = format(&root);
    let file = path_str(&root, "file");
    let is_root = rustix::process::geteuid().is_root();
    let attributes = || fs::metadata(&file).map(|at| (at.mode() & 0o7777, at.uid(), at.gid())).unwrap();
    run(&["dump", &store, "-o", &file]);
    assert_eq!(attributes().0, 0o600);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    if is_root {
        chown(&file, Some(12), Some(34)).unwrap();
    }
    let before = attributes();
    run(&["dump", &store, "-o", &file]);
    assert_eq!(attributes(), before);
}

#[test]
fn a_dump_in_a_directory_beyond_the_longest_path_is_told_as_made() {
    let root = scratch();
    let store = format(&root);
    let name = "d".repeat(250);
    let line = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do mkdir {name} && cd {name} || exit 9; done; \
         \"$0\" dump \"$1\" -o x && test -s x"
    );
    // Others go no deeper.
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", &line, env!("CARGO_BIN_EXE_cofs"), &store]).current_dir(root.path());
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_dump_does_not_replace_files_of_its_own_volume() {
    let root = scratch();
    let [store, meta, pool, link] = ["store", "meta", "pool", "link"].map(|name| path_str(&root, name));
    run(&["format", &store, "--meta", &meta, "--pool", &format!("default={pool}")]);
    symlink(&store, &link).unwrap();
    let current = path_str(&root, "current");
    symlink(format!("{meta}/CURRENT"), &current).unwrap();
    for (file, what) in [
        (format!("{store}/cofs.toml"), "the store"),
        (format!("{store}/new"), "the store"),
        (format!("{link}/new"), "the store"),
        (format!("{meta}/CURRENT"), "the metadata"),
        (current, "the metadata"),
        (format!("{pool}/objects/new"), "a pool"),
    ] {
        let words = [&format!("{file} lies inside {what}"), "; name a file outside"];
        refused(root.path(), &["dump", &store, "-o", &file], 1, &words);
    }
    let mut inside = cofs(&["dump", &store, "-o", "new"]);
    assert!(!inside.current_dir(&store).status().unwrap().success(), "a path may be relative");
    for beside in ["new", "store-2", "store/../new"] {
        run(&["dump", &store, "-o", &path_str(&root, beside)]);
    }
}
