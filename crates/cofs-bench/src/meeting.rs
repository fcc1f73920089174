//! How ranks on many nodes find each other: rank 0 listens at an address that all know, the others connect to it.
//! A node that is cut off is noticed by the kernel, which asks connections that are still.

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::SyncSender,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::net::sockopt;

use crate::crew::{Event, listen};

/// A connection on which nothing was heard is asked after this time, and then so often, this many times.
const ASK_AFTER: Duration = Duration::from_secs(2);
const ASK_EVERY: Duration = Duration::from_secs(1);
const ASK_TIMES: u32 = 4;
/// A connection is lost when what was sent is not acknowledged for so long.
const UNANSWERED_MILLIS: u32 = 6000;
/// How long somebody who connected may take to say who it is.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
/// Between two tries.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// The door that rank 0 keeps open until all are there. When this goes, the port is free: the ranks of a further run, who
/// come at once, find that run or nobody.
pub struct Door {
    open: Arc<AtomicBool>,
    keeper: Option<JoinHandle<()>>,
}

impl Door {
    /// Listens at `meeting`, or at its port on all addresses where its host is not an address of this machine
    /// (a name that is mapped, say).
    pub fn open(meeting: &str, events: SyncSender<Event>) -> io::Result<Self> {
        let listener = bind(meeting).map_err(|error| told("cannot listen at", meeting, &error))?;
        listener.set_nonblocking(true)?;
        let open = Arc::new(AtomicBool::new(true));
        let still_open = open.clone();
        let keeper = thread::Builder::new().name("door".to_owned()).spawn(move || {
            while still_open.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => admit(stream, &events),
                    Err(_) => thread::sleep(TRY_EVERY),
                }
            }
        })?;
        Ok(Self { open, keeper: Some(keeper) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.open.store(false, Ordering::Relaxed);
        if let Some(keeper) = self.keeper.take() {
            // It has nothing to say.
            let _ = keeper.join();
        }
    }
}

fn bind(meeting: &str) -> io::Result<TcpListener> {
    let addresses: Vec<SocketAddr> = meeting.to_socket_addrs()?.collect();
    match TcpListener::bind(addresses.as_slice()) {
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
            let port = addresses.first().map_or(0, SocketAddr::port);
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        result => result,
    }
}

/// Listens to somebody who connected; who never says who it is, is forgotten.
fn admit(stream: TcpStream, events: &SyncSender<Event>) {
    let events = events.clone();
    let _ = thread::Builder::new().name("rank".to_owned()).spawn(move || -> io::Result<()> {
        stream.set_nonblocking(false)?;
        tune(&stream)?;
        stream.set_read_timeout(Some(NAMED_WITHIN))?;
        let (to, named) = (stream.try_clone()?, stream.try_clone()?);
        // Strangers may knock at a port; they are no business of the run.
        let _ = listen(stream, Box::new(to), &events, || {
            let _ = named.set_read_timeout(None);
        });
        Ok(())
    });
}

/// Connects to rank 0, which may come later: tries until `patience` is over.
pub fn connect(meeting: &str, patience: Duration) -> io::Result<TcpStream> {
    let begin = Instant::now();
    loop {
        // A name may become known while a job starts, too.
        let tried = meeting.to_socket_addrs().and_then(|mut addresses| {
            let none = || io::Error::new(ErrorKind::NotFound, "no such host");
            let address = addresses.next().ok_or_else(none)?;
            TcpStream::connect_timeout(&address, patience.max(TRY_EVERY))
        });
        match tried {
            Ok(stream) => {
                tune(&stream)?;
                return Ok(stream);
            }
            Err(error) if begin.elapsed() > patience => {
                return Err(told("cannot reach rank 0 at", meeting, &error));
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

fn told(what: &str, meeting: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {meeting}: {error}"))
}
