//! Mounts the null file system until it is unmounted: `null [--transport auto|dev|uring] [--threads N] DIR`.

mod fs;
mod node;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use clap::{Parser, ValueEnum};
use cofs_fuse::{IdleCpus, MountOptions, Transport};

#[derive(Clone, Copy, ValueEnum)]
enum Way {
    Auto,
    Dev,
    Uring,
}

/// The null file system: what the interface itself can do.
#[derive(Parser)]
struct Arguments {
    /// Where to mount.
    dir: PathBuf,
    #[arg(long, default_value = "auto")]
    transport: Way,
    /// Workers on /dev/fuse; by default one per CPU.
    #[arg(long)]
    threads: Option<usize>,
    /// Have the kernel send FLUSH at each close.
    #[arg(long)]
    flush: bool,
    /// How long a sync takes, in milliseconds.
    #[arg(long, default_value_t = 0)]
    sync_ms: u64,
    /// How long a read of bytes takes, in microseconds: many go on at a time, as on a disk.
    #[arg(long, default_value_t = 0)]
    read_us: u64,
    /// Have the kernel check no permissions: no GETATTR of the parent at each create.
    #[arg(long)]
    unchecked: bool,
    /// Workers do not give way to busy clients on their CPUs.
    #[arg(long)]
    no_stacking: bool,
    /// Idle CPUs halt, whatever traffic there is.
    #[arg(long)]
    no_polling: bool,
    /// Keep access times (relatime): the first read after a change is asked for, and new files are written past the
    /// page cache, as by cofs.
    #[arg(long)]
    relatime: bool,
    /// Let other users in.
    #[arg(long)]
    allow_other: bool,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let transport = match arguments.transport {
        Way::Auto => Transport::Auto,
        Way::Dev => Transport::DevFuse,
        Way::Uring => Transport::Uring,
    };
    let options = MountOptions {
        fs_name: "null".into(),
        allow_other: arguments.allow_other,
        default_permissions: !arguments.unchecked,
        threads: arguments.threads,
        transport,
        stacking: !arguments.no_stacking,
        idle_cpus: if arguments.no_polling { IdleCpus::Halt } else { IdleCpus::Auto },
        ..Default::default()
    };
    let sync_takes = Duration::from_millis(arguments.sync_ms);
    let null = fs::NullFs::new(arguments.flush, move || std::thread::sleep(sync_takes));
    null.relatime.store(arguments.relatime, Ordering::Relaxed);
    null.read_us.store(arguments.read_us, Ordering::Relaxed);
    match cofs_fuse::mount(Arc::new(null), &arguments.dir, &options) {
        Ok(mount) => {
            eprintln!("{:?}", mount.report());
            let _ = mount.join();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("null: {error}");
            ExitCode::FAILURE
        }
    }
}
