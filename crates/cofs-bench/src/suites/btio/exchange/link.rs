//! The window of a process on another machine. What is wanted of it is told in one frame (see `frame`), and comes back as
//! bare bytes: who asked knows how many.
//!
//! Nobody can wait for anybody in a circle, whatever a connection holds: questions are answered by threads that do nothing
//! else; each is read to its end before it is answered, and the next one is asked after the answer.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::FileExt,
    sync::Arc,
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::Wanted;
use crate::{
    Observer, Ways,
    frame::{receive, send, why_lost},
    meeting::{Door, connect, outlast},
};

/// Of one question.
pub const PIECES_MAX: usize = 4096;
/// Two numbers for each piece, of at most twenty digits, and what stands around them.
const QUESTION_BYTES_MAX: u32 = PIECES_MAX as u32 * 44 + 2;
/// Of the word that opens a connection.
const WORD_BYTES_MAX: u32 = 20;
/// What a connection reads or writes at once.
const BUFFER_BYTES: usize = 64 << 10;
/// How long another process, which is known to listen, may take to answer the word.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// Where a window is served, and the word that must be known there.
pub struct Address {
    place: SocketAddr,
    word: u64,
}

/// Serves this process's window to those who come, over connections that outlive this.
pub struct Host {
    address: Address,
    ways: Ways,
    _door: Door,
}

impl Host {
    pub fn open(window: &Arc<File>, ways: Ways) -> io::Result<Self> {
        let any: IpAddr = match ways.own {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let listener = TcpListener::bind((any, 0))?;
        let place = SocketAddr::new(ways.own, listener.local_addr()?.port());
        let word = SmallRng::from_os_rng().random();
        let window = window.clone();
        let door = Door::open(listener, move |stream| serve(&stream, word, &window))?;
        Ok(Self { address: Address { place, word }, ways, _door: door })
    }

    /// Those of all processes, seen from here. All must come here.
    pub fn addresses(&self, observer: &mut dyn Observer) -> io::Result<Vec<Address>> {
        let Address { place, word } = self.address;
        let address = match place.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let bits = address.to_bits();
        let (high, low) = (observer.agree((bits >> 64) as u64)?, observer.agree(bits as u64)?);
        let (ports, words) = (observer.agree(place.port().into())?, observer.agree(word)?);
        let each = high.iter().zip(low).zip(ports.iter().zip(words));
        let addresses = each.map(|((high, low), (port, word))| {
            let ip = Ipv6Addr::from_bits(u128::from(*high) << 64 | u128::from(low)).to_canonical();
            let port = u16::try_from(*port).map_err(|_| ErrorKind::InvalidData)?;
            Ok(Address { place: SocketAddr::new(self.ways.to(ip), port), word })
        });
        addresses.collect()
    }
}

/// The life of a thread that answers one other process, until that goes.
///
/// Errors: a connection that fails, or somebody who does not know the word or asks for what is not there.
fn serve(stream: &TcpStream, word: u64, window: &File) -> io::Result<()> {
    let mut from = BufReader::new(stream);
    let mut to = BufWriter::with_capacity(BUFFER_BYTES, stream);
    if receive::<u64>(&mut from, WORD_BYTES_MAX)? != word {
        return Err(ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(None)?;
    send(&mut to, &word)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let question: Vec<(u64, u64)> = receive(&mut from, QUESTION_BYTES_MAX)?;
        for (at, bytes) in question {
            copy(window, at, bytes, &mut buffer, &mut to)?;
        }
        to.flush()?;
    }
}

/// However long a piece is said to be, this takes the memory of the buffer.
fn copy(window: &File, mut at: u64, bytes: u64, buffer: &mut [u8], to: &mut impl Write) -> io::Result<()> {
    let end = at.checked_add(bytes).ok_or(ErrorKind::InvalidData)?;
    while at < end {
        let here = (end - at).min(buffer.len() as u64) as usize;
        let part = buffer.get_mut(..here).unwrap_or_default();
        window.read_exact_at(part, at)?;
        to.write_all(part)?;
        at += here as u64;
    }
    Ok(())
}

/// To the window of another process.
pub struct Link {
    rank: usize,
    stream: BufReader<TcpStream>,
}

impl Link {
    /// Errors: nobody there, or nobody who answers the word.
    pub fn open(rank: usize, address: &Address) -> io::Result<Self> {
        let stream = connect(rank, &address.place, OPEN_WITHIN)?;
        outlast(&stream)?;
        stream.set_read_timeout(Some(OPEN_WITHIN))?;
        let mut link = Self { rank, stream: BufReader::with_capacity(BUFFER_BYTES, stream) };
        link.greet(address.word).map_err(|error| link.lost(&error))?;
        link.stream.get_ref().set_read_timeout(None)?;
        Ok(link)
    }

    fn greet(&mut self, word: u64) -> io::Result<()> {
        send(self.stream.get_mut(), &word)?;
        match receive::<u64>(&mut self.stream, WORD_BYTES_MAX)? == word {
            true => Ok(()),
            false => Err(io::Error::other("somebody else answers")),
        }
    }

    /// At most [`PIECES_MAX`] pieces. The answer to the question before must have been awaited.
    pub fn ask(&mut self, wanted: &[Wanted]) -> io::Result<()> {
        let question: Vec<(u64, u64)> = wanted.iter().map(|one| (one.at, one.into.len() as u64)).collect();
        send(self.stream.get_mut(), &question).map_err(|error| self.lost(&error))
    }

    /// What was asked for.
    pub fn answer(&mut self, wanted: &mut [Wanted]) -> io::Result<()> {
        let read = wanted.iter_mut().try_for_each(|one| self.stream.read_exact(one.into));
        read.map_err(|error| self.lost(&error))
    }

    fn lost(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("rank {} was lost: {}", self.rank, why_lost(error)))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    const WORD: u64 = 7;

    /// A connection to a process that serves these bytes.
    fn knock(bytes: &[u8]) -> TcpStream {
        let window = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        window.write_all_at(bytes, 0).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let guest = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        thread::spawn(move || serve(&stream, WORD, &window));
        guest
    }

    /// The other side has nothing to say, and goes.
    fn ended(mut stream: TcpStream) -> bool {
        stream.set_read_timeout(Some(OPEN_WITHIN)).unwrap();
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest).map_err(|error| error.kind());
        // It may not have read all that was said.
        rest.is_empty() && matches!(end, Ok(_) | Err(ErrorKind::ConnectionReset))
    }

    #[test]
    fn a_stranger_gets_nothing() {
        for said in [&b"GET / HTTP/1.0\r\n\r\n"[..], b"\0\0\0\x01{", b"\0\0\0\x016", b"\xff\xff\xff\xff"] {
            let mut stranger = knock(b"mine");
            stranger.write_all(said).unwrap();
            assert!(ended(stranger), "{said:?}");
        }
    }

    #[test]
    fn a_question_that_makes_no_sense_is_not_answered() {
        let greeted = || {
            let mut guest = knock(&[9; 100]);
            send(&mut guest, &WORD).unwrap();
            assert_eq!(receive::<u64>(&mut guest, WORD_BYTES_MAX).unwrap(), WORD);
            guest
        };
        for piece in
            [(0, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX), (1 << 63, 8), (100, 1), (0, 1 << 40)]
        {
            let mut guest = greeted();
            send(&mut guest, &[piece]).unwrap();
            assert!(ended(guest), "{piece:?}");
        }
        let mut guest = greeted();
        guest.write_all(&(QUESTION_BYTES_MAX + 1).to_be_bytes()).unwrap();
        assert!(ended(guest));
        // One that does is.
        let mut guest = greeted();
        send(&mut guest, &[(0_u64, 3_u64), (97, 3), (5, 0)]).unwrap();
        let mut answer = [0; 6];
        guest.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [9; 6]);
    }

    #[test]
    fn the_largest_question_is_not_too_large() {
        let question = vec![(u64::MAX, u64::MAX); PIECES_MAX];
        let mut frame = Vec::new();
        send(&mut frame, &question).unwrap();
        assert_eq!(receive::<Vec<(u64, u64)>>(&mut frame.as_slice(), QUESTION_BYTES_MAX).unwrap(), question);
    }

    #[test]
    fn who_does_not_answer_as_expected_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address { place: listener.local_addr().unwrap(), word: WORD };
        let other = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert_eq!(receive::<u64>(&mut stream, WORD_BYTES_MAX).unwrap(), WORD);
            send(&mut stream, &(WORD + 1)).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            assert_eq!(receive::<u64>(&mut stream, WORD_BYTES_MAX).unwrap(), WORD);
            send(&mut stream, &WORD).unwrap();
            // It ends in the midst of an answer.
            assert_eq!(receive::<Vec<(u64, u64)>>(&mut stream, QUESTION_BYTES_MAX).unwrap(), [(4, 8)]);
            stream.write_all(&[1; 5]).unwrap();
        });
        let error = Link::open(3, &address).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "rank 3 was lost: somebody else answers");
        let mut link = Link::open(3, &address).unwrap();
        let mut into = [0; 8];
        let mut wanted = [Wanted { at: 4, into: &mut into }];
        link.ask(&wanted).unwrap();
        let error = link.answer(&mut wanted).unwrap_err();
        assert_eq!(error.to_string(), "rank 3 was lost: it ended");
        other.join().unwrap();
    }
}
