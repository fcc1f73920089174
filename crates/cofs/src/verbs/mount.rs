//! `cofs mount`: serves a volume at a directory.
//!
//! Order: everything is checked; with -d the program starts itself again in the background; it becomes the supervisor and starts itself
//! once more, to serve (not with `norestart` or `auto_unmount`); the store is locked and opened; the mount is made; readiness is told; when the mount has gone, the volume is closed and
//! the lock let go, last.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use cofs_fs::{AtimeMode, Cofs, FileSystem, FsOptions, OpenTable, VolumeParts};
use cofs_fuse::{Handover, Mount, MountError, MountReport, Replaces, Resent};
use cofs_types::failpoint;
use rustix::{
    io::Errno,
    process::{Resource, configure_io_flusher_behavior, geteuid, getrlimit, getuid, setrlimit},
};
use serde_json::{Value, json};

use crate::{
    apart::{Part, refuse_file, refuse_point},
    failure::{Done, Failure, Within},
    mount::{
        connection::Connection,
        daemon, dead,
        estate::Estate,
        live,
        mountinfo::{self, Device, mounted_at},
        notify::notify,
        options::{Atime, IdleCpus, MountOptions, Transport},
        signals::Told,
        supervisor::{Inheritance, Line, supervise},
    },
    output::shell_word,
    staged::place_of,
    volume::{
        config::{self, INLINE_MAX_DEFAULT},
        format::{self, Plan},
        locality::Below,
        lock::Purpose,
        open::{Locked, find},
        sessions,
    },
};

/// Mount a volume on a directory.
///
/// Stays in the foreground until it is unmounted (cofs umount, umount, SIGTERM, SIGINT); with -d it goes
/// to the background as soon as the mount serves.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The volume's directory.
    pub store: PathBuf,

    /// The directory to mount it on.
    pub dir: PathBuf,

    /// Go to the background once the mount serves.
    #[arg(long = "daemon", short = 'd')]
    pub background: bool,

    /// Mount options, as in fstab: ro, rw, allow_other, default_permissions, suid, nosuid, dev, nodev, exec, noexec, noatime, relatime,
    /// strictatime, diratime, nodiratime, sync, async, dirsync, nonempty, fsname=NAME, transport=auto|uring|dev,
    /// threads=N, passthrough=on|off, handles=on|off, stacking=on|off, idle=auto|poll|halt, auto_unmount (goes when its process dies),
    /// restart (mounted anew when its process dies; the default), norestart, supervise (survives the death of its process, with all that is open; slower).
    #[arg(short = 'o', value_name = "WORDS")]
    pub options: Vec<String>,

    /// Format the volume first if STORE does not exist or is empty.
    #[arg(long)]
    pub create: bool,

    /// How the kernel's requests reach cofs.
    #[arg(long, value_enum, value_name = "HOW")]
    pub transport: Option<Transport>,

    /// Where messages go once the mount is in the background; otherwise to systemd's journal (journalctl -t cofs), if there is one. Not
    /// one of the volume's own, nor below the mount point.
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,

    /// Pass over unknown mount options (mount -s).
    #[arg(long, hide = true)]
    pub sloppy: bool,

    /// Check everything, mount nothing (mount -f).
    #[arg(long, hide = true)]
    pub fake: bool,
}

pub fn run(args: &Args) -> Done<ExitCode> {
    let options = parse_options(args)?;
    let line = Line::open().within("cannot hear the supervisor").map_err(|failure| {
        failure.next("COFS_SUPERVISED is for processes that a supervisor has started: unset it")
    })?;
    if let Some((line, Some(inheritance))) = line {
        return go_on(&options, line, inheritance).map(|()| ExitCode::SUCCESS);
    }
    let line = line.map(|(line, _)| line);
    if line.is_none() {
        daemon::refuse_mark()?;
    }
    // A dead mount stays until the next is made, so that nobody comes upon what lies below.
    let replaces = line.as_ref().map_or(Replaces::Nothing, Line::replaces);
    let replacing = line.as_ref().filter(|_| replaces != Replaces::Nothing);
    let dir = match replacing {
        Some(line) => line.point().to_owned(),
        None => check_mount_point(&args.dir, &args.store)?,
    };
    if let Some(line) = replacing.filter(|_| replaces == Replaces::Dead)
        && mountinfo::at(&dir)?.is_none()
    {
        say_taken_away(&dir);
        return line.over().within("cannot tell the supervisor").map(|()| ExitCode::SUCCESS);
    }
    refuse_swapped(&args.store, &args.dir)?;
    let planned = if args.create { plan(&args.store)? } else { None };
    let (store, mut parts) = match &planned {
        // All of it will lie there.
        Some(plan) => (plan.store.clone(), vec![(plan.store.clone(), "the store")]),
        None => find(&args.store).map(|found| (found.store.clone(), found.parts().collect()))?,
    };
    refuse_point(&dir, &parts)?;
    if options.survives() {
        [&store, &dir].into_iter().try_for_each(|path| config::refuse_no_text(path)).within("supervise")?;
    }
    // What serves in place of one before has that one's.
    parts.push((dir.clone(), "the mount point"));
    let log = if replacing.is_some() { None } else { open_log(args, &parts)? };
    if args.fake {
        return Ok(ExitCode::SUCCESS);
    }
    // Before the volume is opened, which may take a while.
    if replacing.is_none() {
        let point_options =
            cofs_fuse::MountOptions { non_empty: options.non_empty, ..cofs_fuse::MountOptions::default() };
        cofs_fuse::check(&dir, &point_options)?;
    }
    // Nothing is made for a mount that cannot be.
    if let Some(plan) = planned {
        format::format(&plan)?;
    }
    let found = find(&args.store)?;
    if args.background && !daemon::is_background() && line.is_none() {
        // Said here already, so that the lock's own words need not be read from a child.
        drop(found.lock_when_closed(purpose(&options))?);
        return daemon::start(&std::env::args_os().collect::<Vec<_>>());
    }
    if options.is_watched() && line.is_none() {
        return supervise(&found.store, options.source(&found.store), &dir, log.as_ref());
    }
    if daemon::is_background() {
        daemon::detach().within("cannot go to the background")?;
    }
    let locked = found.lock_when_closed(purpose(&options))?;
    let service = Service { options: &options, log: log.as_ref(), line: line.as_ref(), life: 0 };
    service.serve(locked, Start::Mount(&dir)).map(|()| ExitCode::SUCCESS)
}

/// Serves the mount that a process before this one has left. Nothing looks into it before it is served: whoever asks himself waits for ever.
fn go_on(options: &MountOptions, line: Line, inheritance: Inheritance) -> Done {
    let Inheritance { life, careful, parcel } = inheritance;
    let Estate { store, point, device, handover, lock } = Estate::unpack(parcel)?;
    let device = device.or_else(|| mounted_at(&point));
    // A directory above it may have been renamed.
    let now = |device| mountinfo::of_device(device, options.source(&store));
    let moved = device.map(now).transpose()?.flatten();
    let point = moved.map_or(point, |mount| mount.point);
    let locked = find(&store)?.take_over(lock, purpose(options))?;
    let service = Service { options, log: None, line: Some(&line), life };
    service.serve(
        locked,
        Start::Resume(handover, &point, device, if careful { Resent::Refused } else { Resent::Served }),
    )
}

fn parse_options(args: &Args) -> Done<MountOptions> {
    let mut options = MountOptions::default();
    for words in &args.options {
        options.add(words, args.sloppy)?;
    }
    if let (Some(one), Some(other)) = (args.transport, options.transport)
        && one != other
    {
        return Err(
            Failure::usage("--transport and `-o transport` contradict each other").next("name one of them")
        );
    }
    options.transport = args.transport.or(options.transport);
    options.refuse_contradictions()?;
    Ok(options)
}

/// Read-only is taken at its word: the store is not written, and need not be writable.
fn purpose(options: &MountOptions) -> Purpose {
    if options.read_only { Purpose::Look } else { Purpose::Change }
}

/// The dead mount that this one was to replace is gone, or this one is: who unmounts what nobody serves does not want it back.
fn say_taken_away(dir: &Path) {
    tracing::info!(point = %dir.display(), "unmounted while nobody served");
}

/// Where `store` is to be mounted.
fn check_mount_point(dir: &Path, store: &Path) -> Done<PathBuf> {
    let (shown, word) = (dir.display(), shell_word(dir));
    let dead = || {
        Failure::new(format!("a dead mount is on {shown}: its process has ended"))
            .next(format!("take it away first: cofs umount {word}"))
    };
    mountinfo::at(&std::path::absolute(dir)?)?.iter().try_for_each(live::refuse_stopped)?;
    let point = dir.canonicalize().map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT) if dir.is_symlink() => {
            Failure::new(format!("mount point {shown} is a symbolic link that leads nowhere"))
                .next("make the directory that it names, or name another")
        }
        Some(Errno::NOENT) => Failure::new(format!("mount point {shown} does not exist"))
            .next(format!("make it first: mkdir {word}")),
        Some(Errno::NOTCONN) => dead(),
        _ => Failure::io("cannot reach", dir, &error),
    })?;
    if let Some(mount) = mountinfo::at(&point)? {
        if mount.is_dead() {
            return Err(dead());
        }
        let next = match store.canonicalize().is_ok_and(|store| store == mount.source) {
            true => format!("unmount it first to have it there anew (cofs umount {word})"),
            false => "name another directory".to_owned(),
        };
        return Err(
            Failure::new(format!("{} is already mounted on {shown}", mount.source.display())).next(next)
        );
    }
    if !point.is_dir() {
        return Err(Failure::new(format!("mount point {shown} is not a directory")).next("name a directory"));
    }
    Ok(point)
}

/// Who has them the wrong way round would be told to format the directory that he mounts on.
fn refuse_swapped(store: &Path, dir: &Path) -> Done {
    if is_volume(store) || !is_volume(dir) {
        return Ok(());
    }
    let (store, dir) = (store.display(), dir.display());
    Err(Failure::new(format!("{store} is no volume, but {dir} is"))
        .next(format!("the store comes first: cofs mount {dir} {store}")))
}

fn is_volume(directory: &Path) -> bool {
    directory.join(config::FILE_NAME).exists()
}

/// What is to be formatted, if there is no volume yet.
fn plan(store: &Path) -> Done<Option<Plan>> {
    if is_volume(store) {
        return Ok(None);
    }
    let store = place_of(store).map_err(|error| Failure::io("cannot make the directory", store, &error))?;
    Ok(Some(Plan { store, meta: None, pools: Vec::new(), inline_max: INLINE_MAX_DEFAULT }))
}

fn open_log(args: &Args, not_in: &[Part]) -> Done<Option<File>> {
    let Some(path) = &args.log_file else { return Ok(None) };
    refuse_file(path, not_in)?;
    daemon::open_log(path).map(Some)
}

/// Where the mount comes from.
enum Start<'a> {
    /// It is made on this directory.
    Mount(&'a Path),
    /// It stands there, or did, and goes on.
    Resume(Handover, &'a Path, Option<Device>, Resent),
}

/// One life of a mount.
struct Service<'a> {
    options: &'a MountOptions,
    log: Option<&'a File>,
    /// To the supervisor, where there is one.
    line: Option<&'a Line>,
    /// How often the mount has been handed on.
    life: u32,
}

impl Service<'_> {
    fn serve(&self, mut locked: Locked, start: Start<'_>) -> Done {
        serve_where_memory_is_short();
        let told = Told::new().within("cannot wait for signals")?;
        raise_open_files();
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let opens = Arc::new(OpenTable::default());
        let drivers = locked.open(opens.clone())?;
        let below = locked.below();
        let volume = VolumeParts {
            metadata: drivers.metadata,
            placement: drivers.placement,
            opens,
            options: FsOptions { life: self.life, ..fs_options(&locked, below, self.options) },
        };
        let fs = Arc::new(Cofs::open(volume)?);
        fs.start_filler();
        let how = fuse_options(&locked, below, self.options, self.replaces());
        let _watched = match start {
            Start::Mount(dir) if self.options.auto_unmount => Some(dead::watch(dir).within("auto_unmount")?),
            _ => None,
        };
        let (new, resumed) = match start {
            Start::Mount(dir) => (Some(dir), None),
            Start::Resume(_, _, device, _) => (None, device),
        };
        let made = match start {
            Start::Mount(dir) => {
                let hand_on = |handover, point: &Path| self.hand_on(handover, point, &locked);
                cofs_fuse::mount_handing_on(Arc::clone(&fs), dir, &how, || self.lays_bare(), hand_on)
            }
            Start::Resume(handover, point, _, resent) => {
                cofs_fuse::resume(Arc::clone(&fs), handover, point, &how, resent)
            }
        };
        let mount = match made {
            Ok(mount) => mount,
            Err(error) => {
                let closed = cofs_fs::run(fs.detach());
                drop(fs);
                drop(locked);
                closed?;
                return self.not_made(error, new);
            }
        };
        for pool in fs.pools_away() {
            tracing::warn!(pool, "files there cannot be had for now");
        }
        let device = resumed.or_else(|| mounted_at(mount.point()));
        fs.set_report(self.report(&mount));
        let open_files = Arc::downgrade(&fs);
        let write_out = move || {
            if let Some(fs) = open_files.upgrade() {
                fs.write_out();
            }
        };
        let served = self.serve_until_gone(mount, device, &mut locked, told, write_out);
        drop(fs);
        drop(locked);
        self.over()?;
        served
    }

    fn replaces(&self) -> Replaces {
        self.line.map_or(Replaces::Nothing, Line::replaces)
    }

    /// From here on the dead mount may be gone, though nobody has unmounted it.
    fn lays_bare(&self) -> io::Result<()> {
        self.line.map_or(Ok(()), Line::replacing)
    }

    /// The volume is closed, and its threads have ended: there is a process for the helper that takes down what could not be served for want of one
    /// (under a supervisor there may be none yet: that one does it).
    fn not_made(&self, error: MountError, new: Option<&Path>) -> Done {
        if let (MountError::NotStarted(_), Some(dir), None) = (&error, new, self.line)
            && let Err(failure) = dead::take_away(dir)
        {
            tracing::warn!(%failure, "the failed mount stays");
        }
        match error {
            MountError::TakenAway(point) if self.replaces() != Replaces::Nothing => {
                say_taken_away(&point);
                dead::take_away(&point)?;
                self.over()
            }
            error => Err(error.into()),
        }
    }

    fn over(&self) -> Done {
        let Some(line) = self.line else { return Ok(()) };
        line.over().within("cannot tell the supervisor that the mount has ended")
    }

    /// From the mount made to the mount gone.
    fn serve_until_gone(
        &self,
        mount: Mount,
        device: Option<Device>,
        locked: &mut Locked,
        told: Told,
        write_out: impl Fn() + Send + 'static,
    ) -> Done {
        failpoint("cofs.mount.served");
        let report = mount.report();
        tracing::info!(point = %mount.point().display(), life = self.life, ?report, "serving");
        warn_of_what_is_not_had(self.options, report);
        told.unmount(device.map(Connection::of), write_out);
        self.ready(&locked.store, mount.point(), device)?;
        let closed = mount.join();
        notify("STOPPING=1", "Closed");
        closed.within("the volume could not be closed in order").map_err(|failure| {
            let failure =
                failure.next(format!("cofs status {} tells how its pools are", locked.store.display()));
            locked.closes_with(&failure);
            failure
        })
    }

    /// Gives the supervisor what the next life needs.
    fn hand_on(&self, handover: Handover, point: &Path, locked: &Locked) -> io::Result<()> {
        let Some(line) = self.line else { return Ok(()) };
        let (store, device, point) = (locked.store.clone(), mounted_at(point), point.to_owned());
        line.keep(&Estate { store, point, device, handover, lock: locked.lock()? }.pack()?)
    }

    /// Tells whoever waits, and goes to the background where that was asked.
    fn ready(&self, store: &Path, point: &Path, device: Option<Device>) -> Done {
        notify("READY=1", &format!("Serving {} on {}", store.display(), point.display()));
        let Some(line) = self.line else {
            return if daemon::is_background() {
                daemon::ready(self.log).within("cannot go to the background")
            } else {
                Ok(())
            };
        };
        // Signals of the terminal go to the supervisor, and come from there. It fails only for one that leads a session already.
        let _ = rustix::process::setsid();
        if daemon::is_background() && self.life == 0 && self.replaces() == Replaces::Nothing {
            daemon::let_go(self.log).within("cannot go to the background")?;
        }
        line.ready(device).within("cannot tell the supervisor")
    }

    /// What `cofs status` shows of the mount.
    fn report(&self, mount: &Mount) -> String {
        let report = mount.report();
        let supervisor = self.line.and_then(|_| rustix::process::getppid()).map(|pid| pid.as_raw_nonzero());
        let survives = supervisor.is_some() && self.options.survives();
        let stacking = report.stacking.as_ref().err().map_or("the scheduler lets us", String::as_str);
        // Of what is not had, the option is the cause, and what the face says the reason.
        let because =
            |reason: &str| if survives { format!("supervise: {reason}") } else { reason.to_owned() };
        let mut told = json!({
            "point": mount.point().to_string_lossy(),
            "supervisor": supervisor,
            "survives": survives,
            "life": self.life,
            "transport": match report.transport {
                cofs_fuse::Transport::Uring => "uring",
                _ => "dev",
            },
            "transport_reason": because(&report.reason),
            "fuse_protocol": format!("7.{}", report.protocol_minor),
            "passthrough": report.passthrough,
            "threads": report.threads,
            "stacking": report.stacking.is_ok(),
            "stacking_reason": because(stacking),
            "polling": report.polling.is_ok(),
            "polling_reason": report.polling.as_ref().err().map_or("idle CPUs poll while requests come", String::as_str),
            "transfer_bytes": report.transfer_bytes,
            "read_only": self.options.read_only,
        });
        if let (Some(told), Value::Object(mine)) = (told.as_object_mut(), sessions::mine()) {
            told.extend(mine);
        }
        told.to_string()
    }
}

fn warn_of_what_is_not_had(options: &MountOptions, report: &MountReport) {
    if options.transport == Some(Transport::Uring) && report.transport != cofs_fuse::Transport::Uring {
        tracing::warn!(reason = report.reason, "io_uring cannot be had: /dev/fuse serves");
    }
    if options.passthrough == Some(true) && !report.passthrough {
        let reason = if options.survives() {
            "it does not survive the process that serves"
        } else {
            "it needs root and Linux 6.9"
        };
        tracing::warn!(reason, "passthrough cannot be had: all bytes go through cofs");
    }
    if options.stacking == Some(true)
        && let Err(reason) = &report.stacking
    {
        tracing::warn!(reason, "workers cannot stack on their clients' CPUs");
    }
    if options.idle_cpus == Some(IdleCpus::Poll)
        && let Err(reason) = &report.polling
    {
        tracing::warn!(reason, "idle CPUs cannot be kept from halting");
    }
}

fn fs_options(locked: &Locked, below: Below, options: &MountOptions) -> FsOptions {
    FsOptions {
        read_only: options.read_only,
        atime: match options.atime {
            Atime::Never => AtimeMode::Never,
            Atime::Relative => AtimeMode::Relatime,
            Atime::Always => AtimeMode::Strict,
        },
        owner_uid: geteuid().as_raw(),
        volume: locked.config.uuid.to_string(),
        remote_below: below.remote,
        life: 0,
        // (Over a network a lease is the server's to give.)
        open_elsewhere: (!below.remote).then_some(cofs_fuse::is_open_elsewhere),
    }
}

fn fuse_options(
    locked: &Locked,
    below: Below,
    options: &MountOptions,
    replaces: Replaces,
) -> cofs_fuse::MountOptions {
    let is_root = geteuid().is_root();
    cofs_fuse::MountOptions {
        fs_name: options.source(&locked.store).into(),
        allow_other: options.allow_other,
        default_permissions: options.default_permissions || options.allow_other || !is_above_permissions(),
        subtype: "cofs",
        read_only: options.read_only,
        no_suid: !options.suid.unwrap_or(is_root),
        no_dev: !options.dev.unwrap_or(is_root),
        no_exec: !options.exec.unwrap_or(true),
        no_atime: options.atime == Atime::Never,
        no_dir_atime: options.no_dir_atime,
        sync: options.sync,
        dir_sync: options.dir_sync,
        non_empty: options.non_empty,
        replaces,
        threads: options.threads.map(usize::from),
        transport: match options.transport.unwrap_or_default() {
            Transport::Auto => cofs_fuse::Transport::Auto,
            Transport::Uring => cofs_fuse::Transport::Uring,
            Transport::Dev => cofs_fuse::Transport::DevFuse,
        },
        // The kernel opens a file of its own below for each open here, writes through that, and lets go of it without
        // a FLUSH: to a FUSE server that is a handle which nobody flushes or syncs. MooseFS 3 then tells the size of
        // before for a while after the close, which would be taken for the file's, and our fsync is of another handle.
        passthrough: options.passthrough.unwrap_or(!below.fuse),
        handles: options.handles.unwrap_or(true),
        stacked_below: below.stacked,
        stacking: options.stacking.unwrap_or(true),
        idle_cpus: match options.idle_cpus.unwrap_or_default() {
            IdleCpus::Auto => cofs_fuse::IdleCpus::Auto,
            IdleCpus::Poll => cofs_fuse::IdleCpus::Poll,
            IdleCpus::Halt => cofs_fuse::IdleCpus::Halt,
        },
        background: background().map(str::to_owned).collect(),
        over_network: below.remote || locked.is_metadata_remote(),
        survives: options.survives(),
    }
}

/// Whether this user's requests are granted whatever the modes say, so that the kernel need not check those of a mount that is his alone: root, and
/// not within a user namespace, where he is so only for some.
fn is_above_permissions() -> bool {
    let whole = |map: String| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    getuid().is_root() && std::fs::read_to_string("/proc/self/uid_map").is_ok_and(whole)
}

/// The threads of all rooms that nobody waits for.
fn background() -> impl Iterator<Item = &'static str> {
    let rooms = [
        cofs_engine::BACKGROUND_THREADS,
        cofs_metadata::BACKGROUND_THREADS,
        cofs_placement::BACKGROUND_THREADS,
        cofs_fs::BACKGROUND_THREADS,
    ];
    rooms.into_iter().flatten().copied()
}

/// Who wants memory has the kernel write out what others have changed, and wait for it: this process would wait for pages of its own
/// volume, which wait for it. And whoever writes is held up while much is to be written anywhere, here to a pool that is slow, say. A process
/// that file systems stand on can be let off both (Linux 5.6), by `CAP_SYS_RESOURCE`. Threads have it from the one that starts
/// them, so that it comes before all others.
fn serve_where_memory_is_short() {
    if let Err(error) = configure_io_flusher_behavior(true) {
        tracing::debug!(%error, "not an IO_FLUSHER");
    }
}

/// Every open file below needs a descriptor here.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) =
        setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!(%error, "the limit on open files could not be raised");
    }
}
