//! Getting a connection onto a mount point, and off it again.
//!
//! With `CAP_SYS_ADMIN` the mount is made here; without, `fusermount3` (set-uid) makes it and passes the
//! descriptor back over a socket. Both report what is wrong in words that say what to do.

mod beneath;
mod error;
mod held;

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use cofs_types::failpoint;
use rustix::{
    fs::OFlags,
    io::Errno as Failure,
    mount::{MountFlags, UnmountFlags},
    net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType},
};

pub use self::{error::MountError, held::HeldMount};
use crate::{idle::IdleCpus, passthrough::privileged};

const DEVICE: &str = "/dev/fuse";
/// Its major and minor number (`MISC_MAJOR`, `FUSE_MINOR` in `linux/miscdevice.h`).
const DEVICE_NUMBER: (u32, u32) = (10, 229);
/// Mounts for those who may not.
const HELPER: &str = "fusermount3";

/// Which transport carries the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// io_uring where the kernel, its settings and the sandbox allow it, else `/dev/fuse`.
    #[default]
    Auto,
    DevFuse,
    /// io_uring asked for by name; where it cannot be had, `/dev/fuse` serves and the report says why.
    Uring,
}

/// What a mount is to take the place of.
///
/// Nobody sees the directory below between the two mounts; where the kernel cannot do that for us (before Linux 6.5; without `CAP_SYS_ADMIN`) it is
/// seen for as long as two calls take. It is not looked into. A mount in the place of a dead one that fails itself stays, dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replaces {
    /// No mount of this type may stand there.
    #[default]
    Nothing,
    /// One of this type that nobody serves any more. If there is none, somebody has taken it away, and none is made.
    Dead,
    /// The same, or nothing: the process before this one may have ended where the directory was seen.
    DeadOrNothing,
}

/// How to mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// What the mount table shows as the source.
    pub fs_name: OsString,
    /// The mount table shows the type `fuse.subtype`. A second mount of one type at one point is refused.
    pub subtype: &'static str,
    /// Other users may enter (needs `user_allow_other` in `/etc/fuse.conf` for the unprivileged).
    pub allow_other: bool,
    /// The kernel checks permissions, and asks for a directory's attributes before each change in it. Without it every operation comes with
    /// `Authority::Unchecked`, but nobody checks the way through directories that the kernel has cached: for a mount of one user, of whom
    /// what he does as another is refused then, unless others may enter.
    pub default_permissions: bool,
    pub read_only: bool,
    pub no_suid: bool,
    pub no_dev: bool,
    pub no_exec: bool,
    pub no_atime: bool,
    pub no_dir_atime: bool,
    pub sync: bool,
    pub dir_sync: bool,
    /// Mount over a directory that has entries: they are hidden while the mount stands.
    pub non_empty: bool,
    pub replaces: Replaces,
    /// Workers on `/dev/fuse`; `None`: one per CPU, or over a network one for each request in hand. With fewer there they do not wait themselves.
    pub threads: Option<usize>,
    pub transport: Transport,
    /// The kernel may do the I/O of large files itself, where this process may let it (`CAP_SYS_ADMIN`).
    pub passthrough: bool,
    /// The files that it does that on lie on a file system that lies on another one, such as an overlay. Then nothing can be stacked
    /// on this mount; otherwise it can be a layer of an overlay (the kernel allows a stack of two).
    pub stacked_below: bool,
    /// Files can be found by handles (`open_by_handle_at(2)`, NFS), after the kernel has forgotten them, too. Overlayfs holds on to what it finds
    /// by them, which newer kernels then take for stale: `docs/design/fuse.md`.
    pub handles: bool,
    /// Workers may give way to busy clients on their CPUs (io_uring; needs `CAP_SYS_NICE`).
    pub stacking: bool,
    /// What idle CPUs do while requests come (PM QoS: needs write access to `/dev/cpu_dma_latency`).
    pub idle_cpus: IdleCpus,
    /// Names of this process's threads that work in the background. They give way too while workers do: an ordinary thread would
    /// starve those.
    pub background: Vec<String>,
    /// Whatever the file system does may have to wait for a network. Then each request in hand has a worker of its own, which waits itself, so
    /// that nobody else does; otherwise few serve many, and the file system says where it may wait ([`cofs_face::blocking`]).
    pub over_network: bool,
    /// The mount is to outlive this process, with its open files and its requests in hand: another process holds what
    /// [`crate::mount_handing_on`] gives, and a later one goes on with it ([`crate::resume`]). `/dev/fuse` serves, and all bytes
    /// go through this process: see `docs/design/fuse.md`.
    pub survives: bool,
}

impl MountOptions {
    pub(crate) fn fs_type(&self) -> String {
        format!("fuse.{}", self.subtype)
    }
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            fs_name: "cofs".into(),
            subtype: "cofs",
            allow_other: false,
            default_permissions: true,
            read_only: false,
            no_suid: false,
            no_dev: false,
            no_exec: false,
            no_atime: false,
            no_dir_atime: false,
            sync: false,
            dir_sync: false,
            non_empty: false,
            replaces: Replaces::Nothing,
            threads: None,
            transport: Transport::Auto,
            passthrough: true,
            handles: true,
            stacked_below: false,
            stacking: true,
            idle_cpus: IdleCpus::Auto,
            background: Vec::new(),
            over_network: false,
            survives: false,
        }
    }
}

/// Whether a mount could be made on `point`, as far as can be told without making it: for callers whose preparations are long.
/// Errors: those of [`mount`](crate::mount()) that come from the point, the device and `fusermount3`.
pub fn check(point: &Path, options: &MountOptions) -> Result<(), MountError> {
    check_point(point, options)?;
    if privileged() {
        return open_device().map(drop);
    }
    check_device_for_helper()?;
    find_helper().map(drop).ok_or(MountError::FusermountMissing)
}

/// Checks the mount point and mounts a fresh connection on it. Returns the connection and the resolved point. `lays_bare` is told before a dead mount
/// goes with nothing in its place yet.
pub(crate) fn attach(
    point: &Path,
    options: &MountOptions,
    lays_bare: impl FnOnce() -> io::Result<()>,
) -> Result<(OwnedFd, PathBuf), MountError> {
    let replaces = options.replaces != Replaces::Nothing;
    if replaces
        && privileged()
        && let Some(connection) = beneath::replace_dead(point, options)?
    {
        return Ok((connection, point.to_owned()));
    }
    let point = if replaces { make_room(point, options, lays_bare)? } else { check_point(point, options)? };
    let connection =
        if privileged() { mount_directly(&point, options)? } else { mount_by_helper(&point, options)? };
    Ok((connection, point))
}

/// Takes dead mounts away; `point` is absolute. The directory need not be as it was: who was
/// at work in the mount may have put something there, which is hidden.
fn make_room(
    point: &Path,
    options: &MountOptions,
    lays_bare: impl FnOnce() -> io::Result<()>,
) -> Result<PathBuf, MountError> {
    let fs_type = options.fs_type();
    let stands = || mounted_as(point).is_ok_and(|kind| kind.is_some_and(|kind| kind == fs_type));
    let taken_away = || Err(MountError::TakenAway(point.into()));
    if options.replaces == Replaces::Dead && !stands() {
        return taken_away();
    }
    lays_bare().map_err(MountError::NotHandedOn)?;
    failpoint("cofs.replace.told");
    let failed = |source: io::Error| MountError::Mount { point: point.into(), source };
    let mut had_dead = false;
    while stands() {
        let held = HeldMount::at(point).map_err(failed)?;
        if !held.is_dead() {
            break;
        }
        had_dead = held.take_away().map_err(failed)?;
        held.let_go();
        if !had_dead {
            return taken_away();
        }
    }
    failpoint("cofs.replace.taken_away");
    // Somebody else's.
    if stands() {
        return Err(MountError::PointInUse(point.into()));
    }
    if options.replaces == Replaces::Dead && !had_dead {
        return taken_away();
    }
    Ok(point.to_owned())
}

fn check_point(point: &Path, options: &MountOptions) -> Result<PathBuf, MountError> {
    let at = |source: io::Error| match source.raw_os_error() {
        Some(libc::ENOENT) => MountError::PointMissing(point.into()),
        Some(libc::ENOTDIR) => MountError::PointNotDirectory(point.into()),
        Some(libc::ENOTCONN) => MountError::PointStale(point.into()),
        _ => MountError::Point { point: point.into(), source },
    };
    let metadata = std::fs::metadata(point).map_err(at)?;
    if is_dead(point) {
        return Err(MountError::PointStale(point.into()));
    }
    if !metadata.is_dir() {
        return Err(MountError::PointNotDirectory(point.into()));
    }
    let resolved = point.canonicalize().map_err(at)?;
    if mounted_as(&resolved).map_err(at)?.is_some_and(|kind| kind == options.fs_type()) {
        return Err(MountError::PointInUse(point.into()));
    }
    if !options.non_empty && std::fs::read_dir(&resolved).map_err(at)?.next().is_some() {
        return Err(MountError::PointNotEmpty(point.into()));
    }
    Ok(resolved)
}

/// Whether a mount stands there that nobody serves. Asks for the space, which no kernel answers from memory
/// as it does with attributes.
fn is_dead(point: &Path) -> bool {
    rustix::fs::statfs(point).is_err_and(is_end)
}

/// The latter two if the connection ends meanwhile.
fn is_end(error: Failure) -> bool {
    matches!(error, Failure::NOTCONN | Failure::CONNABORTED | Failure::CANCELED)
}

/// As [`is_dead`], and it is one of this type. What else stands there is not looked into: a service manager that mounts at the first
/// access (autofs) would take that for one.
pub(crate) fn is_dead_mount(point: &Path, fs_type: &str) -> bool {
    mounted_as(point).is_ok_and(|kind| kind.as_deref() == Some(fs_type)) && is_dead(point)
}

/// The type of the file system whose root stands at `point`; the topmost where several do.
fn mounted_as(point: &Path) -> io::Result<Option<String>> {
    Ok(all_mounted(point)?.pop())
}

/// The types of all whose roots stand at `point`, from the mount table, the topmost last.
fn all_mounted(point: &Path) -> io::Result<Vec<String>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let kind = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let at = unescape(fields.nth(4)?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        (at == point.as_os_str().as_encoded_bytes()).then(|| String::from_utf8_lossy(kind).into_owned())
    };
    Ok(table.split(|byte| *byte == b'\n').filter_map(kind).collect())
}

/// Undoes the mount table's octal escapes (proc(5)).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut left = field;
    while let Some((&first, rest)) = left.split_first() {
        let escaped = rest.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                left = rest.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(first);
                left = rest;
            }
        }
    }
    bytes
}

fn open_device() -> Result<OwnedFd, MountError> {
    let opened = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, rustix::fs::Mode::empty());
    let device = opened.map_err(|error| match error {
        Failure::NOENT | Failure::NXIO | Failure::NODEV => MountError::DeviceMissing,
        Failure::ACCESS | Failure::PERM => MountError::DeviceNotPermitted,
        Failure::ISDIR => MountError::DeviceWrong,
        error => MountError::Device(error.into()),
    })?;
    let status = rustix::fs::fstat(&device).map_err(|error| MountError::Device(error.into()))?;
    // Else mount(2) says EINVAL, as of anything.
    let number = (rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev));
    if number == DEVICE_NUMBER { Ok(device) } else { Err(MountError::DeviceWrong) }
}

/// Said before the helper is asked, because its own words for it are obscure. Whether this user may open the device is
/// no matter: the helper opens it with its own rights.
fn check_device_for_helper() -> Result<(), MountError> {
    match open_device() {
        Err(error @ (MountError::DeviceMissing | MountError::DeviceWrong)) => Err(error),
        _ => Ok(()),
    }
}

fn mount_directly(point: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |source: io::Error| MountError::Mount { point: point.into(), source };
    let device = open_device()?;
    let root = std::fs::metadata(point).map_err(failed)?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!(
        "fd={},rootmode={:o},user_id={uid},group_id={gid}",
        device.as_raw_fd(),
        root.mode() & libc::S_IFMT
    );
    for (set, word) in
        [(options.allow_other, ",allow_other"), (options.default_permissions, ",default_permissions")]
    {
        if set {
            data.push_str(word);
        }
    }
    let data = std::ffi::CString::new(data).map_err(|error| failed(error.into()))?;
    let fs_type = options.fs_type();
    rustix::mount::mount(&*options.fs_name, point, fs_type, mount_flags(options), Some(data.as_c_str()))
        .map_err(|error| failed(error.into()))?;
    Ok(device)
}

fn mount_flags(options: &MountOptions) -> MountFlags {
    [
        (options.read_only, MountFlags::RDONLY),
        (options.no_suid, MountFlags::NOSUID),
        (options.no_dev, MountFlags::NODEV),
        (options.no_exec, MountFlags::NOEXEC),
        (options.no_atime, MountFlags::NOATIME),
        (options.no_dir_atime, MountFlags::NODIRATIME),
        (options.sync, MountFlags::SYNCHRONOUS),
        (options.dir_sync, MountFlags::DIRSYNC),
    ]
    .into_iter()
    .filter_map(|(set, flag)| set.then_some(flag))
    .collect()
}

/// What `fusermount3 -o` is told. It escapes nothing: commas and backslashes in a name are escaped here.
fn helper_options(options: &MountOptions) -> OsString {
    let mut words = b"fsname=".to_vec();
    for byte in options.fs_name.as_bytes() {
        if b"\\,".contains(byte) {
            words.push(b'\\');
        }
        words.push(*byte);
    }
    words.extend(b",subtype=");
    words.extend(options.subtype.as_bytes());
    for (set, word) in [
        (options.allow_other, ",allow_other"),
        (options.default_permissions, ",default_permissions"),
        (options.read_only, ",ro"),
        (options.no_suid, ",nosuid"),
        (options.no_dev, ",nodev"),
        (options.no_exec, ",noexec"),
        (options.no_atime, ",noatime"),
        (options.sync, ",sync"),
        (options.dir_sync, ",dirsync"),
    ] {
        if set {
            words.extend(word.as_bytes());
        }
    }
    OsString::from_vec(words)
}

fn mount_by_helper(point: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    check_device_for_helper()?;
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|error| MountError::Device(error.into()))?;
    let number = theirs.as_raw_fd();
    let mut command = helper();
    command.arg("-o").arg(helper_options(options)).arg("--").arg(point);
    command
        .env("_FUSE_COMMFD", number.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: between fork and exec only fcntl(2) is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            if libc::fcntl(number, libc::F_SETFD, 0) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        });
    }
    let child = command.spawn().map_err(helper_failed)?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(helper_failed)?;
    match received {
        Ok(Some(device)) if output.status.success() => Ok(device),
        Err(error) => Err(MountError::Device(error)),
        _ => Err(refused_by_helper(said(&output.stderr))),
    }
}

fn helper() -> Command {
    Command::new(find_helper().unwrap_or_else(|| HELPER.into()))
}

/// By the caller's PATH; where he has none, as some services, where distributions put it.
fn find_helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin:/usr/local/bin".into());
    let directories = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    directories.map(|directory| directory.join(HELPER)).find(|helper| helper.is_file())
}

fn helper_failed(error: io::Error) -> MountError {
    match error.kind() {
        io::ErrorKind::NotFound => MountError::FusermountMissing,
        io::ErrorKind::WouldBlock => MountError::NotStarted(error),
        _ => MountError::Fusermount(error.to_string()),
    }
}

fn refused_by_helper(words: String) -> MountError {
    if words.contains("/dev/fuse") && words.contains("Permission denied") {
        return MountError::DeviceNotPermitted;
    }
    if words.contains("mount failed") && words.contains("Operation not permitted") {
        return MountError::FusermountNotPermitted;
    }
    if words.contains("no write access") {
        return MountError::PointNotYours(words);
    }
    MountError::Fusermount(words)
}

/// The last line of what the helper printed, less its name.
fn said(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().last().unwrap_or("it failed and said nothing").trim();
    line.split_once(": ").map_or(line, |(_, rest)| rest).to_owned()
}

/// `None` when the helper went away without sending one.
fn receive_descriptor(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    loop {
        let into = &mut [io::IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Failure::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => break,
        }
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// How to take a mount down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmount {
    /// Fails with EBUSY while something in it is open or anybody's working directory.
    IfUnused,
    /// The tree disappears at once; the mount ends when its last file is closed.
    Lazily,
    /// Its requests fail from now on; then as `IfUnused`. For root.
    Forcibly,
}

/// Takes down the mount at `point`, stale ones included. Errors: EBUSY, EINVAL (no mount), EPERM.
pub fn unmount(point: &Path, how: Unmount) -> io::Result<()> {
    let how_flag = match how {
        Unmount::IfUnused => UnmountFlags::empty(),
        Unmount::Lazily => UnmountFlags::DETACH,
        Unmount::Forcibly => UnmountFlags::FORCE,
    };
    match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW | how_flag) {
        Ok(()) => Ok(()),
        Err(Failure::PERM) => unmount_by_helper(point, how),
        Err(error) => Err(error.into()),
    }
}

fn unmount_by_helper(point: &Path, how: Unmount) -> io::Result<()> {
    let mut command = helper();
    command.arg("-u");
    if how == Unmount::Lazily {
        command.arg("-z");
    }
    let output = command.arg("--").arg(point).stdin(Stdio::null()).output().map_err(without_helper)?;
    if output.status.success() {
        return Ok(());
    }
    let words = said(&output.stderr);
    if words.contains("busy") { Err(Failure::BUSY.into()) } else { Err(io::Error::other(words)) }
}

/// What is not there is the helper, not the mount.
fn without_helper(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::other("fusermount3 not found: install fuse3, or unmount as root")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(point: &Path) -> MountError {
        check_point(point, &MountOptions::default()).unwrap_err()
    }

    #[test]
    fn a_bad_mount_point_is_refused_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(refused(&dir.path().join("absent")), MountError::PointMissing(_)));
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(matches!(refused(&file), MountError::PointNotDirectory(_)));
        assert!(matches!(refused(&file.join("below")), MountError::PointNotDirectory(_)));
        assert!(matches!(refused(dir.path()), MountError::PointNotEmpty(_)));
        let over = MountOptions { non_empty: true, ..Default::default() };
        assert!(check_point(dir.path(), &over).is_ok());
    }

    #[test]
    fn the_mount_table_is_read_with_its_escapes() {
        assert_eq!(unescape(br"/mnt/with\040space\134"), b"/mnt/with space\\");
        assert_eq!(unescape(br"/plain\9"), b"/plain\\9");
        assert_eq!(mounted_as(Path::new("/proc")).unwrap().as_deref(), Some("proc"));
        assert_eq!(mounted_as(Path::new("/no such mount")).unwrap(), None);
    }

    #[test]
    fn what_the_helper_says_is_told_with_what_to_do() {
        let told = |words: &str| refused_by_helper(words.to_owned()).to_string();
        assert!(
            told("user has no write access to mountpoint /x")
                .ends_with("/x: mount on a directory of your own, or as root")
        );
        assert!(told("failed to open /dev/fuse: Permission denied").contains("access to the device"));
        assert!(told("mount failed: Operation not permitted").contains("as root"));
        assert_eq!(told("anything else"), "fusermount3: anything else");
    }

    #[test]
    fn a_name_cannot_smuggle_options_to_the_helper() {
        let options = MountOptions { fs_name: "a,allow_other\\".into(), ..Default::default() };
        assert_eq!(helper_options(&options), r"fsname=a\,allow_other\\,subtype=cofs,default_permissions");
    }
}
