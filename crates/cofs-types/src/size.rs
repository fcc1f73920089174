//! Sizes as people write and read them: `4096`, `64K`, `64KiB`, `1.5 MiB`.
//!
//! A bare letter and the `iB` form are powers of 1024; the `B` form (`KB`) is a power of 1000.

const UNITS: &str = "KMGTPE";

/// Parses a size in bytes. The error says what was expected, not what was given: clap adds that.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no size: write a number with a unit, such as 4096, 64K, 64KiB or 1M");
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor = unit_factor(unit.trim()).ok_or_else(wrong)?;
    number.checked_mul(factor).ok_or_else(wrong)
}

fn unit_factor(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_uppercase();
    if unit.is_empty() || unit == "B" {
        return Some(1);
    }
    let (letter, rest) = unit.split_at_checked(1)?;
    let power = UNITS.find(letter)? as u32 + 1;
    match rest {
        "" | "IB" => 1024u64.checked_pow(power),
        "B" => 1000u64.checked_pow(power),
        _ => None,
    }
}

/// Prints a size with three significant digits: `0 B`, `999 B`, `4.00 KiB`, `12.3 GiB`.
pub fn show_size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut units = UNITS.chars();
    let mut unit = units.next().unwrap_or('K');
    for next in units {
        if value < 1000.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}iB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_their_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65_536),
            ("64kib", 65_536),
            ("1 MiB", 1 << 20),
            ("2KB", 2000),
            ("7b", 7),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "K", "-1", "1.5K", "4X", "4KiBs", "99999999999999999999", "20E", "4K4", "4ß", "１"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_printed_with_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (4096, "4.00 KiB"),
            (12_900_000_000, "12.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(show_size(bytes), text);
        }
    }
}
