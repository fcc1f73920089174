//! What verbs print: a table for people, JSON for programs; always on standard output, so that words on
//! standard error never mix with it.

use std::{
    fmt,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use rustix::fs::OFlags;
use serde_json::Value;

use crate::failure::{Done, Failure, plain};

/// The form of what goes to standard output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Format {
    /// Columns, for people.
    #[default]
    Table,
    /// One JSON document, for programs.
    Json,
    /// Comma-separated values, for spreadsheets: a line for each measurement of a bench, for each field of anything else.
    Csv,
}

/// Writes `text`; a reader that has gone away (`cofs status | head -1`) is no error.
pub fn print(text: &str) -> io::Result<()> {
    print_with(|| io::stdout().write_all(text.as_bytes()))
}

/// The same of what `write` writes to standard output.
pub fn print_with(write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match write().and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => {
            other.map_err(|error| io::Error::new(error.kind(), format!("standard output: {}", plain(&error))))
        }
    }
}

/// Refuses a form that was asked of what is printed in no other than its own, `why`.
pub fn refuse_form(form: Format, why: &str) -> Done {
    match form {
        Format::Table => Ok(()),
        _ => Err(Failure::usage(format!("--output cannot be had: {why}")).next("leave it out")),
    }
}

/// Whether we were started with standard output closed. By now /dev/null stands there, put by Rust before our first line, but to be read as
/// well as written: shells open it only to be written.
pub fn was_closed() -> bool {
    let out = rustix::stdio::stdout();
    let is_null = match (rustix::fs::fstat(out), rustix::fs::stat("/dev/null")) {
        (Ok(out), Ok(null)) => out.st_rdev == null.st_rdev,
        _ => false,
    };
    is_null && rustix::fs::fcntl_getfl(out).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
}

/// A line for people on standard error. What has been done stays done, and the exit code the same, where it cannot be written.
pub fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints one document: as it is, or flattened to `name  value` rows.
pub fn document(format: Format, document: &Value) -> io::Result<()> {
    match format {
        Format::Json => print(&format!("{document:#}\n")),
        Format::Table | Format::Csv => {
            let mut rows = Vec::new();
            flatten(format, "", document, &mut rows);
            print(&if format == Format::Csv { comma_separated(&rows) } else { columns(&rows) })
        }
    }
}

fn flatten(form: Format, prefix: &str, value: &Value, rows: &mut Vec<[String; 2]>) {
    match value {
        Value::Object(fields) => {
            // What belongs to the whole comes before what belongs to its parts.
            let (parts, whole): (Vec<_>, Vec<_>) =
                fields.iter().partition(|(_, field)| field.is_object() || field.is_array());
            for (name, field) in whole.into_iter().chain(parts) {
                flatten(form, &join(prefix, name), field, rows);
            }
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            for (at, item) in items.iter().enumerate() {
                let name = item.get("name").and_then(Value::as_str);
                flatten(form, &join(prefix, name.unwrap_or(&at.to_string())), item, rows);
            }
        }
        Value::Array(items) if items.is_empty() => {
            rows.push([prefix.to_owned(), scalar(form, prefix, &Value::Null)])
        }
        Value::Array(items) => {
            rows.push([prefix.to_owned(), items.iter().map(words).collect::<Vec<_>>().join(", ")])
        }
        _ => rows.push([prefix.to_owned(), scalar(form, prefix, value)]),
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// A field called `..._bytes` is a size; so says the rule for names. Spreadsheets reckon with bytes, and leave empty what is nothing.
fn scalar(form: Format, name: &str, value: &Value) -> String {
    let is_size = name.ends_with("_bytes") || name.ends_with("inline_max");
    match (form, value.as_u64()) {
        (Format::Table, Some(bytes)) if is_size => cofs_types::size::show_size(bytes),
        (Format::Csv, _) if value.is_null() => String::new(),
        _ => words(value),
    }
}

fn words(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Names come from users: what a terminal would obey is shown escaped.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

/// A path as one word of a line for a shell, which is never taken for an option.
pub fn shell_word(path: &Path) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(byte);
    let path = if path.as_os_str().as_bytes().starts_with(b"-") { &Path::new(".").join(path) } else { path };
    match path.to_str() {
        Some(text) if !text.is_empty() && text.bytes().all(|byte| plain(&byte)) => text.to_owned(),
        Some(text) if !text.contains(char::is_control) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => format!("$'{}'", path.as_os_str().as_bytes().escape_ascii()),
    }
}

fn columns(rows: &[[String; 2]]) -> String {
    let width = rows.iter().map(|[name, _]| name.chars().count()).max().unwrap_or(0);
    rows.iter().map(|[name, value]| format!("{name:<width$}  {value}\n")).collect()
}

/// RFC 4180, `name,value`.
fn comma_separated(rows: &[[String; 2]]) -> String {
    let quoted = |cell: &String| match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.clone(),
    };
    let lines = rows.iter().map(|[name, value]| format!("{},{}\n", quoted(name), quoted(value)));
    std::iter::once("name,value\n".to_owned()).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_becomes_rows() {
        let mut rows = Vec::new();
        let document = json!({"uuid": "u", "pools": [{"name": "fast", "free_bytes": 4096}], "tags": ["a", "b"], "none": []});
        let cases = [(Format::Table, "4.00 KiB", "-"), (Format::Csv, "4096", "")];
        for (form, size, nothing) in cases {
            rows.clear();
            flatten(form, "", &document, &mut rows);
            for (name, value) in [("pools.fast.free_bytes", size), ("tags", "a, b"), ("none", nothing)] {
                assert!(rows.contains(&[name.to_owned(), value.to_owned()]), "{form:?}: {rows:?}");
            }
        }
    }

    #[test]
    fn comma_separated_values_are_quoted() {
        let rows = [["a,b".to_owned(), "c \"d\"".to_owned()], ["e".to_owned(), "f".to_owned()]];
        assert_eq!(comma_separated(&rows), "name,value\n\"a,b\",\"c \"\"d\"\"\"\ne,f\n");
    }

    #[test]
    fn a_path_is_one_word_for_a_shell() {
        use std::{ffi::OsStr, process::Command};
        for bytes in [
            &b"/srv/a-b_1.x"[..],
            b"",
            b"-d",
            b"a b",
            b"it's \\ $HOME `x` \"q\" *",
            b"new\nline'\"\\\t\x7f1",
            b"odd \xff1",
            "ä".as_bytes(),
        ] {
            let word = shell_word(Path::new(OsStr::from_bytes(bytes)));
            assert!(!word.contains(char::is_control), "{word:?}");
            let told = Command::new("bash").args(["-c", &format!("printf %s {word}")]).output().unwrap();
            assert_eq!(told.stdout.strip_prefix(b"./").unwrap_or(&told.stdout), bytes, "{word}");
        }
        assert_eq!(shell_word(Path::new("/srv/a-b_1.x")), "/srv/a-b_1.x");
        assert_eq!(shell_word(Path::new("-d")), "./-d");
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
    }
}
