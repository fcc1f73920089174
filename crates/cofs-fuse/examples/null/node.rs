//! An inode of the null file system and what is in it.

use std::collections::{BTreeMap, HashMap};

use cofs_types::{
    Attributes, Credentials, FileKind, FsError, FsResult, InodeId, Name, NameBuf, NewInode, SetAttributes,
    SetTime, Timestamp,
};

const SET_GID: u16 = 0o2000;

pub struct Node {
    pub attributes: Attributes,
    pub lookups: u64,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub content: Content,
}

pub enum Content {
    Nothing,
    Bytes(Vec<u8>),
    Target(Vec<u8>),
    Directory(Directory),
}

pub struct Directory {
    pub parent: InodeId,
    cookies: HashMap<NameBuf, u64>,
    entries: BTreeMap<u64, (NameBuf, InodeId, FileKind)>,
    next_cookie: u64,
}

impl Directory {
    pub fn new(parent: InodeId) -> Self {
        // 1 and 2 are the cookies of `.` and `..`.
        Self { parent, cookies: HashMap::new(), entries: BTreeMap::new(), next_cookie: 3 }
    }

    pub fn get(&self, name: &Name) -> FsResult<(InodeId, FileKind)> {
        let cookie = self.cookies.get(name).ok_or(FsError::NotFound)?;
        self.entries.get(cookie).map(|(_, ino, kind)| (*ino, *kind)).ok_or(FsError::NotFound)
    }

    pub fn insert(&mut self, name: &Name, ino: InodeId, kind: FileKind) -> FsResult<()> {
        if self.cookies.contains_key(name) {
            return Err(FsError::Exists);
        }
        self.cookies.insert(name.to_owned(), self.next_cookie);
        self.entries.insert(self.next_cookie, (name.to_owned(), ino, kind));
        self.next_cookie += 1;
        Ok(())
    }

    pub fn remove(&mut self, name: &Name) -> FsResult<(InodeId, FileKind)> {
        let cookie = self.cookies.remove(name).ok_or(FsError::NotFound)?;
        self.entries.remove(&cookie).map(|(_, ino, kind)| (ino, kind)).ok_or(FsError::NotFound)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &(NameBuf, InodeId, FileKind))> {
        self.entries.range(cookie + 1..).map(|(cookie, entry)| (*cookie, entry))
    }
}

impl Node {
    pub fn new(ino: InodeId, parent: &Self, new: NewInode<'_>, who: &Credentials<'_>) -> Self {
        let inherits = parent.attributes.permissions & SET_GID != 0;
        let mut permissions = new.permissions & !new.umask;
        if inherits && new.kind == FileKind::Directory {
            permissions |= SET_GID;
        }
        let now = now();
        let attributes = Attributes {
            ino,
            kind: new.kind,
            permissions,
            nlink: if new.kind == FileKind::Directory { 2 } else { 1 },
            uid: who.uid,
            gid: if inherits { parent.attributes.gid } else { who.gid },
            rdev: new.rdev,
            size_bytes: new.target.len() as u64,
            blocks_512: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        let content = match new.kind {
            FileKind::Directory => Content::Directory(Directory::new(parent.attributes.ino)),
            FileKind::Symlink => Content::Target(new.target.to_vec()),
            FileKind::Regular => Content::Bytes(Vec::new()),
            _ => Content::Nothing,
        };
        Self { attributes, lookups: 0, xattrs: BTreeMap::new(), content }
    }

    pub fn root() -> Self {
        let new = NewInode { kind: FileKind::Directory, permissions: 0o755, umask: 0, rdev: 0, target: &[] };
        let attributes = Attributes {
            ino: InodeId::ROOT,
            kind: FileKind::Directory,
            permissions: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size_bytes: 0,
            blocks_512: 0,
            atime: now(),
            mtime: now(),
            ctime: now(),
            btime: now(),
        };
        let seed = Self { attributes, lookups: 1, xattrs: BTreeMap::new(), content: Content::Nothing };
        Self { lookups: 1, ..Self::new(InodeId::ROOT, &seed, new, &Credentials::ROOT) }
    }

    pub fn directory(&mut self) -> FsResult<&mut Directory> {
        match &mut self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(FsError::NotDirectory),
        }
    }

    pub fn bytes(&mut self) -> FsResult<&mut Vec<u8>> {
        match &mut self.content {
            Content::Bytes(bytes) => Ok(bytes),
            Content::Directory(_) => Err(FsError::IsDirectory),
            _ => Err(FsError::InvalidArgument("no file")),
        }
    }

    pub fn resized(&mut self, size: u64) -> FsResult<()> {
        let size = usize::try_from(size).map_err(|_| FsError::FileTooLarge)?;
        if size > 1 << 32 {
            return Err(FsError::FileTooLarge);
        }
        self.bytes()?.resize(size, 0);
        self.measured();
        Ok(())
    }

    pub fn measured(&mut self) {
        if let Content::Bytes(bytes) = &self.content {
            self.attributes.size_bytes = bytes.len() as u64;
            self.attributes.blocks_512 = bytes.len().div_ceil(512) as u64;
        }
    }

    pub fn written(&mut self) {
        self.attributes.mtime = now();
        self.attributes.ctime = self.attributes.mtime;
    }

    /// The bytes were read: the access time follows as under relatime.
    pub fn accessed(&mut self) {
        let Attributes { atime, mtime, ctime, .. } = self.attributes;
        let now = now();
        if atime.relatime_due(mtime, ctime, now) {
            self.attributes.atime = now;
        }
    }

    pub fn kill_set_id(&mut self) {
        self.attributes.permissions &= !0o4000;
        if self.attributes.permissions & 0o010 != 0 {
            self.attributes.permissions &= !SET_GID;
        }
    }

    pub fn set(&mut self, change: &SetAttributes) -> FsResult<()> {
        if let Some(size) = change.size_bytes {
            self.resized(size)?;
            self.written();
        }
        let a = &mut self.attributes;
        let now = now();
        let time = |set| match set {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        a.permissions = change.permissions.unwrap_or(a.permissions);
        a.uid = change.uid.unwrap_or(a.uid);
        a.gid = change.gid.unwrap_or(a.gid);
        a.atime = change.atime.map_or(a.atime, time);
        a.mtime = change.mtime.map_or(a.mtime, time);
        a.ctime = now;
        if change.kill_set_id {
            self.kill_set_id();
        }
        Ok(())
    }
}

pub fn now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Timestamp { secs: now.tv_sec, nanos: now.tv_nsec as u32 }
}
