//! Bad input of every verb: one line that says what, whom, why and what to do; a non-zero exit; nothing changed.

mod common;

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::Path,
};

use common::{cofs, contents, format, path_str, powerless, refused, run, scratch, unwritable};

/// Wrong usage: one line, and the exit code is 2; who says nothing at all is shown the help.
#[track_caller]
fn misused(arguments: &[&str], words: &[&str]) {
    let code = if arguments.first() == Some(&"fsck") { 16 } else { 2 };
    let output = cofs(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?} said {said}");
    let is_line = said.trim_end().lines().count() == 1;
    let is_short =
        !said.contains("Usage:") && !said.contains("as a value") && said.matches("--help").count() == 1;
    assert!(is_line && is_short || arguments.is_empty(), "{arguments:?} said {said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is missing in: {said}");
    }
}

/// What a line writes, both streams, if it is run at a terminal.
fn at_a_terminal(line: &str) -> String {
    let line = format!("{} {line}", env!("CARGO_BIN_EXE_cofs"));
    let mut script = std::process::Command::new("script");
    // A terminal has a kind, which whoever runs the tests may not have.
    let output = script.args(["-qefc", &line, "/dev/null"]).env("TERM", "xterm").output();
    let output = output.expect("script(1), of Debian's bsdutils");
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn progress_is_shown_to_people_at_a_terminal_and_to_nobody_else() {
    let root = scratch();
    let store = format(&root);
    let dump = path_str(&root, "dump");
    let copy = path_str(&root, "copy");
    for (line, sign) in [
        (format!("fsck {store}"), "looking at objects"),
        (format!("fsck --repair {store}"), "repairing the metadata"),
        (format!("gc {store}"), "removing objects"),
        (format!("dump {store} -o {dump}"), "writing the metadata"),
        (format!("load {copy} {dump}"), "reading the dump"),
    ] {
        assert!(at_a_terminal(&line).contains(sign), "{line}");
        if !line.starts_with("load") {
            for quiet in ["-q", "--output json"] {
                assert!(!at_a_terminal(&format!("{quiet} {line}")).contains(sign), "{quiet} {line}");
            }
        }
    }
    let plain = cofs(&["fsck", &store]).output().unwrap();
    assert!(plain.status.success() && plain.stderr.is_empty(), "{plain:?}");
}

#[test]
fn unknown_and_missing_words_are_wrong_usage() {
    misused(&[], &["Usage"]);
    misused(&["frobnicate"], &["frobnicate"]);
    misused(&["--output", "xml", "umount", "x"], &["xml"]);
    for verb in
        ["format", "mount", "umount", "info", "fsck", "gc", "dump", "load", "config", "man", "completions"]
    {
        misused(&[verb], &["<", &format!("cofs {verb} --help")]);
        misused(&[verb, "--frobnicate"], &["--frobnicate"]);
    }
    misused(&["mount", "x"], &["<DIR>"]);
    misused(&["load", "x"], &["<FILE>"]);
    misused(&["format", "x", "--inline-max", "lots"], &["lots", "64KiB"]);
    misused(&["format", "x", "--inline-max", "1M"], &["at most 64.0 KiB"]);
    misused(&["format", "x", "--pool", "nameless"], &["NAME=DIR"]);
    misused(&["format", "x", "--pool", "a=/x,tier=tape"], &["tape"]);
    misused(&["format", "x", "--pool", "a=/x,tier=flash,tier=disk"], &["twice"]);
    misused(&["/x"], &["'/x'"]);
    misused(&["fsck", "-y", "x"], &["'-y'"]);
    misused(&["mount", "x", "y", "--transport", "tcp"], &["tcp"]);
    misused(&["completions", "cmd.exe"], &["cmd.exe"]);
    misused(&["bench", "metarates", "x", "--rendezvous", ":"], &["HOST:PORT"]);
}

#[test]
fn help_and_version_are_answers_and_not_errors() {
    for line in [&["--help"][..], &["--version"], &["help"], &["format", "--help"], &["mount", "-h"]] {
        let output = cofs(line).output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty() && output.stderr.is_empty(), "{line:?}");
    }
}

#[test]
fn what_cannot_be_had_together_is_refused() {
    let root = scratch();
    let store = format(&root);
    let mount = ["mount", &store, "x", "--transport", "dev", "-o", "transport=uring"];
    for (line, words) in [
        (&mount[..], ["--transport", "name one"]),
        (&["--output", "json", "dump", &store], ["--output", "leave it out"]),
        (&["--output", "csv", "completions", "bash"], ["--output", "leave it out"]),
    ] {
        refused(root.path(), line, 2, &words);
    }
}

#[test]
fn completions_know_what_help_shows_and_no_more() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let words = common::run(&["completions", shell]);
        assert!(words.contains("inline-max") && words.contains("metarates"), "{shell}");
        assert!(!words.contains("outlive") && !words.contains("or-read-only"), "{shell}");
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for line in ["--help", "--version"] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = cofs(&[line]).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("standard output: no space left") && said.lines().count() == 1, "{said}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert!(cofs(&[line]).stdout(writer).status().unwrap().success(), "a reader may go away");
    }
}

#[test]
fn a_log_filter_that_would_silence_everything_is_refused() {
    let root = scratch();
    let store = format(&root);
    for filter in ["", "wran", "wran,cofs_fs=debug", "[span]", "std=info"] {
        refused(root.path(), &["config", &store, "--log", filter], 2, &["is no log filter", "warn, info"]);
    }
    for filter in ["off", "Warn", "cofs_fs=debug", "info,cofs_engine::journal=trace"] {
        run(&["config", &store, "--log", filter]);
    }
}

#[test]
fn malformed_environment_is_refused() {
    for (name, value) in [
        ("COFS_LOG", "loud=very"),
        ("COFS_LOG", "nonsense"),
        ("COFS_FAILPOINT", "a:b"),
        ("COFS_FAILPOINT", ":1"),
        ("COFS_FAILPOINT", "fs.create.comitted"),
    ] {
        let output = cofs(&["umount", "/nonexistent"]).env(name, value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(value), "{said}");
    }
}

#[test]
fn environment_that_is_no_text_is_refused() {
    for name in ["COFS_LOG", "COFS_FAILPOINT"] {
        let value = OsStr::from_bytes(b"a\xff");
        let output = cofs(&["umount", "/nonexistent"]).env(name, value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.starts_with("cofs") && said.contains(name) && said.contains("unset it"), "{said}");
    }
}

#[test]
fn a_store_that_is_none_is_refused_by_every_verb() {
    let root = scratch();
    let missing = path_str(&root, "missing");
    let empty = path_str(&root, "empty");
    let mount = path_str(&root, "mount");
    fs::create_dir(&empty).unwrap();
    fs::create_dir(&mount).unwrap();
    for store in [&missing, &empty] {
        let next = format!("cofs format {store}");
        refused(root.path(), &["mount", store, &mount], 1, &["cofs mount", store, &next]);
        refused(root.path(), &["mount", "-d", store, &mount], 1, &["cofs mount", store, &next]);
        refused(root.path(), &["config", store], 1, &["cofs config", store, &next]);
        refused(root.path(), &["status", store], 1, &["cofs status", store]);
        refused(root.path(), &["fsck", store], 8, &["cofs fsck", store, &next]);
        refused(root.path(), &["gc", store], 1, &["cofs gc", store]);
        refused(root.path(), &["dump", store], 1, &["cofs dump", store, &next]);
        refused(root.path(), &["umount", store], 1, &["cofs umount", store]);
    }
    refused(root.path(), &["info", &missing], 1, &["cofs info", &missing]);
    refused(root.path(), &["info", &empty], 1, &["cofs info", &empty, "no cofs volume"]);
}

#[test]
fn a_mount_point_that_cannot_be_one_is_refused() {
    let root = scratch();
    let store = format(&root);
    let file = path_str(&root, "file");
    fs::write(&file, "").unwrap();
    let missing = path_str(&root, "missing");
    let inside = format!("{store}/inside");
    fs::create_dir(&inside).unwrap();
    let above = root.path().to_str().unwrap();
    refused(root.path(), &["mount", &store, &path_str(&root, "two words")], 1, &["mkdir '", "two words'"]);
    refused(root.path(), &["mount", &store, &missing], 1, &[&missing, "does not exist", "mkdir"]);
    refused(root.path(), &["mount", &store, &file], 1, &[&file, "not a directory"]);
    let link = path_str(&root, "link");
    symlink("nowhere", &link).unwrap();
    refused(root.path(), &["mount", &store, &link], 1, &[&link, "leads nowhere", "make the directory"]);
    refused(root.path(), &["mount", &store, &inside], 1, &[&inside, "inside the store"]);
    refused(root.path(), &["mount", &store, &store], 1, &["inside the store"]);
    refused(root.path(), &["mount", &store, above], 1, &["under the mount point"]);
}

#[test]
fn a_store_and_a_mount_point_that_are_swapped_are_told_apart() {
    let root = scratch();
    let store = format(&root);
    let mount = path_str(&root, "mount");
    fs::create_dir(&mount).unwrap();
    let next = format!("the store comes first: cofs mount {store} {mount}");
    for more in [&[][..], &["-d"], &["--create"]] {
        let line = [&["mount", &mount, &store], more].concat();
        refused(root.path(), &line, 1, &[&format!("{store} is"), &next]);
    }
}

#[test]
fn too_few_open_files_are_told_with_what_to_do() {
    let root = scratch();
    let (store, new) = (format(&root), path_str(&root, "new"));
    let before = contents(root.path());
    // The configuration, the metadata, a pool: each needs more.
    for (limit, line) in
        [(4, ["fsck", &store]), (4, ["format", &new]), (6, ["format", &new]), (10, ["format", &new])]
    {
        let shell = format!("ulimit -n {limit}; exec \"$@\"");
        let mut command = std::process::Command::new("sh");
        let output =
            command.args(["-c", &shell, "sh", env!("CARGO_BIN_EXE_cofs")]).args(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.trim_end().lines().count() == 1, "{limit} {line:?}: {said}");
        assert!(
            said.contains("open files; have the limit") && said.contains("ulimit -n"),
            "{limit} {line:?}: {said}"
        );
        assert!(before == contents(root.path()), "{limit} {line:?} changed something");
    }
}

#[test]
fn a_name_with_a_newline_does_not_make_two_lines() {
    let root = scratch();
    let name = path_str(&root, "no\nsuch");
    refused(root.path(), &["fsck", &name], 8, &["does not exist", "no\\nsuch"]);
}

#[test]
fn unknown_mount_options_are_named() {
    let root = scratch();
    let store = format(&root);
    let mount = path_str(&root, "mount");
    fs::create_dir(&mount).unwrap();
    for option in ["noexecc", "threads=none", "passthrough=maybe", "ro,size=1G"] {
        let word = option.rsplit(',').next().unwrap();
        refused(root.path(), &["mount", &store, &mount, "-o", option], 2, &[&format!("`{word}`")]);
        refused(root.path(), &["mount", "-d", &store, &mount, "-o", option], 2, &[&format!("`{word}`")]);
    }
}

#[test]
fn settings_that_do_not_exist_or_are_fixed_are_refused() {
    let root = scratch();
    let store = format(&root);
    refused(root.path(), &["config", &store, "colour"], 2, &["`colour`", "inline_max"]);
    refused(root.path(), &["config", &store, "colour=red"], 2, &["`colour`"]);
    refused(root.path(), &["config", &store, "uuid=1"], 1, &["`uuid`", "fixed", "cofs format"]);
    refused(root.path(), &["config", &store, "inline_max=1"], 1, &["fixed"]);
    refused(root.path(), &["config", &store, "pool.other.tier=disk"], 2, &["pool.other.tier"]);
    refused(root.path(), &["config", &store, "pool.default.tier=tape"], 2, &["tape"]);
    refused(root.path(), &["config", &store, "pool.default.directory=/nonexistent"], 1, &["/nonexistent"]);
    refused(root.path(), &["config", &store, "meta=/tmp"], 1, &["/tmp", "does not hold"]);
}

#[test]
fn settings_are_shown_and_changed() {
    let root = scratch();
    let store = format(&root);
    let shown = |key: &str| {
        let output = cofs(&["config", &store, key]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(shown("pool.default.tier"), "disk\n");
    assert!(cofs(&["config", &store, "pool.default.tier=flash"]).status().unwrap().success());
    assert_eq!(shown("pool.default.tier"), "flash\n");

    let moved = path_str(&root, "moved");
    fs::rename(format!("{store}/pool"), &moved).unwrap();
    assert!(
        cofs(&["config", &store, &format!("pool.default.directory={moved}")]).status().unwrap().success()
    );
    assert_eq!(shown("pool.default.directory"), format!("{moved}\n"));
}

#[test]
fn json_is_json() {
    let root = scratch();
    let store = format(&root);
    for line in [&["--output", "json", "config", &store][..], &["status", &store, "--output", "json"]] {
        let output = cofs(line).output().unwrap();
        let parsed: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{line:?}: {error}: {}", String::from_utf8_lossy(&output.stderr)));
        assert!(parsed.get("uuid").is_some(), "{parsed}");
    }
}

#[test]
fn man_pages_and_completions_cover_every_verb() {
    let root = scratch();
    let dir = root.path().to_str().unwrap();
    assert!(cofs(&["man", "--dir", dir]).status().unwrap().success());
    for page in ["cofs.1", "cofs-mount.1", "cofs-format.1", "cofs-fsck.1"] {
        assert!(fs::metadata(root.path().join(page)).unwrap().len() > 200, "{page}");
    }
    refused(root.path(), &["man", "--dir", "/nonexistent/dir"], 1, &["/nonexistent/dir"]);
    refused(root.path(), &["man", "--dir", dir, "--output", "json"], 2, &["--output", "leave it out"]);
    for shell in ["bash", "zsh", "fish"] {
        let output = cofs(&["completions", shell]).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("fsck"), "{shell}");
    }
}

#[test]
fn a_directory_that_may_not_be_written_is_told_with_what_to_do() {
    let root = scratch();
    let dir = unwritable(&root);
    let (store, closed) = (format(&root), path_str(&root, "closed"));
    fs::create_dir(&closed).unwrap();
    let set_mode = |mode| fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o000);
    for (line, why, next) in [
        (
            &["bench", "metarates", &dir][..],
            "is not writable: permission denied",
            "name a directory in which you may",
        ),
        (
            &["bench", "suite", &dir],
            "is not writable: permission denied",
            "name a directory in which you may",
        ),
        (&["man", "--dir", &dir], "permission denied", "do it as its owner"),
        (&["mount", &store, &closed], "mount point", "do it as its owner"),
        (&["format", &dir], "cannot make a volume in", "do it as its owner"),
    ] {
        let output = powerless(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        for word in [line[line.len() - 1], why, "; ", next] {
            assert!(said.to_lowercase().contains(&word.to_lowercase()), "`{word}` is missing in: {said}");
        }
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "{line:?}");
    }
    // Who is not root could not remove it.
    set_mode(0o700);
}

/// Any limit does for a full file system: the pages that still fitted are taken back, too.
#[test]
fn man_pages_that_do_not_fit_leave_nothing() {
    let root = scratch();
    fs::write(root.path().join("cofs-completions.1"), "older").unwrap();
    let before = contents(root.path());
    // Blocks are of 512 or 1024 bytes: some pages are smaller, some larger.
    let line = "ulimit -f 8; exec \"$0\" man --dir \"$1\"";
    let output = std::process::Command::new("sh")
        .args(["-c", line, env!("CARGO_BIN_EXE_cofs"), root.path().to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert!(said.contains("/cofs-") && said.contains("file too large; "), "{said}");
    assert!(before == contents(root.path()), "something was left");
}

#[test]
fn a_store_in_use_is_refused() {
    let root = scratch();
    let store = format(&root);
    let lock = fs::File::open(format!("{store}/lock")).unwrap();
    lock.lock().unwrap();
    let mount = path_str(&root, "mount");
    fs::create_dir(&mount).unwrap();
    for line in [
        &["mount", store.as_str(), mount.as_str()][..],
        &["fsck", &store],
        &["gc", &store],
        &["dump", &store],
        &["config", &store, "pool.default.tier=flash"],
    ] {
        let code = if line[0] == "fsck" { 8 } else { 1 };
        refused(root.path(), line, code, &["in use by", "unmount it first"]);
    }
}

/// What was done counts, and what was refused, whoever reads.
#[test]
fn words_that_cannot_be_written_change_no_exit_code() {
    let root = scratch();
    let store = path_str(&root, "store");
    let code = |line: &[&str]| {
        let full = || fs::File::options().write(true).open("/dev/full").unwrap();
        cofs(line).stdout(std::process::Stdio::null()).stderr(full()).status().unwrap().code()
    };
    assert_eq!(code(&["format", &store]), Some(0));
    assert_eq!(code(&["dump", &store]), Some(0));
    assert_eq!(code(&["format", &store]), Some(1));
    assert_eq!(code(&["no verb"]), Some(2));
}

#[test]
fn links_in_a_store_do_not_lead_to_other_files() {
    let root = scratch();
    let store = format(&root);
    let victim = path_str(&root, "victim");
    fs::write(&victim, "precious").unwrap();
    let config = Path::new(&store).join("cofs.new");
    symlink(&victim, &config).unwrap();
    assert!(cofs(&["config", &store, "pool.default.tier=flash"]).status().unwrap().success());
    let lock = Path::new(&store).join("lock");
    fs::remove_file(&lock).unwrap();
    for target in [victim.clone(), path_str(&root, "missing")] {
        symlink(&target, &lock).unwrap();
        refused(root.path(), &["gc", &store], 1, &["cannot open the lock", "symbolic link"]);
        fs::remove_file(&lock).unwrap();
    }
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn what_is_no_directory_or_no_text_is_called_so() {
    let root = scratch();
    let store = format(&root);
    let file = path_str(&root, "file");
    fs::write(&file, "").unwrap();
    for verb in ["status", "fsck", "dump", "gc", "config"] {
        let code = if verb == "fsck" { 8 } else { 1 };
        refused(root.path(), &[verb, &file], code, &[&file, "is not a directory", "name"]);
    }
    fs::write(Path::new(&store).join("cofs.toml"), [0xff, 0xfe]).unwrap();
    refused(root.path(), &["config", &store], 1, &["cofs.toml", "not text", "copy"]);
}

#[test]
fn the_supervisors_mark_is_not_for_people() {
    let root = scratch();
    let store = format(&root);
    let mount = path_str(&root, "mount");
    fs::create_dir(&mount).unwrap();
    let mut line = cofs(&["mount", &store, &mount]);
    let output = line.env("COFS_SUPERVISED", "1").stdin(std::process::Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("unset it"), "{said}");
}

#[test]
fn the_mark_of_the_background_is_not_for_people() {
    let root = scratch();
    let store = format(&root);
    let mount = path_str(&root, "mount");
    fs::create_dir(&mount).unwrap();
    for value in ["", "1", "yes"] {
        let mut line = cofs(&["mount", "--fake", "-d", &store, &mount]);
        let output = line.env("COFS_BACKGROUND", value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout), (Some(1), Vec::new()), "{said}");
        assert!(said.contains("COFS_BACKGROUND") && said.contains("unset it"), "{said}");
    }
}

#[test]
fn messages_do_not_go_to_a_volumes_own_files_nor_below_its_mount() {
    let root = scratch();
    let [store, meta, pool, mount] = ["store", "meta", "pool", "mount"].map(|name| path_str(&root, name));
    run(&["format", &store, "--meta", &meta, "--pool", &format!("default={pool}")]);
    fs::create_dir(&mount).unwrap();
    let [link, dangling] = ["link", "dangling"].map(|name| path_str(&root, name));
    symlink(format!("{meta}/CURRENT"), &link).unwrap();
    symlink(format!("{store}/new"), &dangling).unwrap();
    for (file, what) in [
        (format!("{store}/cofs.toml"), "the store"),
        (format!("{store}/new"), "the store"),
        (dangling, "the store"),
        (format!("{meta}/CURRENT"), "the metadata"),
        (link, "the metadata"),
        (format!("{pool}/objects/new"), "a pool"),
        (format!("{mount}/new"), "the mount point"),
    ] {
        let words = [&format!("{file} lies inside {what}"), "; name a file outside"];
        for options in [&["--fake"][..], &["-d", "-o", "ro"]] {
            let line = [&["mount", &store, &mount, "--log-file", &file][..], options].concat();
            refused(root.path(), &line, 1, &words);
        }
    }
}

#[test]
fn a_log_that_nobody_reads_is_not_waited_for() {
    let root = scratch();
    let store = format(&root);
    let [mount, fifo] = ["mount", "fifo"].map(|name| path_str(&root, name));
    fs::create_dir(&mount).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let code = |log: &str| {
        let mut line = std::process::Command::new("timeout");
        line.args(["60", env!("CARGO_BIN_EXE_cofs"), "mount", "--fake", &store, &mount, "--log-file", log]);
        line.output().unwrap().status.code()
    };
    assert_eq!(code(&fifo), Some(1));
    let new = path_str(&root, "new");
    for log in ["/dev/null", "/dev/stderr", &new] {
        assert_eq!(code(log), Some(0), "{log}");
    }
    assert!(Path::new(&new).exists());
}

#[test]
fn what_cannot_be_mounted_is_not_formatted() {
    let root = scratch();
    let [store, mount, full] = ["store", "mount", "full"].map(|name| path_str(&root, name));
    fs::create_dir(&mount).unwrap();
    fs::create_dir_all(format!("{full}/entry")).unwrap();
    let inside = format!("{mount}/store");
    for (line, words) in [
        (&["mount", "--create", &store, &mount, "--log-file", "/nonexistent/x"][..], "cannot write messages"),
        (&["mount", "--create", &mount, &mount], "lies inside the store"),
        (&["mount", "--create", &inside, &mount], "lies under the mount point"),
        (&["mount", "--create", &store, &full], "is not empty"),
        (&["mount", "-d", "--create", &format!("{store}/deep"), &mount], "no such file"),
    ] {
        refused(root.path(), line, 1, &[words]);
    }
    run(&["mount", "--create", "--fake", &store, &mount]);
    assert!(!Path::new(&store).exists(), "where nothing is mounted nothing is made");
}
