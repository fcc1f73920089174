use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const QUICK: Duration = Duration::from_millis(400);

/// Where a beat is written at once, however busy the disks are.
fn quick_store() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn take_as(store: &Path, trust: Trust) -> Done<StoreLock> {
    let path = store.join(FILE_NAME);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    StoreLock::take_trusting(store, &path, file, trust, QUICK)
}

#[test]
fn a_second_taker_is_refused_and_told_who_has_it() {
    let store = tempfile::tempdir().unwrap();
    let held = StoreLock::take(store.path(), Purpose::Change).unwrap();
    let said = StoreLock::take(store.path(), Purpose::Change).unwrap_err().to_string();
    assert!(said.contains(&format!("in use by process {}", std::process::id())), "{said}");
    drop(held);
    StoreLock::take(store.path(), Purpose::Change).unwrap();
}

#[test]
fn what_a_holder_leaves_stays_until_the_next_one() {
    let store = tempfile::tempdir().unwrap();
    let words = || StoreLock::last_words(store.path());
    let mut held = StoreLock::take(store.path(), Purpose::Change).unwrap();
    held.leave_last_words("no space");
    assert_eq!(words(), None);
    drop(held);
    drop(StoreLock::take(store.path(), Purpose::Look).unwrap());
    assert_eq!(words().as_deref(), Some("no space"));
    let mut held = StoreLock::take(store.path(), Purpose::Change).unwrap();
    assert_eq!(words(), None);
    let long = "\u{e4}".repeat(3000);
    held.leave_last_words(&long);
    drop(held);
    assert!(words().is_some_and(|words| long.starts_with(&words) && words.len() == 2 * LAST_WORDS_CHARS_MAX));
    // Who does not know of it takes it for an empty record, as nobody need be waited for.
    assert_eq!(read_record(&store.path().join(FILE_NAME)), None);
    drop(StoreLock::take(store.path(), Purpose::Change).unwrap());
    assert_eq!(words(), None);
}

#[test]
fn a_lock_that_was_removed_keeps_nobody_out_and_is_held_by_nobody() {
    let store = tempfile::tempdir().unwrap();
    let held = StoreLock::take(store.path(), Purpose::Change).unwrap();
    fs::remove_file(store.path().join(FILE_NAME)).unwrap();
    let path = store.path().join(FILE_NAME);
    assert!(!stands_at(&held.file, &path));
    let next = StoreLock::take(store.path(), Purpose::Change).unwrap();
    assert!(stands_at(&next.file, &path));
    next.remove(store.path());
    assert_eq!(fs::read_dir(store.path()).unwrap().count(), 0);
}

#[test]
fn many_may_look_but_not_beside_one_who_changes() {
    let store = tempfile::tempdir().unwrap();
    let take = |purpose| StoreLock::take(store.path(), purpose);
    let held = |purpose| StoreLock::is_held(store.path(), purpose);
    let changing = take(Purpose::Change).unwrap();
    let said = take(Purpose::Look).unwrap_err().to_string();
    assert!(said.contains(&format!("in use by process {}", std::process::id())), "{said}");
    assert!(held(Purpose::Look) && held(Purpose::Change));
    drop(changing);
    let looking = (take(Purpose::Look).unwrap(), take(Purpose::Look).unwrap());
    let said = take(Purpose::Change).unwrap_err().to_string();
    assert!(said.contains("processes that read it") && said.contains("umount"), "{said}");
    assert!(!held(Purpose::Look) && held(Purpose::Change));
    drop(looking);
    assert!(!held(Purpose::Change));
    take(Purpose::Change).unwrap();
}

#[test]
fn who_looks_leaves_the_record_as_it_is() {
    let store = tempfile::tempdir().unwrap();
    let path = store.path().join(FILE_NAME);
    drop(StoreLock::take(store.path(), Purpose::Look).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"", "a store without the file gets one");
    let dead = serde_json::to_vec(&Record::mine()).unwrap();
    fs::write(&path, &dead).unwrap();
    drop(StoreLock::take(store.path(), Purpose::Look).unwrap());
    assert_eq!(fs::read(&path).unwrap(), dead);
}

#[test]
fn a_living_holder_on_another_host_keeps_out_those_who_look() {
    let store = quick_store();
    let path = store.path().join(FILE_NAME);
    let held = take_as(store.path(), Trust::Nowhere).unwrap();
    let look =
        || StoreLock::look_trusting(store.path(), &path, File::open(&path).unwrap(), Trust::Nowhere, QUICK);
    assert!(look().unwrap_err().to_string().contains("in use by"));
    drop(held);
    look().unwrap();
}

#[test]
fn without_flock_the_heartbeat_keeps_others_out() {
    let store = quick_store();
    let held = take_as(store.path(), Trust::Nowhere).unwrap();
    assert!(take_as(store.path(), Trust::Nowhere).is_err());
    drop(held);
    take_as(store.path(), Trust::Nowhere).unwrap();
}

#[test]
fn a_dead_holder_on_another_host_is_succeeded_and_a_living_one_is_not() {
    let store = quick_store();
    let path = store.path().join(FILE_NAME);
    let elsewhere = Record { boot_id: "elsewhere".into(), host: "far".into(), ..Record::mine() };
    fs::write(&path, serde_json::to_vec(&elsewhere).unwrap()).unwrap();
    drop(take_as(store.path(), Trust::ThisHost).unwrap());

    fs::write(&path, serde_json::to_vec(&elsewhere).unwrap()).unwrap();
    let over = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            let next = store.path().join("next");
            for beats in (1..).take_while(|_| !over.load(Ordering::Relaxed)) {
                let record = Record { beats, ..elsewhere.clone() };
                fs::write(&next, serde_json::to_vec(&record).unwrap()).unwrap();
                fs::rename(&next, &path).unwrap();
                std::thread::sleep(QUICK / 8);
            }
        });
        let taken = take_as(store.path(), Trust::ThisHost);
        over.store(true, Ordering::Relaxed);
        taken.unwrap_err().to_string()
    });
    assert!(said.contains("on host far"), "{said}");
}

/// Two hosts that come to a closed store at once both find it free.
#[test]
fn who_is_overtaken_by_another_host_before_he_has_opened_is_refused() {
    const SLOW: Duration = Duration::from_secs(4);
    for trust in [Trust::ThisHost, Trust::Nowhere] {
        let store = quick_store();
        let path = store.path().join(FILE_NAME);
        let file = open_to_write(&path).unwrap();
        let elsewhere = Record { boot_id: "elsewhere".into(), host: "far".into(), ..Record::mine() };
        let said = std::thread::scope(|scope| {
            scope.spawn(|| {
                while read_record(&path).is_none() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                write_record(&OpenOptions::new().write(true).open(&path).unwrap(), &elsewhere).unwrap();
            });
            StoreLock::take_trusting(store.path(), &path, file, trust, SLOW).unwrap_err().to_string()
        });
        assert!(said.contains("in use by process") && said.contains("on host far"), "{trust:?}: {said}");
        assert_eq!(read_record(&path), Some(elsewhere), "{trust:?}: the winner's record stays");
    }
}

#[test]
fn rubbish_in_the_record_is_nobodys() {
    let store = tempfile::tempdir().unwrap();
    fs::write(store.path().join(FILE_NAME), [0xff; 9000]).unwrap();
    StoreLock::take(store.path(), Purpose::Change).unwrap();
}
