//! What the kernel makes of system calls before a file system sees them.

const PAGE_BYTES: usize = 4096;

/// Where the first of two requests ends that the kernel makes of a write from `begin` to `end`: of one that begins within a page which it
/// does not have and goes beyond it, at the page's end (`fuse_fill_write_pages`). What ends the server may come between the two.
pub fn first_request_end(begin: usize, end: usize) -> Option<usize> {
    let page_end = begin.next_multiple_of(PAGE_BYTES);
    (begin < page_end && page_end < end).then_some(page_end)
}
