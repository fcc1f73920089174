//! Which run of the machine this is: what tells a crash of a process from one of the machine.

use uuid::Uuid;

/// The kernel's id of this boot (random(4)); the nil id where it cannot be read, which equals nothing.
pub fn boot_id() -> Uuid {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().parse().unwrap_or(Uuid::nil())
}
