//! How ranks on many nodes find each other: rank 0 listens at an address that all know, the others connect to it; from
//! then on each knows a way to every other. A node that is cut off is noticed by the kernel, which asks connections that
//! are still.

use std::{
    fmt::Display,
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::net::{Shutdown, shutdown, sockopt};
use serde::{Deserialize, Serialize};

/// A connection on which nothing was heard is asked after this time, and then so often, this many times.
const ASK_AFTER: Duration = Duration::from_secs(2);
const ASK_EVERY: Duration = Duration::from_secs(1);
const ASK_TIMES: u32 = 4;
/// A connection is lost when what was sent is not acknowledged for so long.
const UNANSWERED_MILLIS: u32 = 6000;
/// One between others than rank 0, which by then has told that all is over, if it can: an error that is sent to a rank 0
/// that does not answer would begin the time of that connection anew.
const UNANSWERED_BETWEEN_MILLIS: u32 = 8000;
/// How long somebody who connected may take to say who it is.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
/// Between two tries.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// After a guest who could not be received.
const REST: Duration = Duration::from_millis(1);

/// From a process to the others, where they are on several machines.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ways {
    /// This process's address, on its way to rank 0; for rank 0 the one that it listens at.
    pub own: IpAddr,
    /// Rank 0's, seen from here.
    pub first: IpAddr,
}

impl Default for Ways {
    /// There is one machine.
    fn default() -> Self {
        let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self { own, first: own }
    }
}

impl Ways {
    /// Those of the rank that has this connection to rank 0.
    pub fn of(connection: &TcpStream) -> io::Result<Self> {
        Ok(Self { own: connection.local_addr()?.ip(), first: connection.peer_addr()?.ip() })
    }

    /// Where the process is found from here that calls its address `own`. One that no other machine can mean is of
    /// rank 0's machine.
    pub fn to(&self, own: IpAddr) -> IpAddr {
        if own.is_loopback() || own.is_unspecified() { self.first } else { own }
    }
}

/// A door that is kept open until all who are waited for are there. When this goes, the port is free: the ranks of a
/// further run, who come at once, find that run or nobody.
pub struct Door {
    listener: TcpListener,
    open: Arc<AtomicBool>,
    keeper: Option<JoinHandle<()>>,
}

impl Door {
    /// Each who comes is given to `admit`, on a thread of its own, and has some seconds to say who it is. What becomes of it
    /// is no business of this: strangers may knock at a port.
    pub fn open<F>(listener: TcpListener, admit: F) -> io::Result<Self>
    where
        F: Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
    {
        let (admit, open) = (Arc::new(admit), Arc::new(AtomicBool::new(true)));
        let (still_open, at_the_door) = (open.clone(), listener.try_clone()?);
        let keeper = thread::Builder::new().name("door".to_owned()).spawn(move || {
            while still_open.load(Ordering::Relaxed) {
                match at_the_door.accept() {
                    Ok((stream, _)) => {
                        let admit = admit.clone();
                        let guest = move || prepare(&stream).and_then(|()| admit(stream));
                        let _ = thread::Builder::new().name("rank".to_owned()).spawn(guest);
                    }
                    // Closed, or one who has gone again, or too many open files.
                    Err(_) => thread::sleep(REST),
                }
            }
        })?;
        Ok(Self { listener, open, keeper: Some(keeper) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.open.store(false, Ordering::Relaxed);
        // Nobody else ends the wait for a guest.
        if shutdown(&self.listener, Shutdown::Both).is_ok()
            && let Some(keeper) = self.keeper.take()
        {
            // It has nothing to say.
            let _ = keeper.join();
        }
    }
}

fn prepare(guest: &TcpStream) -> io::Result<()> {
    tune(guest)?;
    guest.set_read_timeout(Some(NAMED_WITHIN))
}

/// Listens at `meeting`, or at its port on all addresses where its host is not an address of this machine (a name
/// that is mapped, say).
pub fn listen_at(meeting: &str) -> io::Result<TcpListener> {
    let bind = || {
        let addresses: Vec<SocketAddr> = meeting.to_socket_addrs()?.collect();
        match TcpListener::bind(addresses.as_slice()) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                let port = addresses.first().map_or(0, SocketAddr::port);
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
            }
            result => result,
        }
    };
    bind().map_err(|error| {
        let what =
            format!("cannot listen at {meeting}: {error}; name rank 0's address with --rendezvous HOST:PORT");
        io::Error::new(error.kind(), what)
    })
}

/// Connects to a rank at `place`, where it may come later: tries until `patience` is over.
pub fn connect(
    rank: usize,
    place: &(impl ToSocketAddrs + Display),
    patience: Duration,
) -> io::Result<TcpStream> {
    let begin = Instant::now();
    loop {
        // A name may become known while a job starts, too.
        let tried = place.to_socket_addrs().and_then(|mut addresses| {
            let none = || io::Error::other("no such host");
            let address = addresses.next().ok_or_else(none)?;
            TcpStream::connect_timeout(&address, patience.max(TRY_EVERY))
        });
        match tried {
            Ok(stream) => {
                tune(&stream)?;
                return Ok(stream);
            }
            Err(error) if begin.elapsed() > patience => {
                return Err(told(&format!("cannot reach rank {rank} at"), place, &error));
            }
            Err(_) => thread::sleep(TRY_EVERY),
        }
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ASK_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, ASK_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, ASK_TIMES)?;
    Ok(sockopt::set_tcp_user_timeout(stream, UNANSWERED_MILLIS)?)
}

/// Lets a connection outlast the one to rank 0, if both are cut.
pub fn outlast(stream: &TcpStream) -> io::Result<()> {
    Ok(sockopt::set_tcp_user_timeout(stream, UNANSWERED_BETWEEN_MILLIS)?)
}

fn told(what: &str, place: &impl Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {place}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_only_its_own_machine_can_reach_is_where_rank_0_is() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let ways = Ways { own: ip("10.0.0.2"), first: ip("10.0.0.1") };
        for (own, to) in [
            ("10.0.0.3", "10.0.0.3"),
            ("fd00::3", "fd00::3"),
            ("127.0.0.1", "10.0.0.1"),
            ("127.0.1.1", "10.0.0.1"),
            ("::1", "10.0.0.1"),
            ("0.0.0.0", "10.0.0.1"),
            ("::", "10.0.0.1"),
        ] {
            assert_eq!(ways.to(ip(own)), ip(to), "{own}");
        }
    }

    #[test]
    fn a_door_that_closes_is_closed_at_once_and_its_port_is_free() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap();
        let (came, comes) = std::sync::mpsc::channel();
        let door =
            Door::open(listener, move |stream| came.send(stream.peer_addr()?).map_err(io::Error::other));
        let door = door.unwrap();
        let guest = connect(0, &place, TRY_EVERY).unwrap();
        assert_eq!(comes.recv().unwrap(), guest.local_addr().unwrap());
        drop(guest);
        drop(door);
        assert!(comes.recv().is_err(), "nobody is admitted any more");
        let error = connect(3, &place, Duration::ZERO).map(drop).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot reach rank 3 at {place}: ")), "{error}");
    }
}
