//! The lines of a dump. Names, targets and attributes' names are text in which all bytes but printable ASCII,
//! and the percent sign, stand as `%xx`; data is hexadecimal.

use bytes::Bytes;
use cofs_types::{
    FileKind, FsError, FsResult, InodeId, Layout, Name, ObjectId, Timestamp, XattrName, limits,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::DUMP_VERSION;
use crate::{
    VolumeOptions,
    schema::{
        EntryRecord, Inode, Key, MARK, Occupant, Shard, SmallXattrs, Times, decode_chunk, encode_chunk, key,
    },
    tables::labels::LABEL,
};

/// One line.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    #[serde(rename = "cofs-dump")]
    Header(Header),
    Inode(Box<InodeLine>),
    Entry(EntryLine),
    Inline(InlineLine),
    Xattr(XattrLine),
    Shard(ShardLine),
    Writing(Number),
    Unlinked(Number),
    Reclaim(u64),
    End(End),
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct Header {
    version: u32,
    inline_bytes_max: u32,
    hash_key: Hex,
    inodes_next: u64,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub records: u64,
    /// SipHash-1-3 with a key of zeros, of all lines before.
    #[serde(with = "hex_number")]
    pub checksum: u64,
}

/// An inode's number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Number(InodeId);

#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct InodeLine {
    ino: Number,
    kind: Kind,
    /// Octal.
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    rdev: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    size: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    blocks: u64,
    atime: (i64, u32),
    mtime: (i64, u32),
    ctime: (i64, u32),
    btime: (i64, u32),
    #[serde(default, skip_serializing_if = "is_default")]
    parent: Option<Number>,
    #[serde(default, skip_serializing_if = "is_default")]
    object: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    writing: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    linkable: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    target: Text,
    #[serde(default, skip_serializing_if = "is_default")]
    xattrs: Vec<(Text, Hex)>,
    #[serde(default, skip_serializing_if = "is_default")]
    large_xattrs: u32,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct EntryLine {
    dir: Number,
    slot: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    continues: bool,
    /// None: a vacant slot within a chain.
    #[serde(default, skip_serializing_if = "is_default")]
    leads: Option<Leads>,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
struct Leads {
    name: Text,
    ino: Number,
    kind: Kind,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct InlineLine {
    ino: Number,
    chunk: u32,
    data: Hex,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct XattrLine {
    ino: Number,
    name: Text,
    value: Hex,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct ShardLine {
    dir: Number,
    shard: u16,
    subdirectories: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    times: Option<[(i64, u32); 2]>,
}

#[derive(Clone, Copy, Serialize, Deserialize, PartialEq, Debug)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// Bytes as text, `%xx` for what is not printable.
#[derive(Clone, PartialEq, Debug, Default)]
struct Text(Vec<u8>);

/// Bytes as hexadecimal digits.
#[derive(Clone, PartialEq, Debug, Default)]
struct Hex(Vec<u8>);

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The version of a header that a newer program wrote, whatever else stands in it.
pub fn newer_version(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Version {
        version: u64,
    }
    #[derive(Deserialize)]
    struct Mark {
        #[serde(rename = "cofs-dump")]
        header: Version,
    }
    let Mark { header } = serde_json::from_slice(line).ok()?;
    Some(header.version).filter(|version| *version > DUMP_VERSION.into())
}

impl Header {
    pub fn new(options: VolumeOptions, inodes_next: u64) -> Self {
        let hash_key = Hex(options.hash_key.to_vec());
        Self { version: DUMP_VERSION, inline_bytes_max: options.inline_bytes_max, hash_key, inodes_next }
    }

    pub fn check(&self) -> Result<(), String> {
        if self.version == 0 || self.version > DUMP_VERSION {
            return Err(format!("there is no dump version {}", self.version));
        }
        if self.inline_bytes_max > limits::INLINE_BYTES_LIMIT || self.hash_key.0.len() != 16 {
            return Err("inline_bytes_max or hash_key is out of range".to_owned());
        }
        InodeId::from_parts(cofs_types::PartitionId(0), self.inodes_next)
            .map(drop)
            .ok_or_else(|| "inodes_next is out of range".to_owned())
    }

    /// Of a header that was checked.
    pub fn options(&self) -> VolumeOptions {
        let mut hash_key = [0; 16];
        hash_key.iter_mut().zip(&self.hash_key.0).for_each(|(to, from)| *to = *from);
        VolumeOptions { inline_bytes_max: self.inline_bytes_max, hash_key }
    }

    pub fn inodes_next(&self) -> u64 {
        self.inodes_next
    }
}

impl Line {
    /// The line of a stored record. `Corrupt` for one that cannot be read.
    pub fn of_record(key: Key<'_>, value: &[u8]) -> FsResult<Self> {
        let mark = |line: Self| if value == MARK { Ok(line) } else { Err(FsError::corrupt("mark of a set")) };
        match key {
            Key::Entry { dir, slot } => EntryLine::new(dir, slot, value).map(Self::Entry),
            Key::Inode(ino) => InodeLine::new(ino, value).map(|line| Self::Inode(Box::new(line))),
            Key::Inline { ino, chunk } => {
                let data = Hex(decode_chunk(value, limits::INLINE_CHUNK_BYTES)?.to_vec());
                Ok(Self::Inline(InlineLine { ino: Number(ino), chunk, data }))
            }
            Key::Xattr { ino, name } => {
                let value = Hex(decode_chunk(value, limits::XATTR_VALUE_BYTES_MAX)?.to_vec());
                Ok(Self::Xattr(XattrLine { ino: Number(ino), name: Text(name.as_bytes().to_vec()), value }))
            }
            Key::Shard { dir, shard } => Ok(Self::Shard(ShardLine::new(dir, shard, &Shard::decode(value)?))),
            Key::Writing(ino) => mark(Self::Writing(Number(ino))),
            Key::Unlinked(ino) => mark(Self::Unlinked(Number(ino))),
            Key::Reclaim(object) => mark(Self::Reclaim(object.get())),
            Key::Header(_) => Err(FsError::corrupt("the header is no record")),
        }
    }

    /// Whether it brings a security label.
    pub fn brings_label(&self) -> bool {
        match self {
            Self::Inode(line) => line.xattrs.iter().any(|(name, _)| name.0 == LABEL),
            Self::Xattr(line) => line.name.0 == LABEL,
            _ => false,
        }
    }

    /// The object that it names.
    pub fn names_object(&self) -> Option<ObjectId> {
        match self {
            Self::Inode(line) => line.object.map(ObjectId::from_raw),
            Self::Reclaim(object) => Some(ObjectId::from_raw(*object)),
            _ => None,
        }
    }

    /// The record as it is stored: key and value.
    pub fn to_record(&self) -> FsResult<(Vec<u8>, Vec<u8>)> {
        match self {
            Self::Entry(line) => line.to_record(),
            Self::Inode(line) => line.to_record(),
            Self::Inline(InlineLine { ino, chunk, data }) => {
                let value = encode_chunk(&data.0);
                decode_chunk(&value, limits::INLINE_CHUNK_BYTES)?;
                Ok((key::inline(ino.0, *chunk).to_vec(), value))
            }
            Self::Xattr(XattrLine { ino, name, value }) => {
                let value = encode_chunk(&value.0);
                decode_chunk(&value, limits::XATTR_VALUE_BYTES_MAX)?;
                Ok((key::xattr(ino.0, XattrName::new(&name.0)?), value))
            }
            Self::Shard(line) => line.to_record(),
            Self::Writing(ino) => Ok((key::writing(ino.0).to_vec(), MARK.to_vec())),
            Self::Unlinked(ino) => Ok((key::unlinked(ino.0).to_vec(), MARK.to_vec())),
            Self::Reclaim(object) => Ok((key::reclaim(ObjectId::from_raw(*object)).to_vec(), MARK.to_vec())),
            Self::Header(_) | Self::End(_) => Err(FsError::corrupt("no record")),
        }
    }
}

impl EntryLine {
    fn new(dir: InodeId, slot: u64, value: &[u8]) -> FsResult<Self> {
        let record = EntryRecord::decode(value)?;
        let leads = record.occupant.map(|o| Leads {
            name: Text(o.name.as_bytes().to_vec()),
            ino: Number(o.ino),
            kind: o.kind.into(),
        });
        Ok(Self { dir: Number(dir), slot, continues: record.continues, leads })
    }

    fn to_record(&self) -> FsResult<(Vec<u8>, Vec<u8>)> {
        let occupant = match &self.leads {
            None => None,
            Some(Leads { name, ino, kind }) => {
                Some(Occupant { name: Name::new(&name.0)?, ino: ino.0, kind: (*kind).into() })
            }
        };
        let record = EntryRecord { occupant, continues: self.continues };
        Ok((key::entry(self.dir.0, self.slot).to_vec(), record.encode()))
    }
}

impl InodeLine {
    fn new(ino: InodeId, value: &[u8]) -> FsResult<Self> {
        let inode = Inode::decode(value)?;
        let time = |t: Timestamp| (t.secs, t.nanos);
        let xattrs = inode.xattrs.iter().map(|(name, value)| (Text(name.to_vec()), Hex(value.to_vec())));
        Ok(Self {
            ino: Number(ino),
            kind: inode.kind.into(),
            mode: format!("{:04o}", inode.permissions),
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.size_bytes,
            blocks: inode.blocks_512,
            atime: time(inode.atime),
            mtime: time(inode.mtime),
            ctime: time(inode.ctime),
            btime: time(inode.btime),
            parent: inode.parent.map(Number),
            object: match inode.layout {
                Layout::Object(object) => Some(object.get()),
                Layout::Inline => None,
            },
            writing: inode.writing,
            linkable: inode.linkable,
            target: Text(inode.target.to_vec()),
            xattrs: xattrs.collect(),
            large_xattrs: inode.large_xattrs,
        })
    }

    pub fn sequence(&self) -> u64 {
        self.ino.0.sequence()
    }

    fn to_record(&self) -> FsResult<(Vec<u8>, Vec<u8>)> {
        let permissions = u16::from_str_radix(&self.mode, 8);
        let permissions = permissions.map_err(|_| FsError::corrupt("mode is no octal number"))?;
        let mut inode = Inode::new(self.kind.into(), permissions, (self.uid, self.gid), time(self.btime)?);
        (inode.nlink, inode.rdev, inode.size_bytes) = (self.nlink, self.rdev, self.size);
        (inode.atime, inode.mtime, inode.ctime) = (time(self.atime)?, time(self.mtime)?, time(self.ctime)?);
        inode.parent = self.parent.map(|parent| parent.0);
        if let Some(object) = self.object {
            inode.layout = Layout::Object(ObjectId::from_raw(object));
            inode.blocks_512 = self.blocks;
        }
        (inode.writing, inode.linkable) = (self.writing, self.linkable);
        inode.target = Bytes::copy_from_slice(&self.target.0);
        inode.large_xattrs = self.large_xattrs;
        inode.xattrs = self.small_xattrs()?;
        let value = inode.encode();
        // What the codec would not read back is not stored.
        if Inode::decode(&value)? != inode {
            return Err(FsError::corrupt("an inode that cannot be"));
        }
        Ok((key::inode(self.ino.0).to_vec(), value))
    }

    fn small_xattrs(&self) -> FsResult<SmallXattrs> {
        let mut all = SmallXattrs::default();
        for (name, value) in &self.xattrs {
            all = all.with(XattrName::new(&name.0)?, Some(&value.0));
            if all.packed().len() > limits::XATTR_INODE_BYTES_MAX {
                return Err(FsError::corrupt("more small extended attributes than an inode holds"));
            }
        }
        Ok(all)
    }
}

impl ShardLine {
    fn new(dir: InodeId, shard: u16, figures: &Shard) -> Self {
        let time = |t: Timestamp| (t.secs, t.nanos);
        let times = figures.times.map(|t| [time(t.mtime), time(t.ctime)]);
        Self { dir: Number(dir), shard, subdirectories: figures.subdirectories, times }
    }

    fn to_record(&self) -> FsResult<(Vec<u8>, Vec<u8>)> {
        let times = match self.times {
            None => None,
            Some([mtime, ctime]) => Some(Times { mtime: time(mtime)?, ctime: time(ctime)? }),
        };
        let figures = Shard { subdirectories: self.subdirectories, times };
        Ok((key::shard(self.dir.0, self.shard).to_vec(), figures.encode()))
    }
}

fn time((secs, nanos): (i64, u32)) -> FsResult<Timestamp> {
    Timestamp::new(secs, nanos).ok_or_else(|| FsError::corrupt("a time of more than a second's nanoseconds"))
}

impl From<FileKind> for Kind {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::Regular => Self::File,
            FileKind::Directory => Self::Directory,
            FileKind::Symlink => Self::Symlink,
            FileKind::Fifo => Self::Fifo,
            FileKind::Socket => Self::Socket,
            FileKind::CharDevice => Self::CharDevice,
            FileKind::BlockDevice => Self::BlockDevice,
        }
    }
}

impl From<Kind> for FileKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::File => Self::Regular,
            Kind::Directory => Self::Directory,
            Kind::Symlink => Self::Symlink,
            Kind::Fifo => Self::Fifo,
            Kind::Socket => Self::Socket,
            Kind::CharDevice => Self::CharDevice,
            Kind::BlockDevice => Self::BlockDevice,
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.0.get().serialize(s)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let ino = InodeId::new(u64::deserialize(d)?).map(Self);
        ino.ok_or_else(|| D::Error::custom("0 is no inode's number"))
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(self.0.len());
        for byte in &self.0 {
            match byte {
                b'%' | 0..b' ' | 0x7f.. => text.push_str(&format!("%{byte:02x}")),
                printable => text.push(char::from(*printable)),
            }
        }
        text.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let mut rest = text.as_bytes();
        let mut out = Vec::with_capacity(rest.len());
        while let Some((first, behind)) = rest.split_first() {
            rest = behind;
            if *first != b'%' {
                out.push(*first);
                continue;
            }
            let escaped = rest.split_first_chunk::<2>().and_then(|(d, behind)| Some((hex_byte(*d)?, behind)));
            let (byte, behind) =
                escaped.ok_or_else(|| D::Error::custom("% without two hexadecimal digits"))?;
            out.push(byte);
            rest = behind;
        }
        Ok(Self(out))
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        const DIGITS: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
        let digit = |nibble: u8| DIGITS[usize::from(nibble & 15)]; // 16 digits
        self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect::<String>().serialize(s)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let bytes: Option<Vec<u8>> = pairs.iter().map(|pair| hex_byte(*pair)).collect();
        let bytes = bytes.filter(|_| rest.is_empty());
        bytes.map(Self).ok_or_else(|| D::Error::custom("not hexadecimal"))
    }
}

fn hex_byte([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |c: u8| char::from(c).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

mod hex_number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub fn serialize<S: Serializer>(number: &u64, s: S) -> Result<S::Ok, S::Error> {
        format!("{number:016x}").serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        let text = String::deserialize(d)?;
        let number = u64::from_str_radix(&text, 16).map_err(D::Error::custom)?;
        // One number has one form.
        if format!("{number:016x}") == text {
            Ok(number)
        } else {
            Err(D::Error::custom("16 digits, a to f small"))
        }
    }
}
