//! What a driver says, and how long it may be believed.

use std::time::Duration;

/// A value with its validity: `Duration::MAX` where nobody else can change it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<T> {
    pub value: T,
    pub valid_for: Duration,
}

impl<T> Answer<T> {
    /// An answer that holds until this process changes it itself.
    pub const fn forever(value: T) -> Self {
        Self { value, valid_for: Duration::MAX }
    }

    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        Answer { value: change(self.value), valid_for: self.valid_for }
    }
}
