//! A volume in memory over a directory, driven without a kernel.

#![allow(dead_code)]

use std::{
    fs::File,
    os::{fd::BorrowedFd, unix::fs::FileExt},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cofs_engine::{Engine, MemoryEngine};
use cofs_fs::{
    BackingId, Cofs, Context, DataPath, Entry, FaceAbilities, FileSystem, FsOptions, OpenTable, Opened,
    Passthrough, Recall, VolumeParts, WriteFlags, run,
};
use cofs_metadata::{LocalDriver, MetadataDriver, VolumeOptions};
use cofs_namespace::Namespace;
use cofs_placement::{DirectoryStore, FaultyStore, FoundObject, Placement, PoolConfig, Tier};
use cofs_types::{
    AccessMode, Attributes, Credentials, FileKind, FsResult, InodeId, Layout, Name, NewInode, OpenFlags,
    PoolId, SetAttributes, Timestamp,
};
use parking_lot::Mutex;
use tempfile::TempDir;
use uuid::Uuid;

pub const INLINE_MAX: usize = 16 << 10;
pub const CONTEXT: Context<'static> = Context { credentials: Credentials::ROOT, pid: 1 };
pub const RW: OpenFlags = OpenFlags::new(AccessMode::ReadWrite);
pub const WO: OpenFlags = OpenFlags::new(AccessMode::Write);
pub const RO: OpenFlags = OpenFlags::new(AccessMode::Read);

pub fn name(text: &str) -> &Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn new_file(permissions: u16) -> NewInode<'static> {
    NewInode { kind: FileKind::Regular, permissions, umask: 0, rdev: 0, target: b"" }
}

pub fn new_directory() -> NewInode<'static> {
    NewInode { kind: FileKind::Directory, ..new_file(0o755) }
}

/// What the kernel would do with registered files.
#[derive(Default)]
pub struct FakeKernel {
    next: AtomicU32,
    pub files: Mutex<Vec<(BackingId, File)>>,
    pub refuse: Mutex<Option<i32>>,
    /// Some program has a mapping of each.
    pub mapped: AtomicBool,
}

impl Passthrough for FakeKernel {
    fn register(&self, file: BorrowedFd<'_>) -> std::io::Result<BackingId> {
        if let Some(errno) = *self.refuse.lock() {
            return Err(std::io::Error::from_raw_os_error(errno));
        }
        let id = BackingId(self.next.fetch_add(1, Ordering::Relaxed) + 1);
        self.files.lock().push((id, file.try_clone_to_owned()?.into()));
        Ok(id)
    }

    fn unregister(&self, id: BackingId) {
        self.files.lock().retain(|(known, _)| *known != id);
    }

    fn is_open_elsewhere(&self, _: BorrowedFd<'_>) -> bool {
        self.mapped.load(Ordering::Relaxed)
    }
}

impl FakeKernel {
    pub fn write(&self, id: BackingId, offset: u64, data: &[u8]) {
        let files = self.files.lock();
        let (_, file) = files.iter().find(|(known, _)| *known == id).unwrap();
        file.write_all_at(data, offset).unwrap();
    }
}

/// What the kernel was told to forget: inodes, names, and whether it is late to do so.
#[derive(Default)]
pub struct Recalls(pub Mutex<Vec<InodeId>>, pub Mutex<Vec<Vec<u8>>>, pub AtomicBool);

impl Recall for Recalls {
    fn attributes(&self, _: InodeId) {}
    fn data(&self, ino: InodeId) {
        self.0.lock().push(ino);
    }
    fn entry(&self, _: InodeId, name: &Name) {
        self.1.lock().push(name.as_bytes().to_vec());
    }
    fn expire(&self, _: InodeId, _: &Name) {}
    fn removed(&self, _: InodeId, _: &Name, _: InodeId) {}
    fn store(&self, _: InodeId, _: u64, _: Bytes) {}
    fn said(&self) -> u64 {
        0
    }
    fn carried_out(&self, _: u64, _: Duration) -> bool {
        !self.2.load(Ordering::Relaxed)
    }
}

/// What outlives a crash of the service: the engine's contents and the pool.
pub struct World {
    pub engine: Arc<MemoryEngine>,
    pub pool: Arc<TempDir>,
    pub store: Arc<FaultyStore>,
    pub uuid: Uuid,
    pub kernel: Option<Arc<FakeKernel>>,
    pub recalls: Arc<Recalls>,
    pub maps_direct: bool,
    pub loses_appended: bool,
    pub copies: bool,
    pub boot: AtomicU64,
}

impl World {
    pub fn new() -> Self {
        let pool = Arc::new(TempDir::new().unwrap());
        let uuid = Uuid::from_u128(7);
        let engine = Arc::new(MemoryEngine::new());
        let options = VolumeOptions { inline_bytes_max: INLINE_MAX as u32, hash_key: [3; 16] };
        Namespace::format(engine.as_ref(), &options, (0, 0, 0o755), Timestamp::default()).unwrap();
        let store = Arc::new(FaultyStore::new(Arc::new(DirectoryStore::new(pool.path()))));
        let recalls = Arc::default();
        let world = Self {
            engine,
            pool,
            store,
            uuid,
            kernel: None,
            recalls,
            maps_direct: true,
            loses_appended: false,
            copies: false,
            boot: AtomicU64::new(1),
        };
        Placement::format_pool(&world.pool_config(), uuid).unwrap();
        world
    }

    pub fn with_passthrough() -> (Self, Arc<FakeKernel>) {
        let kernel = Arc::new(FakeKernel::default());
        (Self { kernel: Some(Arc::clone(&kernel)), ..Self::new() }, kernel)
    }

    fn pool_config(&self) -> PoolConfig {
        PoolConfig {
            id: PoolId(0),
            name: "default".into(),
            directory: self.pool.path().to_owned(),
            tier: Tier::Disk,
        }
    }

    /// The machine is started anew: what is not mounted may have lost what was not synced.
    pub fn reboot(&self) {
        self.boot.fetch_add(1, Ordering::Relaxed);
    }

    fn boot(&self) -> Uuid {
        Uuid::from_u128(self.boot.load(Ordering::Relaxed).into())
    }

    pub fn mount(&self) -> Volume {
        self.mount_with(FsOptions::default())
    }

    pub fn mount_with(&self, options: FsOptions) -> Volume {
        self.mount_over(Arc::clone(&self.engine) as _, options)
    }

    /// `engine` has what this world's has.
    pub fn mount_over(&self, engine: Arc<dyn Engine>, options: FsOptions) -> Volume {
        let pools = vec![(self.pool_config(), Arc::clone(&self.store) as _)];
        let placement = Arc::new(Placement::open_with(pools, self.uuid, self.boot()).unwrap());
        let opens = Arc::new(OpenTable::default());
        let metadata = LocalDriver::open(engine, Arc::clone(&opens) as _).unwrap();
        let parts = VolumeParts { metadata, placement: Arc::clone(&placement), opens, options };
        let fs = Cofs::open(parts).unwrap();
        let passthrough = self.kernel.clone().map(|kernel| kernel as Arc<dyn Passthrough>);
        let recall = Some(Arc::clone(&self.recalls) as Arc<dyn Recall>);
        let &Self { maps_direct, loses_appended, copies, .. } = self;
        fs.attach(FaceAbilities { passthrough, recall, maps_direct, loses_appended, copies });
        Volume { fs, placement, pool: Arc::clone(&self.pool) }
    }
}

pub struct Volume {
    pub fs: Cofs<LocalDriver>,
    pub placement: Arc<Placement>,
    pool: Arc<TempDir>,
}

impl Volume {
    pub fn detach(self) {
        run(self.fs.detach()).unwrap();
    }

    pub fn create(&self, file: &str) -> (InodeId, Opened) {
        self.create_in(InodeId::ROOT, file, RW)
    }

    pub fn create_in(&self, parent: InodeId, file: &str, flags: OpenFlags) -> (InodeId, Opened) {
        let created = run(self.fs.create(&CONTEXT, parent, name(file), new_file(0o644), flags));
        let (entry, opened): (Entry, Opened) = created.unwrap();
        (entry.attributes.ino, opened)
    }

    pub fn open(&self, ino: InodeId, flags: OpenFlags) -> Opened {
        run(self.fs.open(&CONTEXT, ino, flags)).unwrap()
    }

    pub fn lookup(&self, file: &str) -> FsResult<Entry> {
        run(self.fs.lookup(&CONTEXT, InodeId::ROOT, name(file)))
    }

    pub fn unlink(&self, file: &str) {
        run(self.fs.unlink(&CONTEXT, InodeId::ROOT, name(file))).unwrap();
    }

    pub fn try_write(&self, ino: InodeId, opened: Opened, offset: u64, data: &[u8]) -> FsResult<usize> {
        run(self.fs.write(ino, opened.handle, offset, data, WriteFlags::default()))
    }

    pub fn write(&self, ino: InodeId, opened: Opened, offset: u64, data: &[u8]) {
        assert_eq!(self.try_write(ino, opened, offset, data).unwrap(), data.len());
    }

    pub fn read(&self, ino: InodeId, opened: Opened, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; len];
        let count = run(self.fs.read(ino, opened.handle, offset, &mut bytes, false)).unwrap();
        bytes.truncate(count);
        bytes
    }

    /// The kernel brings the file's first page, for a mapping.
    pub fn bring_page(&self, ino: InodeId, opened: Opened) {
        run(self.fs.read(ino, opened.handle, 0, &mut [0; 4096], true)).unwrap();
    }

    pub fn close(&self, ino: InodeId, opened: Opened) {
        run(self.fs.release(ino, opened.handle)).unwrap();
    }

    /// All bytes, through an open of its own.
    pub fn contents(&self, ino: InodeId) -> Vec<u8> {
        let opened = self.open(ino, RO);
        let size = self.stat(ino).size_bytes as usize;
        let bytes = match opened.data_path {
            DataPath::Passthrough(_) => std::fs::read(self.object_path(ino)).unwrap(),
            _ => self.read(ino, opened, 0, size + 10),
        };
        self.close(ino, opened);
        assert_eq!(bytes.len(), size);
        bytes
    }

    pub fn stat(&self, ino: InodeId) -> Attributes {
        run(self.fs.getattr(ino, None)).unwrap().attributes
    }

    pub fn setattr(&self, ino: InodeId, change: SetAttributes) -> FsResult<Attributes> {
        run(self.fs.setattr(&CONTEXT, ino, None, &change)).map(|stat| stat.attributes)
    }

    pub fn truncate(&self, ino: InodeId, size: u64) -> FsResult<Attributes> {
        self.setattr(ino, SetAttributes { size_bytes: Some(size), ..SetAttributes::default() })
    }

    pub fn layout(&self, ino: InodeId) -> Layout {
        run(self.fs.metadata().node(ino)).unwrap().value.layout
    }

    pub fn is_inline(&self, ino: InodeId) -> bool {
        self.layout(ino) == Layout::Inline
    }

    pub fn writing(&self, ino: InodeId) -> bool {
        run(self.fs.metadata().node(ino)).unwrap().value.writing
    }

    pub fn object_path(&self, ino: InodeId) -> std::path::PathBuf {
        let Layout::Object(id) = self.layout(ino) else { panic!("inode {ino} is inline") };
        self.placement.object_path(id).unwrap()
    }

    /// Objects in the pool that are not waiting to be taken.
    pub fn objects_in_use(&self) -> usize {
        let mut count = 0;
        let mut visit = |found: FoundObject| {
            count += usize::from(matches!(found, FoundObject::Object { ready: false, .. }));
            Ok(())
        };
        self.placement.scan(PoolId(0), &mut visit).unwrap();
        count
    }
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed).collect()
}
