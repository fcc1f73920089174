//! Small files of a store, in whose place anything may stand: a FIFO, whose opening waits for a writer for ever, or a file without end.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};

/// The text of the regular file at `path`, which is to have at most `bytes_max` bytes. Errors: those of opening and reading, `InvalidData` where it
/// is longer, no text, or no regular file.
pub fn read_small(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(unfit(format!("it is longer than {bytes_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| unfit("it is not text"))
}

/// Opens a regular file for reading. Errors: as of [`regular`].
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    regular(File::options().read(true).custom_flags(flags).open(path)?)
}

/// Writes a file whose loss does not matter. (A FIFO in its place would be waited for otherwise.)
pub(crate) fn write_note(path: &Path, text: &str) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    options.open(path)?.write_all(text.as_bytes())
}

/// `file`, if it is regular. Errors: EISDIR for a directory, `InvalidData` for anything else.
pub fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.file_type() {
        kind if kind.is_file() => Ok(file),
        kind if kind.is_dir() => Err(Errno::ISDIR.into()),
        kind if kind.is_fifo() => Err(unfit("it is a FIFO, and must be a file")),
        _ => Err(unfit("it is a device, and must be a file")),
    }
}

fn unfit(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn only_a_small_regular_file_is_read() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("small");
        let said = || read_small(&path, 5).map_err(|error| (error.kind(), error.to_string()));
        let unfit = |why: &str| Err((io::ErrorKind::InvalidData, why.to_owned()));
        fs::write(&path, "12345").unwrap();
        assert_eq!(said(), Ok("12345".to_owned()));
        fs::write(&path, "123456").unwrap();
        assert_eq!(said(), unfit("it is longer than 5 bytes"));
        fs::remove_file(&path).unwrap();
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert_eq!(said(), unfit("it is a FIFO, and must be a file"));
        let directory = read_small(scratch.path(), 5).unwrap_err();
        assert_eq!(directory.kind(), io::ErrorKind::IsADirectory);
        assert!(read_small(Path::new("/dev/null"), 5).unwrap_err().to_string().contains("a device"));
    }
}
