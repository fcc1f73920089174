//! What processes hand each other when they write or read together: each has a window of memory from which the others
//! take what they need. Those of its machine open it under /proc: it is a memfd(2), which vanishes with its process. Those
//! of other machines ask for it over TCP (see `link`).

mod link;

use std::{
    fs::{self, File},
    io::{self, Read},
    os::{fd::AsRawFd, unix::fs::FileExt},
    sync::Arc,
};

use rustix::fs::{MemfdFlags, memfd_create};

use self::link::{Host, Link, PIECES_MAX};
use super::cube::Piece;
use crate::{Observer, Seat};

pub struct Exchange {
    own: Arc<File>,
    /// Of every process, this one among them.
    windows: Vec<Window>,
}

enum Window {
    Here(File),
    There(Link),
}

/// Bytes of a window, and where they belong.
struct Wanted<'a> {
    at: u64,
    into: &'a mut [u8],
}

impl Exchange {
    /// A window for this process, and a way to those of the others. All processes must come here.
    ///
    /// Errors: those of memory and network.
    pub fn open(seat: &Seat, observer: &mut dyn Observer) -> io::Result<Self> {
        Self::on(machine()?, seat, observer)
    }

    /// On a machine of this number, which processes that can open each other's windows have in common.
    fn on(machine: u64, seat: &Seat, observer: &mut dyn Observer) -> io::Result<Self> {
        let machines = observer.agree(machine)?;
        let own = Arc::new(File::from(memfd_create("btio", MemfdFlags::CLOEXEC)?));
        let places = observer.agree(place(&own)?)?;
        let several = machines.iter().any(|other| *other != machine);
        let host = several.then(|| Host::open(&own, seat.ways)).transpose()?;
        let addresses = host.as_ref().map_or(Ok(Vec::new()), |host| host.addresses(observer))?;
        let each = machines.iter().zip(places).enumerate();
        let windows: io::Result<Vec<Window>> = each
            .map(|(rank, (other, place))| match addresses.get(rank) {
                Some(address) if *other != machine => Link::open(rank, address).map(Window::There),
                _ => here(place).map(Window::Here),
            })
            .collect();
        // Nobody ends, or closes its door, before all have opened.
        observer.agree(0)?;
        Ok(Self { own, windows: windows? })
    }

    /// Puts bytes where the others will look for them after the next agreement.
    pub fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.own.write_all_at(bytes, at)
    }

    /// Takes pieces that their owners have put; `into` is filled with one after the other.
    ///
    /// Errors: a process that is gone; pieces that were not put, or are more than there is room for.
    pub fn take(&mut self, mut into: &mut [u8], pieces: impl Iterator<Item = Piece>) -> io::Result<()> {
        let mut wanted: Vec<Vec<Wanted>> = self.windows.iter().map(|_| Vec::new()).collect();
        for Piece { owner, at, bytes } in pieces {
            let (here, rest) =
                into.split_at_mut_checked(bytes as usize).ok_or(io::ErrorKind::InvalidInput)?;
            wanted.get_mut(owner).ok_or(io::ErrorKind::NotFound)?.push(Wanted { at, into: here });
            into = rest;
        }
        let mut questions: Vec<_> = wanted.iter_mut().map(|wanted| wanted.chunks_mut(PIECES_MAX)).collect();
        loop {
            let asked: Vec<&mut [Wanted]> =
                questions.iter_mut().map(|of_one| of_one.next().unwrap_or_default()).collect();
            if asked.iter().all(|wanted| wanted.is_empty()) {
                return Ok(());
            }
            // All are asked before the first one's answer is awaited.
            for (window, wanted) in self.windows.iter_mut().zip(&asked) {
                window.ask(wanted)?;
            }
            for (window, wanted) in self.windows.iter_mut().zip(asked) {
                window.answer(wanted)?;
            }
        }
    }
}

impl Window {
    fn ask(&mut self, wanted: &[Wanted]) -> io::Result<()> {
        match self {
            Self::There(link) if !wanted.is_empty() => link.ask(wanted),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, wanted: &mut [Wanted]) -> io::Result<()> {
        match self {
            Self::Here(file) => wanted.iter_mut().try_for_each(|one| file.read_exact_at(one.into, one.at)),
            Self::There(link) => link.answer(wanted),
        }
    }
}

/// This process's window for others of its machine: its number, as /proc has it (which may be that of a namespace around this
/// process), and that of the descriptor.
fn place(own: &File) -> io::Result<u64> {
    let process = fs::read_link("/proc/self")?;
    let process = process.to_str().and_then(|number| number.parse::<u32>().ok());
    let process = process.ok_or_else(|| io::Error::other("/proc does not tell this process"))?;
    Ok(u64::from(process) << 32 | own.as_raw_fd() as u64)
}

/// The window of a process of this machine.
fn here(place: u64) -> io::Result<File> {
    File::open(format!("/proc/{}/fd/{}", place >> 32, place & 0xffff_ffff))
}

/// A number of the machine: FNV-1a of what its processes have in common, which is the kernel's present life, and the
/// namespaces of processes and networks (containers stand for machines).
fn machine() -> io::Result<u64> {
    let mut boot = [0; 36];
    File::open("/proc/sys/kernel/random/boot_id")?.read_exact(&mut boot)?;
    // A kernel without namespaces has no such links.
    let space = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
    let spaces = [space("pid"), space("net")];
    let bytes = spaces.iter().flat_map(|space| space.as_os_str().as_encoded_bytes()).chain(&boot);
    Ok(bytes
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Barrier, Mutex},
        thread,
    };

    use super::*;
    use crate::{Ways, recorder::Recorder};

    /// Does `work` as each of so many processes, which are threads; they agree as workers do.
    fn all<T: Send>(machines: &[u64], work: impl Fn(usize, &mut dyn Observer) -> T + Sync) -> Vec<T> {
        let (numbers, barrier) = (Mutex::new(vec![0; machines.len()]), Barrier::new(machines.len()));
        let agree = |rank: usize, mine| {
            numbers.lock().unwrap()[rank] = mine;
            barrier.wait();
            let all = numbers.lock().unwrap().clone();
            barrier.wait();
            Ok(all)
        };
        thread::scope(|scope| {
            let start = |rank| {
                let (agree, work) = (&agree, &work);
                scope.spawn(move || work(rank, &mut Recorder::new(&mut |mine| agree(rank, mine))))
            };
            let threads: Vec<_> = (0..machines.len()).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn seat(index: usize, size: usize) -> Seat {
        Seat { root: "/".into(), index, size, ways: Ways::default() }
    }

    /// What stands at a place of a process's window.
    fn byte(process: usize, at: u64) -> u8 {
        (at * 7 + at / 251 + process as u64 * 101) as u8
    }

    #[test]
    fn all_take_of_all_at_once_wherever_they_are() {
        // More pieces than a question has, and more bytes than connections hold.
        const PIECES: u64 = 2 * PIECES_MAX as u64 + 7;
        let length = |number: u64| 1 + number % 1500;
        for machines in [[1, 1, 1, 1], [1, 2, 3, 4], [1, 1, 2, 2]] {
            all(&machines, |rank, observer| {
                let mut exchange = Exchange::on(machines[rank], &seat(rank, 4), observer).unwrap();
                let there = exchange.windows.iter().filter(|window| matches!(window, Window::There(_)));
                let elsewhere = machines.iter().filter(|other| **other != machines[rank]);
                assert_eq!(there.count(), elsewhere.count(), "{machines:?}");
                for turn in 0..2 {
                    let bytes: Vec<u8> = (0..3 << 20).map(|at| byte(rank + turn, at)).collect();
                    exchange.put(&bytes, 0).unwrap();
                    observer.agree(0).unwrap();
                    // Back from the end, of all in turn.
                    let pieces = || {
                        (0..PIECES).map(|number| Piece {
                            owner: number as usize % 4,
                            at: (3 << 20) - length(number) - number * 13,
                            bytes: length(number),
                        })
                    };
                    let mut taken = vec![0; pieces().map(|piece| piece.bytes as usize).sum()];
                    exchange.take(&mut taken, pieces()).unwrap();
                    let expected = pieces().flat_map(|Piece { owner, at, bytes }| {
                        (at..at + bytes).map(move |at| byte(owner + turn, at))
                    });
                    assert!(taken.iter().copied().eq(expected), "{machines:?}");
                    observer.agree(0).unwrap();
                }
            });
        }
    }

    #[test]
    fn what_cannot_be_taken_is_an_error() {
        for machines in [[1, 1], [1, 2]] {
            let errors = all(&machines, |rank, observer| {
                let mut exchange = Exchange::on(machines[rank], &seat(rank, 2), observer).unwrap();
                exchange.put(&[1; 100], 0).unwrap();
                observer.agree(0).unwrap();
                let mut take = |owner, at, bytes| {
                    exchange.take(&mut [0; 50], [Piece { owner, at, bytes }].into_iter()).unwrap_err()
                };
                assert_eq!(take(2, 0, 50).kind(), io::ErrorKind::NotFound);
                assert_eq!(take(0, 0, 51).kind(), io::ErrorKind::InvalidInput);
                let error = take(1 - rank, 51, 50);
                observer.agree(0).unwrap();
                error
            });
            assert!(errors.iter().all(|error| error.kind() == io::ErrorKind::UnexpectedEof), "{errors:?}");
        }
    }
}
