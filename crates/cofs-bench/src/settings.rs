//! What a suite was told, in few words: bytes as people say them, other numbers as they are. Which options count bytes
//! is said where they are defined: the value of such an option is called SIZE.

use serde_json::Value;

use crate::Kind;

/// What the value of an option that counts bytes is called.
const BYTES: &str = "SIZE";

/// The options that a suite was given, without those that were not.
pub fn said(options: &Value) -> String {
    let Some((suite, Value::Object(given))) = options.as_object().and_then(|kind| kind.iter().next()) else {
        return String::new();
    };
    let one = |(name, value): (&String, &Value)| match value {
        Value::Null | Value::Bool(false) => None,
        Value::Array(words) if words.is_empty() => None,
        Value::Bool(true) => Some(name.clone()),
        Value::String(text) => Some(format!("{name} {text}")),
        Value::Number(number) => match number.as_f64().filter(|_| counts_bytes(suite, name)) {
            Some(bytes) => Some(format!("{name} {}", size(bytes))),
            None => Some(format!("{name} {number}")),
        },
        value => Some(format!("{name} {value}")),
    };
    given.iter().filter_map(one).collect::<Vec<_>>().join(", ")
}

/// Whether the option `name` of `suite` is a number of bytes.
pub fn counts_bytes(suite: &str, name: &str) -> bool {
    let Some(command) = Kind::command(suite) else { return false };
    let option = command.get_arguments().find(|option| option.get_id() == name);
    option.and_then(clap::Arg::get_value_names).is_some_and(|names| names.iter().any(|name| name == BYTES))
}

/// Bytes in few letters: `65536` is `64 KiB`. A power of two is whole in its unit; 1000 KiB stay that.
pub fn size(bytes: f64) -> String {
    let (unit, word) = match bytes {
        v if v < 1024.0 => (1.0, "B"),
        v if v < 1_048_576.0 => (1024.0, "KiB"),
        v if v < 1_073_741_824.0 => (1_048_576.0, "MiB"),
        _ => (1_073_741_824.0, "GiB"),
    };
    format!("{} {word}", short(bytes / unit))
}

/// A number in few letters: `1500000` is `1.5M`.
pub fn short(value: f64) -> String {
    let (number, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match number.abs() {
        n if n >= 100.0 || n.fract() == 0.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 0.1 => 2,
        _ => 4,
    };
    let text = format!("{number:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// `1 process`, `4 processes`.
pub fn processes(number: usize) -> String {
    format!("{number} {}", if number == 1 { "process" } else { "processes" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (9999.0, "9999"),
            (20_000.0, "20k"),
            (1_500_000.0, "1.5M"),
            (0.25, "0.25"),
            (0.005, "0.005"),
            (0.0125, "0.0125"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn bytes_are_said_as_bytes() {
        for (bytes, text) in [
            (0.0, "0 B"),
            (100.0, "100 B"),
            (1024.0, "1 KiB"),
            (47_008.0, "45.9 KiB"),
            (1_024_000.0, "1000 KiB"),
            (1_048_576.0, "1 MiB"),
            (3_221_225_472.0, "3 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn options_are_said_as_they_are_meant() {
        let told = json!({"ior": {"block": 16_777_216, "segments": 65_536, "write": true, "read": false, "signature": null,
            "file": "testFile", "tests": []}});
        assert_eq!(said(&told), "block 16 MiB, file testFile, segments 65536, write");
        assert_eq!(said(&json!({"suite": {"profile": "quick"}})), "profile quick");
        assert_eq!(said(&Value::Null), "");
    }

    #[test]
    fn every_option_that_takes_a_size_says_so() {
        let mut sizes = 0;
        for suite in Kind::NAMES {
            let command = || Kind::command(suite).unwrap().no_binary_name(true);
            for option in command().get_arguments() {
                let Some(long) = option.get_long() else { continue };
                let takes = |value: &str| {
                    let words = [format!("--{long}"), value.to_owned()];
                    command().try_get_matches_from(words).is_ok()
                };
                let takes_sizes = takes("64K") && !takes("sixty");
                assert_eq!(counts_bytes(suite, option.get_id().as_str()), takes_sizes, "{suite} --{long}");
                sizes += usize::from(takes_sizes);
            }
        }
        assert!(sizes > 8);
    }
}
