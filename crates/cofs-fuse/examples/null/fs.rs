//! The null file system: hash maps in memory, no durability, no work. It is what the interface itself can do,
//! so that a real file system can be measured against it, and what the transports are tested with.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cofs_face::{
    BackingId, Context, DataPath, DirEntry, DirSink, Entry, FaceAbilities, FileSystem, HandleId, ListOf,
    Opened, OpenedDirectory, Space, Stat, Validity, WriteFlags, blocking,
};
use cofs_types::{
    Attributes, FallocateMode, FileKind, FsError, FsResult, InodeId, Name, NewInode, OpenFlags, RenameMode,
    SeekWhence, SetAttributes, XattrMode, XattrName,
};
use parking_lot::{Mutex, RwLock};

use super::node::{Content, Node, now};

const SHARDS: u64 = 64;

type Shared = Arc<Mutex<Node>>;

/// What the kernel may keep of what it was told.
#[derive(Clone, Copy)]
pub struct Keeps {
    /// Names that are there, and attributes.
    pub names: bool,
    /// Names that are not there.
    pub absent: bool,
    /// Bytes, from one open to the next.
    pub bytes: bool,
}

pub struct NullFs {
    shards: Vec<RwLock<HashMap<InodeId, Shared>>>,
    next_ino: AtomicU64,
    /// What a sync does, where it may wait.
    on_sync: Box<dyn Fn() + Send + Sync>,
    /// FLUSH is asked for at each close.
    flush: bool,
    /// The first read after a change is seen and changes the access time. Replies are then those of cofs: a file that is
    /// empty and only written has no pages, and an open to read what has changed since it was read drops them.
    pub relatime: AtomicBool,
    pub keeps: Keeps,
    /// All files have the bytes of this one.
    #[allow(dead_code, reason = "for the tests, which share this file")]
    pub backing: Mutex<Option<BackingId>>,
    /// To look at attributes and space takes as long as a sync.
    #[allow(dead_code, reason = "for the tests, which share this file")]
    pub slow_looks: AtomicBool,
    /// To read a link takes as long as a sync, and does not say so before: as anything does over a network.
    #[allow(dead_code, reason = "for the tests, which share this file")]
    pub slow_links: AtomicBool,
    /// How long a read of bytes takes, in microseconds.
    #[allow(dead_code, reason = "for the program, which shares this file")]
    pub read_us: AtomicU64,
    /// A FORGET leaves something to be done that takes as long as a sync.
    #[allow(dead_code, reason = "for the tests, which share this file")]
    pub slow_forgets: AtomicBool,
    abilities: Mutex<FaceAbilities>,
    pub detached: AtomicUsize,
}

impl NullFs {
    pub fn new(flush: bool, on_sync: impl Fn() + Send + Sync + 'static) -> Self {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        let fs = Self {
            shards,
            next_ino: AtomicU64::new(2),
            on_sync: Box::new(on_sync),
            flush,
            relatime: AtomicBool::new(false),
            keeps: Keeps { names: true, absent: true, bytes: true },
            backing: Mutex::default(),
            slow_looks: AtomicBool::new(false),
            slow_links: AtomicBool::new(false),
            read_us: AtomicU64::new(0),
            slow_forgets: AtomicBool::new(false),
            abilities: Mutex::default(),
            detached: AtomicUsize::new(0),
        };
        fs.shard(InodeId::ROOT).write().insert(InodeId::ROOT, Arc::new(Mutex::new(Node::root())));
        fs
    }

    #[allow(dead_code, reason = "for the tests, which share this file")]
    /// Inodes in memory: linked, or still known to the kernel.
    pub fn inodes(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    #[allow(dead_code, reason = "for the tests, which share this file")]
    pub fn abilities(&self) -> FaceAbilities {
        self.abilities.lock().clone()
    }

    fn shard(&self, ino: InodeId) -> &RwLock<HashMap<InodeId, Shared>> {
        &self.shards[(ino.get() % SHARDS) as usize]
    }

    pub fn node(&self, ino: InodeId) -> FsResult<Shared> {
        self.shard(ino).read().get(&ino).cloned().ok_or(FsError::Stale)
    }

    fn entry(&self, node: &Shared) -> Entry {
        let mut node = node.lock();
        node.lookups += 1;
        Entry { attributes: node.attributes, validity: self.validity() }
    }

    fn validity(&self) -> Validity {
        if self.keeps.names { Validity::FOREVER } else { Validity::NEVER }
    }

    /// Makes an inode under `name`; its attributes are those that the caller will be shown.
    fn born(
        &self,
        ctx: &Context<'_>,
        parent: InodeId,
        name: Option<&Name>,
        new: NewInode<'_>,
    ) -> FsResult<Entry> {
        let ino = InodeId::new(self.next_ino.fetch_add(1, Ordering::Relaxed)).ok_or(FsError::NoSpace)?;
        let parent = self.node(parent)?;
        let mut parent = parent.lock();
        let mut node = Node::new(ino, &parent, new, &ctx.credentials);
        match name {
            Some(name) => parent.directory()?.insert(name, ino, new.kind)?,
            None => node.attributes.nlink = 0,
        }
        if name.is_some() {
            parent.attributes.nlink += u32::from(new.kind == FileKind::Directory);
            parent.written();
        }
        node.lookups = 1;
        let entry = Entry { attributes: node.attributes, validity: self.validity() };
        self.shard(ino).write().insert(ino, Arc::new(Mutex::new(node)));
        Ok(entry)
    }

    /// One link less; the inode goes with its last link and last look-up.
    fn unlinked(&self, ino: InodeId, links: u32) -> FsResult<()> {
        let shared = self.node(ino)?;
        let mut node = shared.lock();
        node.attributes.nlink = node.attributes.nlink.saturating_sub(links);
        node.attributes.ctime = now();
        self.drop_if_unused(ino, &node);
        Ok(())
    }

    fn drop_if_unused(&self, ino: InodeId, node: &Node) {
        if node.attributes.nlink == 0 && node.lookups == 0 {
            self.shard(ino).write().remove(&ino);
        }
    }

    fn opened(&self, of: &Attributes, flags: &OpenFlags) -> Opened {
        let way = if self.relatime.load(Ordering::Relaxed) {
            relatime_way(of, flags)
        } else {
            DataPath::Cached { keep_cache: self.keeps.bytes }
        };
        let data_path = self.backing.lock().map_or(way, DataPath::Passthrough);
        Opened { handle: HandleId(0), data_path, no_flush: !self.flush }
    }

    async fn sync(&self) {
        blocking().await;
        (self.on_sync)();
    }

    async fn look(&self) {
        if self.slow_looks.load(Ordering::Relaxed) {
            self.sync().await;
        }
    }

    /// Takes what stands at the target of a rename away, if it may be replaced by `kind`.
    fn replaceable(&self, ino: InodeId, replaced: FileKind, kind: FileKind) -> FsResult<()> {
        match (kind == FileKind::Directory, replaced == FileKind::Directory) {
            (true, false) => Err(FsError::NotDirectory),
            (false, true) => Err(FsError::IsDirectory),
            (true, true) if !self.node(ino)?.lock().directory()?.is_empty() => Err(FsError::NotEmpty),
            _ => Ok(()),
        }
    }

    fn rename_within(&self, from: (InodeId, &Name), to: (InodeId, &Name), mode: RenameMode) -> FsResult<()> {
        let (ino, kind) = self.node(from.0)?.lock().directory()?.get(from.1)?;
        let target = self.node(to.0)?.lock().directory()?.get(to.1).ok();
        match (mode, target) {
            (RenameMode::Whiteout { .. }, _) => return Err(FsError::InvalidArgument("no whiteouts")),
            (RenameMode::NoReplace, Some(_)) => return Err(FsError::Exists),
            (RenameMode::Exchange, None) => return Err(FsError::NotFound),
            (RenameMode::Exchange, Some(other)) => {
                self.swap(from, (ino, kind), to, other)?;
                return Ok(());
            }
            (_, Some((same, _))) if same == ino => return Ok(()),
            (_, Some((replaced, was))) => {
                self.replaceable(replaced, was, kind)?;
                self.remove(to.0, to.1, was == FileKind::Directory)?;
            }
            (_, None) => {}
        }
        self.moved(from, to, ino, kind)
    }

    fn moved(
        &self,
        from: (InodeId, &Name),
        to: (InodeId, &Name),
        ino: InodeId,
        kind: FileKind,
    ) -> FsResult<()> {
        self.node(from.0)?.lock().directory()?.remove(from.1)?;
        self.node(to.0)?.lock().directory()?.insert(to.1, ino, kind)?;
        if kind == FileKind::Directory && from.0 != to.0 {
            self.node(from.0)?.lock().attributes.nlink -= 1;
            self.node(to.0)?.lock().attributes.nlink += 1;
            self.node(ino)?.lock().directory()?.parent = to.0;
        }
        self.node(from.0)?.lock().written();
        self.node(to.0)?.lock().written();
        Ok(())
    }

    fn swap(
        &self,
        from: (InodeId, &Name),
        one: (InodeId, FileKind),
        to: (InodeId, &Name),
        other: (InodeId, FileKind),
    ) -> FsResult<()> {
        for ((parent, name), (ino, kind)) in [(from, other), (to, one)] {
            let node = self.node(parent)?;
            let mut node = node.lock();
            node.directory()?.remove(name)?;
            node.directory()?.insert(name, ino, kind)?;
            node.written();
        }
        Ok(())
    }

    fn remove(&self, parent: InodeId, name: &Name, directory: bool) -> FsResult<()> {
        let shared = self.node(parent)?;
        let mut node = shared.lock();
        let (ino, kind) = node.directory()?.get(name)?;
        match (directory, kind == FileKind::Directory) {
            (true, false) => return Err(FsError::NotDirectory),
            (false, true) => return Err(FsError::IsDirectory),
            (true, true) if !self.node(ino)?.lock().directory()?.is_empty() => return Err(FsError::NotEmpty),
            _ => {}
        }
        node.directory()?.remove(name)?;
        node.written();
        if directory {
            node.attributes.nlink -= 1;
        }
        drop(node);
        self.unlinked(ino, if directory { 2 } else { 1 })
    }
}

fn relatime_way(of: &Attributes, flags: &OpenFlags) -> DataPath {
    if of.size_bytes == 0 && !flags.access.reads() {
        return DataPath::Direct;
    }
    let must_see_read = flags.access.reads() && of.atime.relatime_due(of.mtime, of.ctime, now());
    DataPath::Cached { keep_cache: !must_see_read }
}

#[rustfmt::skip]
impl FileSystem for NullFs {
    fn attach(&self, abilities: FaceAbilities) {
        *self.abilities.lock() = abilities;
    }

    fn negative_validity(&self) -> Duration {
        if self.keeps.absent { Duration::MAX } else { Duration::ZERO }
    }

    async fn lookup(&self, _: &Context<'_>, parent: InodeId, name: &Name) -> FsResult<Entry> {
        let (ino, _) = self.node(parent)?.lock().directory()?.get(name)?;
        Ok(self.entry(&self.node(ino)?))
    }

    async fn lookup_self(&self, ino: InodeId) -> FsResult<Entry> {
        Ok(self.entry(&self.node(ino)?))
    }

    async fn lookup_parent(&self, ino: InodeId) -> FsResult<Entry> {
        let parent = self.node(ino)?.lock().directory()?.parent;
        Ok(self.entry(&self.node(parent)?))
    }

    fn forget(&self, ino: InodeId, count: u64) -> bool {
        let Ok(shared) = self.node(ino) else { return false };
        let mut node = shared.lock();
        node.lookups = node.lookups.saturating_sub(count);
        self.drop_if_unused(ino, &node);
        self.slow_forgets.load(Ordering::Relaxed)
    }

    async fn forgotten(&self, _: InodeId) {
        self.sync().await;
    }

    async fn make(&self, ctx: &Context<'_>, parent: InodeId, name: &Name, new: NewInode<'_>) -> FsResult<Entry> {
        self.born(ctx, parent, Some(name), new)
    }

    async fn link(&self, _: &Context<'_>, ino: InodeId, parent: InodeId, name: &Name) -> FsResult<Entry> {
        let kind = self.node(ino)?.lock().attributes.kind;
        let directory = self.node(parent)?;
        let mut directory = directory.lock();
        directory.directory()?.insert(name, ino, kind)?;
        directory.written();
        let node = self.node(ino)?;
        node.lock().attributes.nlink += 1;
        node.lock().attributes.ctime = now();
        Ok(self.entry(&node))
    }

    async fn unlink(&self, _: &Context<'_>, parent: InodeId, name: &Name) -> FsResult<()> {
        self.remove(parent, name, false)
    }

    async fn rmdir(&self, _: &Context<'_>, parent: InodeId, name: &Name) -> FsResult<()> {
        self.remove(parent, name, true)
    }

    async fn rename(&self, _: &Context<'_>, from: (InodeId, &Name), to: (InodeId, &Name), mode: RenameMode) -> FsResult<()> {
        self.rename_within(from, to, mode)
    }

    async fn readlink(&self, ino: InodeId) -> FsResult<Bytes> {
        if self.slow_links.load(Ordering::Relaxed) {
            (self.on_sync)();
        }
        match &self.node(ino)?.lock().content {
            Content::Target(target) => Ok(Bytes::copy_from_slice(target)),
            _ => Err(FsError::InvalidArgument("no symlink")),
        }
    }

    async fn getattr(&self, ino: InodeId, _: Option<HandleId>) -> FsResult<Stat> {
        self.look().await;
        Ok(Stat { attributes: self.node(ino)?.lock().attributes, validity: self.validity().attributes })
    }

    async fn setattr(&self, _: &Context<'_>, ino: InodeId, _: Option<HandleId>, change: &SetAttributes) -> FsResult<Stat> {
        let node = self.node(ino)?;
        let mut node = node.lock();
        node.set(change)?;
        Ok(Stat { attributes: node.attributes, validity: self.validity().attributes })
    }

    async fn getxattr(&self, _: &Context<'_>, ino: InodeId, name: &XattrName) -> FsResult<Bytes> {
        let node = self.node(ino)?;
        let node = node.lock();
        node.xattrs.get(name.as_bytes()).map(|value| Bytes::copy_from_slice(value)).ok_or(FsError::NoAttribute)
    }

    async fn setxattr(&self, _: &Context<'_>, ino: InodeId, name: &XattrName, value: &[u8], mode: XattrMode, _: bool) -> FsResult<()> {
        let node = self.node(ino)?;
        let mut node = node.lock();
        match (mode, node.xattrs.contains_key(name.as_bytes())) {
            (XattrMode::Create | XattrMode::Never, true) => return Err(FsError::Exists),
            (XattrMode::Replace | XattrMode::Never, false) => return Err(FsError::NoAttribute),
            _ => {}
        }
        node.xattrs.insert(name.as_bytes().to_vec(), value.to_vec());
        Ok(())
    }

    async fn listxattr(&self, _: &Context<'_>, ino: InodeId) -> FsResult<Bytes> {
        let node = self.node(ino)?;
        let names = node.lock().xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect();
        Ok(names)
    }

    async fn removexattr(&self, _: &Context<'_>, ino: InodeId, name: &XattrName) -> FsResult<()> {
        self.node(ino)?.lock().xattrs.remove(name.as_bytes()).map(drop).ok_or(FsError::NoAttribute)
    }

    async fn access(&self, _: &Context<'_>, _: InodeId, _: u32) -> FsResult<()> {
        Ok(())
    }

    async fn create(&self, ctx: &Context<'_>, parent: InodeId, name: &Name, new: NewInode<'_>, flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        match self.born(ctx, parent, Some(name), new) {
            Err(FsError::Exists) if !flags.exclusive => {
                let entry = self.lookup(ctx, parent, name).await?;
                Ok((entry, self.open(ctx, entry.attributes.ino, flags).await?))
            }
            born => {
                let entry = born?;
                Ok((entry, self.opened(&entry.attributes, &flags)))
            }
        }
    }

    async fn tmpfile(&self, ctx: &Context<'_>, parent: InodeId, new: NewInode<'_>, flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        let entry = self.born(ctx, parent, None, new)?;
        Ok((entry, self.opened(&entry.attributes, &flags)))
    }

    async fn open(&self, _: &Context<'_>, ino: InodeId, flags: OpenFlags) -> FsResult<Opened> {
        let node = self.node(ino)?;
        let mut node = node.lock();
        if flags.truncate {
            node.resized(0)?;
            node.written();
            if flags.kill_set_id {
                node.kill_set_id();
            }
        }
        Ok(self.opened(&node.attributes, &flags))
    }

    async fn read(&self, ino: InodeId, _: HandleId, offset: u64, into: &mut [u8], _: bool) -> FsResult<usize> {
        let takes = Duration::from_micros(self.read_us.load(Ordering::Relaxed));
        if !takes.is_zero() {
            blocking().await;
            std::thread::sleep(takes);
        }
        let node = self.node(ino)?;
        let mut node = node.lock();
        let bytes = node.bytes()?;
        let from = usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
        let len = into.len().min(bytes.len() - from);
        into[..len].copy_from_slice(&bytes[from..from + len]);
        if self.relatime.load(Ordering::Relaxed) {
            node.accessed();
        }
        Ok(len)
    }

    async fn write(&self, ino: InodeId, _: HandleId, offset: u64, data: &[u8], flags: WriteFlags) -> FsResult<usize> {
        let node = self.node(ino)?;
        let mut node = node.lock();
        let end = offset.checked_add(data.len() as u64).ok_or(FsError::FileTooLarge)?;
        if end > node.attributes.size_bytes {
            node.resized(end)?;
        }
        node.bytes()?[offset as usize..end as usize].copy_from_slice(data);
        node.written();
        if flags.kill_set_id {
            node.kill_set_id();
        }
        Ok(data.len())
    }

    async fn flush(&self, _: InodeId, _: HandleId) -> FsResult<()> {
        Ok(())
    }

    async fn fsync(&self, _: InodeId, _: Option<HandleId>, _: bool) -> FsResult<()> {
        self.sync().await;
        Ok(())
    }

    async fn release(&self, _: InodeId, _: HandleId) -> FsResult<()> {
        Ok(())
    }

    async fn fallocate(&self, _: &Context<'_>, ino: InodeId, _: HandleId, mode: FallocateMode, offset: u64, len: u64) -> FsResult<()> {
        let node = self.node(ino)?;
        let mut node = node.lock();
        let end = offset + len;
        let grows = matches!(mode, FallocateMode::Allocate { keep_size: false } | FallocateMode::ZeroRange { keep_size: false });
        if grows && end > node.attributes.size_bytes {
            node.resized(end)?;
        }
        if !matches!(mode, FallocateMode::Allocate { .. }) {
            let size = node.attributes.size_bytes;
            node.bytes()?[offset.min(size) as usize..end.min(size) as usize].fill(0);
        }
        Ok(())
    }

    async fn lseek(&self, ino: InodeId, _: HandleId, offset: u64, whence: SeekWhence) -> FsResult<u64> {
        let size = self.node(ino)?.lock().attributes.size_bytes;
        match whence {
            _ if offset >= size => Err(FsError::NoData),
            SeekWhence::Data => Ok(offset),
            SeekWhence::Hole => Ok(size),
        }
    }

    async fn copy_range(&self, _: &Context<'_>, from: (InodeId, HandleId, u64), to: (InodeId, HandleId, u64), len: u64) -> FsResult<u64> {
        let mut bytes = vec![0; usize::try_from(len.min(1 << 24)).unwrap_or(0)];
        let read = self.read(from.0, from.1, from.2, &mut bytes, false).await?;
        let written = self.write(to.0, to.1, to.2, &bytes[..read], WriteFlags::default()).await?;
        Ok(written as u64)
    }

    async fn opendir(&self, _: &Context<'_>, _: InodeId, _: OpenFlags) -> FsResult<OpenedDirectory> {
        Ok(OpenedDirectory { handle: HandleId(0), cache: false, keep_cache: false })
    }

    async fn readdir(&self, _: &Context<'_>, ino: InodeId, _: HandleId, of: ListOf, sink: &mut DirSink<'_>) -> FsResult<()> {
        let ListOf { cookie, with_attributes, .. } = of;
        let shared = self.node(ino)?;
        let mut node = shared.lock();
        let parent = node.directory()?.parent;
        let dot = |ino, cookie, name| DirEntry { ino, kind: FileKind::Directory, name, cookie, entry: None };
        if cookie < 1 && !sink(dot(ino, 1, b".")) || cookie < 2 && !sink(dot(parent, 2, b"..")) {
            return Ok(());
        }
        for (cookie, (name, ino, kind)) in node.directory()?.after(cookie.max(2)) {
            let entry = if with_attributes { Some(self.entry(&self.node(*ino)?)) } else { None };
            if !sink(DirEntry { ino: *ino, kind: *kind, name: name.as_bytes(), cookie, entry }) {
                if entry.is_some() {
                    self.forget(*ino, 1);
                }
                return Ok(());
            }
        }
        Ok(())
    }

    async fn releasedir(&self, _: InodeId, _: HandleId) -> FsResult<()> {
        Ok(())
    }

    async fn fsyncdir(&self, _: InodeId) -> FsResult<()> {
        self.sync().await;
        Ok(())
    }

    async fn statfs(&self) -> FsResult<Space> {
        self.look().await;
        Ok(Space {
            block_bytes: 4096,
            blocks: 1 << 30,
            blocks_free: 1 << 30,
            blocks_available: 1 << 30,
            files: 1 << 30,
            files_free: 1 << 30,
            name_bytes_max: 255,
        })
    }

    async fn syncfs(&self) -> FsResult<()> {
        self.sync().await;
        Ok(())
    }

    async fn detach(&self) -> FsResult<()> {
        self.detached.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
