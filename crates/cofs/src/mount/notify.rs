//! Tells the service manager how we are: sd_notify(3) over the datagram socket in `NOTIFY_SOCKET`.

use std::{
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::Path,
};

use crate::output::printable;

/// Sends `state` (such as `READY=1`) and a line for people where a service manager listens; elsewhere nothing happens. Who serves goes on where
/// it cannot be told: only the manager waits for that.
pub fn notify(state: &str, status: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(&socket, &message(state, status)) {
        tracing::warn!(
            %error,
            ?socket,
            "the service manager was not told {state}, and all else goes on: NOTIFY_SOCKET names no socket of one"
        );
    }
}

/// One assignment a line: a name in `status` that holds a line feed must not begin another.
fn message(state: &str, status: &str) -> String {
    format!("{state}\nSTATUS={}", printable(status))
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let path = Path::new(socket);
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None if path.is_absolute() => SocketAddr::from_pathname(path)?,
        // Relative to what: in the background we stand elsewhere.
        None => return Err(io::Error::other("neither an absolute path nor @NAME")),
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_line() {
        assert_eq!(message("READY=1", "on /a\nMAINPID=1"), "READY=1\nSTATUS=on /a\\nMAINPID=1");
    }

    #[test]
    fn the_state_arrives_at_a_socket_with_a_path_and_at_an_abstract_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let abstract_name = format!("cofs-notify-test-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        for (listener, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str().to_owned()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{abstract_name}").into()),
        ] {
            send(&name, "READY=1").unwrap();
            let mut got = [0; 16];
            let len = listener.recv(&mut got).unwrap();
            assert_eq!(&got[..len], b"READY=1");
        }
    }
}
