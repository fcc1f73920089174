//! Memory that direct I/O takes: it begins at a whole page.

const ALIGNMENT: usize = 4096;

pub struct Aligned {
    memory: Vec<u8>,
    begin: usize,
    size: usize,
}

impl Aligned {
    /// `size` bytes, each `fill`.
    pub fn new(size: usize, fill: u8) -> Self {
        let memory = vec![fill; size + ALIGNMENT];
        // The address says how far it is to the next whole page; no pointer is followed.
        let begin = memory.as_ptr().addr().wrapping_neg() % ALIGNMENT;
        Self { memory, begin, size }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.begin..self.begin + self.size).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_page_and_is_as_long_as_asked() {
        for size in [0, 1, 4096, 100_000] {
            let mut aligned = Aligned::new(size, 7);
            let bytes = aligned.bytes();
            assert_eq!((bytes.len(), bytes.as_ptr().addr() % ALIGNMENT), (size, 0));
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
    }
}
