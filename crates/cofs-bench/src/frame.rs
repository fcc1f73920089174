//! What coordinator and workers say to each other, on a pipe or a connection: a length of four bytes (big endian),
//! then JSON. A length above the bound is an error before anything is allocated.

use std::io::{self, Read, Write};

use serde::{Serialize, de::DeserializeOwned};

/// Of one frame: the histogram of a phase has its place in it.
pub const BYTES_MAX: u32 = 16 << 20;
/// Of the first frame of a connection, which anybody may have made.
pub const FIRST_BYTES_MAX: u32 = 1 << 18;

pub fn send<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("a message of a bench is too long"))?;
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&body);
    // In one piece, so that a connection makes one packet of a small one.
    to.write_all(&frame)?;
    to.flush()
}

/// The next message.
///
/// Errors: `UnexpectedEof` where the other side has gone; `InvalidData` for what is no message.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read, bytes_max: u32) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > bytes_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is too long"));
    }
    let mut body = vec![0; length as usize];
    from.read_exact(&mut body)?;
    serde_json::from_slice(&body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Why the other side of a connection is lost, in words.
pub fn why_lost(error: &io::Error) -> String {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error.kind() {
        UnexpectedEof | BrokenPipe | ConnectionReset => "it ended".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_others_are_refused() {
        let mut pipe = Vec::new();
        send(&mut pipe, &("x", 7)).unwrap();
        send(&mut pipe, &("y", 8)).unwrap();
        let mut from = pipe.as_slice();
        assert_eq!(receive::<(String, u8)>(&mut from, 100).unwrap(), ("x".to_owned(), 7));
        assert_eq!(receive::<(String, u8)>(&mut from, 100).unwrap().1, 8);
        assert_eq!(why_lost(&receive::<u8>(&mut from, 100).unwrap_err()), "it ended");
        for bytes in [&b"\xff\xff\xff\xff"[..], b"\0\0\0\x01{", b"\0\0\x01\0"] {
            let mut from = bytes;
            assert!(receive::<u8>(&mut from, 100).is_err());
        }
        assert!(receive::<u8>(&mut &b"\0\0\0\x09"[..], 100).is_err());
    }
}
