//! Pages that are written back as they were before a write went past them.
//!
//! Who maps a file that another writes past the page cache brings pages of it into the kernel. The kernel drops those of a write *before* it sends it:
//! a page that is brought again before the write is done has the bytes of before it, and if it is changed through a mapping then, it is written
//! back whole. So a write is remembered, with what it replaced, until no such page is left (a recall, carried out); of what is written back
//! meanwhile, the bytes that are as before the write become those of the write, and the others are the mapping's.

use std::borrow::Cow;

use parking_lot::{Mutex, MutexGuard};

/// A write that pages in the kernel may lack.
#[derive(Debug)]
pub(crate) struct Replaced {
    pub(crate) offset: u64,
    /// As long as `after`; what lay behind the end counts as zeros, as a page shows it.
    pub(crate) before: Vec<u8>,
    pub(crate) after: Vec<u8>,
    /// The recall behind it ([`cofs_face::Recall::said`]).
    pub(crate) recall: u64,
}

impl Replaced {
    /// Lays the write over bytes of the file that begin at `offset` and may lack it.
    fn lay_over(&self, offset: u64, page: &mut Cow<'_, [u8]>) {
        let begin = offset.max(self.offset);
        let end = (offset + page.len() as u64).min(self.offset + self.after.len() as u64);
        for at in begin..end {
            let (there, here) = ((at - offset) as usize, (at - self.offset) as usize);
            if page[there] == self.before[here] && self.before[here] != self.after[here] {
                page.to_mut()[there] = self.after[here];
            }
        }
    }
}

/// The writes of one file that pages may lack, in their order. Who holds the lock changes the file's bytes: what it replaces is what was there.
#[derive(Debug, Default)]
pub(crate) struct PageMerge(Mutex<Vec<Replaced>>);

impl PageMerge {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Replaced>> {
        self.0.lock()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// What the file is to have where `page` is written back at `offset`.
pub(crate) fn merged<'a>(writes: &[Replaced], offset: u64, page: &'a [u8]) -> Cow<'a, [u8]> {
    let mut page = Cow::Borrowed(page);
    writes.iter().for_each(|write| write.lay_over(offset, &mut page));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, before: &[u8], after: &[u8]) -> Replaced {
        Replaced { offset, before: before.to_vec(), after: after.to_vec(), recall: 0 }
    }

    #[test]
    fn bytes_as_before_the_write_become_the_writes_and_others_stay() {
        let writes = [write(2, b"cdef", b"CDEF")];
        assert_eq!(*merged(&writes, 0, b"abcdefgh"), *b"abCDEFgh");
        assert_eq!(*merged(&writes, 0, b"abcxefgh"), *b"abCxEFgh", "stored through the mapping");
        assert_eq!(*merged(&writes, 4, b"efgh"), *b"EFgh");
        assert_eq!(*merged(&writes, 0, b"abc"), *b"abC");
        assert!(matches!(merged(&writes, 0, b"abCDEFgh"), Cow::Borrowed(_)), "a page that has it");
        assert!(matches!(merged(&writes, 6, b"gh"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_page_that_lacks_several_writes_gets_them_in_their_order() {
        let writes = [write(0, b"aa", b"bb"), write(1, b"b\0", b"cc")];
        assert_eq!(*merged(&writes, 0, b"aa\0x"), *b"bccx");
        assert_eq!(*merged(&writes, 0, b"bb\0x"), *b"bccx", "brought between the two");
    }
}
