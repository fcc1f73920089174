//! From a request in a buffer to its answer in the same buffer: what both transports share.
//!
//! A [`Frame`] is one request's memory. It is parsed, served by the file system on behalf of its caller, and
//! answered in it: data to be written is borrowed from the frame, data read goes straight into it, what is short is laid out beside the
//! request, and nothing is allocated on the way.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Poll, Waker},
};

use cofs_face::{Context, FileSystem, HandleId, Recall, at_once, blocking};
use cofs_types::{Authority, Credentials, InodeId};

use crate::{
    abi::InHeader,
    errno::Errno,
    executor::Pool,
    forgets::Forgets,
    interrupt::{Interrupts, Leavable},
    notify::Notifier,
    reply::{self, Body, Reply, Short},
    request::{self, Dialect, LookupOf, Message, Operation},
    resent::{self, Doubt, Resent, Verdict},
    translate::{Seen, attributes, directories, files, names, whole, xattrs},
};

/// A request's memory: the message as it came, and places for its answer: for a short one beside the message, for a long one over it.
pub(crate) trait Frame: Send {
    /// `None` when what came is not even a header.
    fn header(&self) -> Option<InHeader>;
    /// The message that has this header, and the place of a short answer.
    fn parts(&mut self, header: InHeader) -> Option<(Message<'_>, Short<'_>)>;
    /// Where a long answer's body goes; overwrites the message.
    fn long(&mut self) -> &mut [u8];
}

/// What is to be sent back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub unique: u64,
    /// The answer's body in the frame, or a negative answer.
    pub outcome: Result<Body, Errno>,
}

/// The file system with what was settled for its mount.
#[derive(Debug)]
pub(crate) struct Service<F> {
    pub fs: Arc<F>,
    pub dialect: Dialect,
    pub authority: Authority,
    /// The kernel checks nothing, as only this user is let in. He may act for others, whom nobody has checked (setfsuid(2), by which
    /// NFS servers do): such requests are refused.
    pub only: Option<u32>,
    pub notifier: Arc<Notifier>,
    pub resent: Resent,
    pub interrupts: Arc<Interrupts>,
    pub forgets: Arc<Forgets>,
    pub pool: Arc<Pool>,
    /// See [`crate::MountOptions::over_network`].
    pub over_network: bool,
}

impl<F: FileSystem> Service<F> {
    /// Serves the request in `frame`; `None` when there is nobody to answer.
    pub async fn serve<B: Frame>(&self, frame: &mut B) -> Option<Answer> {
        let header = frame.header()?;
        if self.over_network && !request::is_unanswered(header.opcode) {
            // On a worker that must not wait for others' sake, nothing is begun.
            blocking().await;
        }
        let replied = {
            // Where it is made it stays: it has room for the largest operation, and copying that would be a tenth of the smallest.
            let reply = pin!(self.reply(&header, frame));
            unpanicked(reply).await
        };
        let outcome = match replied {
            Ok(Reply::None) => return None,
            Ok(Reply::Placed(body)) => Ok(body),
            Ok(Reply::Bytes(bytes)) => reply::put(&bytes, frame.long()).map(Body::Long),
            Err(errno) => Err(errno),
        };
        if request::is_unanswered(header.opcode) {
            return None;
        }
        Some(Answer { unique: header.unique, outcome })
    }

    async fn reply<B: Frame>(&self, header: &InHeader, frame: &mut B) -> Result<Reply, Errno> {
        let Some((message, mut short)) = frame.parts(*header) else { return Ok(Reply::None) };
        let group = message.supplementary_group();
        let ctx = self.context(header, group.as_slice());
        let mut operation = request::parse(&message, self.dialect)?;
        if self.only.is_some_and(|only| only != header.uid) && takes_rights(&operation) {
            return Err(Errno(libc::EACCES));
        }
        let look = match operation {
            Operation::Read(of) => return files::read(&*self.fs, subject(header)?, of, frame.long()).await,
            Operation::Readdir(of) => {
                return directories::readdir(&*self.fs, &ctx, subject(header)?, of, frame.long()).await;
            }
            Operation::Fsync { .. } | Operation::Fsyncdir | Operation::Syncfs => {
                let sync = self.sync(subject(header)?, &operation);
                let synced = self.interrupts.unless_killed(header.unique, header.pid, sync, &self.pool).await;
                return Ok(synced?.lay_out(&mut short));
            }
            Operation::Getattr { handle } => Look::Attributes(subject(header)?, handle),
            Operation::Statx { handle } => Look::Statx(subject(header)?, handle),
            Operation::Statfs => subject(header).map(|_| Look::Space)?,
            _ if resent::is_again(header) => {
                return self.operate_again(&ctx, header, &mut operation, &mut short).await;
            }
            _ => return self.operate(&ctx, header, &operation, &mut short).await,
        };
        Ok(self.look(header, look).await?.lay_out(&mut short))
    }

    fn forget(&self, ino: InodeId, count: u64) {
        if self.fs.forget(ino, count) {
            self.forgets.leave(ino, &self.fs, &self.pool);
        }
    }

    /// What borrows nothing from its request, so that it can be left.
    fn sync(&self, ino: InodeId, operation: &Operation<'_>) -> Leavable {
        let fs = self.fs.clone();
        match *operation {
            Operation::Fsync { handle, data_only } => {
                Box::pin(async move { unpanicked(pin!(files::fsync(&*fs, ino, handle, data_only))).await })
            }
            Operation::Fsyncdir => {
                Box::pin(async move { unpanicked(pin!(directories::fsyncdir(&*fs, ino))).await })
            }
            _ => Box::pin(async move { unpanicked(pin!(whole::syncfs(&*fs))).await }),
        }
    }

    /// Mostly it is answered at once. Where it would have to wait it is dropped, as it has done nothing but look, and looks
    /// anew in the pool, where it can be left: on the way that nearly all take nothing is allocated.
    async fn look(&self, header: &InHeader, look: Look) -> Result<Seen, Errno> {
        if let Poll::Ready(outcome) = at_once(|| {
            let looking = pin!(look.at(&*self.fs));
            looking.poll(&mut std::task::Context::from_waker(Waker::noop()))
        }) {
            return outcome;
        }
        let fs = self.fs.clone();
        let again = Box::pin(async move { unpanicked(pin!(look.at(&*fs))).await });
        self.interrupts.unless_killed(header.unique, header.pid, again, &self.pool).await
    }

    /// The outcome of a request that a process before this one may have served already.
    async fn operate_again(
        &self,
        ctx: &Context<'_>,
        header: &InHeader,
        operation: &mut Operation<'_>,
        short: &mut Short<'_>,
    ) -> Result<Reply, Errno> {
        let doubt = Doubt::of(operation);
        if doubt == Doubt::Swapped || self.resent == Resent::Refused {
            let parent = subject(header)?;
            resent::names(operation, parent).for_each(|(parent, name)| self.notifier.entry(parent, name));
            return Err(resent::UNKNOWN);
        }
        let outcome = self.operate(ctx, header, operation, short).await;
        match doubt.judge(outcome) {
            Verdict::Is(outcome) => outcome,
            Verdict::Made(name) => {
                names::lookup(&*self.fs, ctx, subject(header)?, LookupOf::Name(name), short).await
            }
        }
    }

    fn context<'a>(&self, header: &InHeader, groups: &'a [u32]) -> Context<'a> {
        let credentials = Credentials { uid: header.uid, gid: header.gid, groups, authority: self.authority };
        Context { credentials, pid: header.pid }
    }

    /// One line an operation: the verbs are in `translate/`.
    async fn operate(
        &self,
        ctx: &Context<'_>,
        header: &InHeader,
        operation: &Operation<'_>,
        short: &mut Short<'_>,
    ) -> Result<Reply, Errno> {
        use Operation as Op;
        let fs = &*self.fs;
        match operation {
            Op::Nothing => return Ok(Reply::None),
            Op::Interrupt { unique } => {
                self.interrupts.tell(*unique);
                return Ok(Reply::None);
            }
            Op::Destroy => return Ok(Reply::DONE),
            Op::BatchForget(list) => {
                list.iter().for_each(|(ino, count)| self.forget(ino, count));
                return Ok(Reply::None);
            }
            _ => {}
        }
        let ino = subject(header)?;
        match *operation {
            Op::Forget { count } => {
                self.forget(ino, count);
                Ok(Reply::None)
            }
            Op::Lookup(of) => names::lookup(fs, ctx, ino, of, short).await,
            Op::Make { name, new } => names::make(fs, ctx, ino, name, new, short).await,
            Op::Link { ino: linked, name } => names::link(fs, ctx, linked, ino, name, short).await,
            Op::Unlink(name) => names::unlink(fs, ctx, ino, name).await,
            Op::Rmdir(name) => names::rmdir(fs, ctx, ino, name).await,
            Op::Rename { from, to_parent, to, mode } => {
                names::rename(fs, ctx, (ino, from), (to_parent, to), mode).await
            }
            Op::Readlink => names::readlink(fs, ino).await,
            Op::Setattr { handle, ref change } => {
                attributes::setattr(fs, ctx, ino, handle, change, short).await
            }
            Op::Access { mask } => attributes::access(fs, ctx, ino, mask).await,
            Op::Getxattr { name, room } => xattrs::get(fs, ctx, ino, name, room, short).await,
            Op::Listxattr { room } => xattrs::list(fs, ctx, ino, room, short).await,
            Op::Setxattr { name, value, mode, kill_set_gid } => {
                xattrs::set(fs, ctx, ino, name, value, mode, kill_set_gid).await
            }
            Op::Removexattr(name) => xattrs::remove(fs, ctx, ino, name).await,
            Op::Opendir(flags) => directories::opendir(fs, ctx, ino, flags, short).await,
            Op::Releasedir(handle) => directories::releasedir(fs, ino, handle).await,
            _ => files::operate(fs, ctx, ino, operation, short).await,
        }
    }
}

/// What changes nothing and brings nothing but an answer ([`FileSystem::getattr`], [`FileSystem::statfs`]).
#[derive(Clone, Copy, Debug)]
enum Look {
    Attributes(InodeId, Option<HandleId>),
    Statx(InodeId, Option<HandleId>),
    Space,
}

impl Look {
    async fn at<F: FileSystem>(self, fs: &F) -> Result<Seen, Errno> {
        match self {
            Self::Attributes(ino, handle) => attributes::getattr(fs, ino, handle).await,
            Self::Statx(ino, handle) => attributes::statx(fs, ino, handle).await,
            Self::Space => whole::statfs(fs).await,
        }
    }
}

/// Answers EIO for an operation that panics: whoever asked must not wait for ever.
pub(crate) async fn unpanicked<T>(
    mut operation: Pin<&mut impl Future<Output = Result<T, Errno>>>,
) -> Result<T, Errno> {
    poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| operation.as_mut().poll(cx))).unwrap_or_else(|_| {
            tracing::error!("an operation has panicked");
            Poll::Ready(Err(Errno(libc::EIO)))
        })
    })
    .await
}

/// Whether it takes rights that whoever has the file open may lack: others are about what was opened with all that it takes, end
/// something, or only look.
fn takes_rights(operation: &Operation<'_>) -> bool {
    use Operation as Op;
    match operation {
        Op::Lookup(_)
        | Op::Readlink
        | Op::Make { .. }
        | Op::Unlink(_)
        | Op::Rmdir(_)
        | Op::Rename { .. }
        | Op::Link { .. }
        | Op::Open(_)
        | Op::Create { .. }
        | Op::Tmpfile { .. }
        | Op::Setxattr { .. }
        | Op::Removexattr(_)
        | Op::Opendir(_)
        | Op::Access { .. } => true,
        Op::Setattr { handle, .. } => handle.is_none(),
        // Asked for by the kernel itself before a write.
        Op::Getxattr { name, .. } => !name.as_bytes().starts_with(b"security."),
        Op::Forget { .. }
        | Op::BatchForget(_)
        | Op::Getattr { .. }
        | Op::Statx { .. }
        | Op::Read(_)
        | Op::Write { .. }
        | Op::Statfs
        | Op::Release(_)
        | Op::Flush(_)
        | Op::Fsync { .. }
        | Op::Fsyncdir
        | Op::Listxattr { .. }
        | Op::Readdir(_)
        | Op::Releasedir(_)
        | Op::Fallocate { .. }
        | Op::Lseek { .. }
        | Op::CopyRange { .. }
        | Op::Syncfs
        | Op::Destroy
        | Op::Interrupt { .. }
        | Op::Nothing => false,
    }
}

/// The inode that the request is about.
fn subject(header: &InHeader) -> Result<InodeId, Errno> {
    request::inode(header.nodeid)
}

#[cfg(test)]
mod tests;
