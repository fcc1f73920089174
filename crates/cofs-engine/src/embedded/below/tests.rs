use std::{
    cell::Cell,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    super::options::{Budget, rocksdb_options},
    *,
};
use crate::Change;

const KEYS: KeyShape = KeyShape {
    family_bytes: 1,
    number: |key| match key {
        [b'n', number @ ..] => number.first_chunk().map(|number| u64::from_be_bytes(*number)),
        _ => None,
    },
    whole: |_| true,
    scanned: |_| 1,
};

fn key(family: u8, number: u64) -> Vec<u8> {
    [&[family][..], &number.to_be_bytes()].concat()
}

fn memtable(keys: impl IntoIterator<Item = (u8, u64)>, value_bytes: usize) -> Memtable {
    let memtable = Memtable::of_segment(1 << 20, KEYS);
    for (family, number) in keys {
        memtable.apply(&[Change::put(key(family, number), vec![0; value_bytes])]);
    }
    memtable
}

/// As a segment that follows all others of this process.
fn take(below: &mut Below, memtable: &Memtable, short: bool) -> Result<(), EngineError> {
    static GENERATION: AtomicU64 = AtomicU64::new(1);
    let generation = GENERATION.fetch_add(1, Ordering::Relaxed);
    below.take(&Drained { generation, memtable, sync: &|| Ok(()) }, short)
}

/// The cuts of a memtable with values of 100 KiB at these keys, but for the first key's: there a table begins anyway.
fn cuts_of(keys: impl IntoIterator<Item = (u8, u64)>) -> Vec<Vec<u8>> {
    let memtable = memtable(keys, 100 << 10);
    let mut first = None;
    let see = |key: &[u8], _: Option<&[u8]>| {
        first.get_or_insert_with(|| key.to_vec());
        Ok::<(), ()>(())
    };
    memtable.visit(see).unwrap();
    let cuts = cuts(&memtable, KEYS).unwrap().into_iter().map(|cut| cut.first.to_vec());
    cuts.filter(|cut| Some(cut) != first.as_ref()).collect()
}

#[test]
fn large_values_have_tables_that_are_not_compressed() {
    let large = |memtable: &Memtable| -> Vec<bool> {
        cuts(memtable, KEYS).unwrap().iter().map(|cut| cut.large_values).collect()
    };
    let keys = [(b'a', 0..1), (b'n', 0..2000), (b'x', 0..1)];
    let keys = keys.into_iter().flat_map(|(family, numbers)| numbers.map(move |number| (family, number)));
    assert_eq!(large(&memtable(keys.clone(), 1100)), [true, false], "the neighbours' are");
    assert_eq!(large(&memtable(keys, 800)), [false, false], "small values");
    let sequences = (0..1000).chain(2000..3000).map(|number| (b'n', number));
    assert_eq!(large(&memtable(sequences, 4096)), [true, true]);
}

#[test]
fn a_large_family_has_a_table_of_its_own() {
    let keys = [(b'a', 0..3), (b'b', 0..20), (b'c', 0..2), (b'd', 0..2)];
    let keys = keys.into_iter().flat_map(|(family, numbers)| numbers.map(move |number| (family, number)));
    assert_eq!(cuts_of(keys), [key(b'b', 0), key(b'c', 0)]);
}

#[test]
fn sequences_of_numbers_have_tables_of_their_own_where_they_are_large() {
    let runs = [0..15, 100..115, 200..202, 300..303, 400..415];
    let cuts = cuts_of(runs.into_iter().flatten().map(|number| (b'n', number)));
    assert_eq!(cuts, [key(b'n', 100), key(b'n', 200), key(b'n', 400)], "two small ones share theirs");
    // What follows with higher numbers must not lie under the range of a neighbour's table.
    let tail = (0..15).chain(100..102).map(|number| (b'n', number)).chain([(b'x', 0)]);
    assert_eq!(cuts_of(tail), [key(b'n', 100), key(b'x', 0)]);
    let gaps = (0..15).chain(100..115).map(|number| (b'x', number));
    assert!(cuts_of(gaps).is_empty(), "a family without numbers has no gaps");
}

#[test]
fn what_is_small_is_one_table() {
    assert!(cuts_of((0..40).map(|number| (b'n', number * 1000))).is_empty());
    assert!(cuts_of([]).is_empty());
}

/// A RocksDB without compaction: what goes here, goes by the removals alone.
fn below(directory: &Path) -> Below {
    below_with(|_| Arc::default(), directory)
}

fn below_with(background: impl FnOnce(&mut Options) -> Arc<Background>, directory: &Path) -> Below {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    let background = background(&mut options);
    let inherited = InheritedLogs::of(directory).unwrap();
    let db = Arc::new(DB::open(&options, directory).unwrap());
    Below::new((db, background, Arc::new(Records::new(0, 0, KEYS))), directory, options, KEYS, inherited)
}

fn removals(numbers: impl IntoIterator<Item = u64>) -> Memtable {
    let memtable = Memtable::of_segment(1 << 20, KEYS);
    numbers.into_iter().for_each(|number| memtable.apply(&[Change::delete(key(b'n', number))]));
    memtable
}

fn ranges(below: &Below) -> Vec<(Vec<u8>, Vec<u8>)> {
    below.tables().unwrap().into_iter().map(|table| (table.first, table.last)).collect()
}

#[test]
fn tables_whose_keys_are_all_removed_go_and_so_do_their_removals() {
    let directory = tempfile::tempdir().unwrap();
    let mut below = below(directory.path());
    let sequences = (1000..1300).chain(2000..2300).chain(3000..3300);
    take(&mut below, &memtable(sequences.map(|number| (b'n', number)), 4096), false).unwrap();
    assert_eq!(below.tables().unwrap().len(), 3);
    // All of the first, all but one of the second; and two that came and went.
    take(&mut below, &removals(900..1300), false).unwrap();
    take(&mut below, &removals(2000..2299), false).unwrap();
    take(&mut below, &removals(5000..5002), false).unwrap();
    let (second, third) = ((key(b'n', 2000), key(b'n', 2299)), (key(b'n', 3000), key(b'n', 3299)));
    let removed = (key(b'n', 2000), key(b'n', 2298));
    let mut left = ranges(&below);
    left.sort();
    assert_eq!(left, [removed, second, third]);
    let there = |number: u64| below.db.get(key(b'n', number)).unwrap().is_some();
    assert_eq!([1000, 1299, 2000, 2298, 2299, 3000].map(there), [false, false, false, false, true, true]);
}

#[test]
fn tables_go_only_when_their_removals_are_on_stable_storage() {
    let directory = tempfile::tempdir().unwrap();
    let mut below = below(directory.path());
    take(&mut below, &memtable((1000..1300).map(|number| (b'n', number)), 4096), false).unwrap();
    let before = ranges(&below);
    let syncs = Cell::new(0);
    let mut remove = |numbers: Range<u64>, works: bool| {
        let sync = || {
            syncs.set(syncs.get() + 1);
            if works { Ok(()) } else { Err(from_errno("syncing", Errno::IO)) }
        };
        let drained = Drained { generation: 1 << 32, memtable: &removals(numbers), sync: &sync };
        let taken = below.take(&drained, false);
        (taken.is_ok(), syncs.take(), ranges(&below) == before)
    };
    assert_eq!(remove(1000..1300, false), (false, 1, true), "nothing changes");
    assert_eq!(remove(1000..1010, false), (true, 0, false), "no table goes");
    assert_eq!(remove(1000..1300, true), (true, 1, false));
}

#[test]
fn the_newest_mark_counts_and_those_before_it_go() {
    let directory = tempfile::tempdir().unwrap();
    let mut below = below(directory.path());
    assert_eq!(drained_through(&below.db).unwrap(), 0);
    let marks =
        |below: &Below| below.db.live_files().unwrap().iter().filter(|file| marks::is_table(file)).count();
    for generation in (1..20).map(|nth| nth * 300) {
        let empty = removals([]);
        below.take(&Drained { generation, memtable: &empty, sync: &|| Ok(()) }, false).unwrap();
        assert_eq!(drained_through(&below.db).unwrap(), generation);
        assert_eq!(marks(&below), 1);
    }
    assert!(below.tables().unwrap().is_empty(), "they are no tables of keys");
}

#[test]
fn a_table_begins_where_one_below_does() {
    let cut = |number, large_values| Cut { first: Key::from_slice(&key(b'n', number)), large_values };
    let table = |first, last| Table { first: key(b'n', first), last: key(b'n', last), level: 6, bytes: 1 };
    let mut cuts = vec![cut(100, true), cut(300, false)];
    cut_between(&mut cuts, &[table(50, 70), table(100, 150), table(200, 340), table(350, 360)]);
    let [large, small] = [true, false];
    let wanted = [(50, small), (100, large), (100, large), (200, large), (300, small), (350, small)];
    assert_eq!(cuts, wanted.map(|(number, large_values)| cut(number, large_values)));
}

#[test]
fn a_small_table_does_not_lie_over_much_that_is_none_of_its_business() {
    let directory = tempfile::tempdir().unwrap();
    let mut below = below(directory.path());
    let sequences = (0..8).flat_map(|sequence| sequence * 1000..sequence * 1000 + 300);
    take(&mut below, &memtable(sequences.map(|number| (b'n', number)), 4096), false).unwrap();
    assert_eq!(below.tables().unwrap().len(), 8);
    // Something is removed of the first two, and something new comes behind the last.
    let small = removals([5, 7, 1005]);
    (9000..9010).for_each(|number| small.apply(&[Change::put(key(b'n', number), vec![0; 4096])]));
    take(&mut below, &small, false).unwrap();
    let mut young: Vec<_> =
        below.tables().unwrap().into_iter().filter(|table| table.bytes < 1 << 20).collect();
    young.sort();
    let numbers = |key: &[u8]| (KEYS.number)(key).unwrap();
    let young: Vec<_> = young.iter().map(|table| (numbers(&table.first), numbers(&table.last))).collect();
    assert_eq!(young, [(5, 1005), (9000, 9009)]);
    // Where there are many gaps the largest count.
    take(&mut below, &removals((0..8).map(|sequence| sequence * 1000 + 150)), false).unwrap();
    let many = below.tables().unwrap().into_iter().filter(|table| numbers(&table.first) % 1000 == 150);
    assert_eq!(many.count(), 1, "nothing but what they are in lies between these");
    take(&mut below, &removals([1, 2001, 4001, 6001, 9001]), false).unwrap();
    let between = below.tables().unwrap().into_iter().filter(|table| numbers(&table.first) % 1000 == 1);
    assert_eq!(between.count(), 5);
}

/// Three tables, of each of which something is removed while space is short: most of the second, least of the first.
fn three_with_removals(directory: &Path) -> Below {
    let mut below = below_with(Background::of, directory);
    let sequences = (1000..1300).chain(2000..2300).chain(3000..3300);
    take(&mut below, &memtable(sequences.map(|number| (b'n', number)), 4096), false).unwrap();
    take(&mut below, &removals((1000..1010).chain(2000..2100).chain(3000..3050)), true).unwrap();
    assert_eq!(begins(&below), [1000, 1000, 2000, 2000, 3000, 3000]);
    below
}

/// The first numbers of all tables.
fn begins(below: &Below) -> Vec<u64> {
    let mut begins: Vec<_> = ranges(below).iter().filter_map(|(first, _)| (KEYS.number)(first)).collect();
    begins.sort_unstable();
    begins
}

#[test]
fn where_most_was_removed_is_merged_first_and_in_rounds() {
    let directory = tempfile::tempdir().unwrap();
    let mut below = three_with_removals(directory.path());
    for wanted in [&[1000, 1000, 2100, 3000, 3000][..], &[1000, 1000, 2100, 3050], &[1010, 2100, 3050]] {
        assert!(below.has_room_to_make(Instant::now()));
        below.make_room(1).unwrap();
        assert_eq!(begins(&below), wanted);
    }
    assert!(!below.has_room_to_make(Instant::now()));
    let there = |number: u64| below.db.get(key(b'n', number)).unwrap().is_some();
    assert_eq!([1009, 1010, 2099, 2100, 3049, 3050].map(there), [false, true, false, true, false, true]);
}

#[test]
fn what_there_was_no_room_for_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut below = three_with_removals(directory.path());
    // Of which nobody can tell how much is free.
    below.directory = directory.path().join("none");
    below.make_room(u64::MAX).unwrap();
    assert_eq!(begins(&below), [1000, 1000, 2000, 2000, 3000, 3000]);
    assert!(!below.has_room_to_make(Instant::now()), "there is no use in it just now");
    below.directory = directory.path().into();
    take(&mut below, &memtable([(b'x', 0)], 1), false).unwrap();
    assert!(below.has_room_to_make(Instant::now()));
    below.make_room(u64::MAX).unwrap();
    assert_eq!(begins(&below), [1010, 2100, 3050]);
    assert!(!below.has_room_to_make(Instant::now() + PUT_OFF_MAX), "nothing is left");
}

/// Takes the names of the tables that RocksDB would make next, by what it returns: what makes one fails.
fn obstruct(directory: &Path) -> Vec<PathBuf> {
    obstruct_names(directory, |number| format!("{number:06}.sst"))
}

fn obstruct_names(directory: &Path, name: impl Fn(u64) -> String) -> Vec<PathBuf> {
    let number = |file: std::io::Result<std::fs::DirEntry>| {
        let name = file.unwrap().file_name().into_string().unwrap();
        name.split(|char: char| !char.is_ascii_digit()).filter_map(|digits| digits.parse::<u64>().ok()).max()
    };
    let last = std::fs::read_dir(directory).unwrap().filter_map(number).max().unwrap();
    let obstacles: Vec<_> = (last + 1..last + 20).map(|number| directory.join(name(number))).collect();
    obstacles.iter().for_each(|obstacle| std::fs::create_dir(obstacle).unwrap());
    obstacles
}

#[test]
fn a_merge_that_fails_is_put_off_with_all_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut below = three_with_removals(directory.path());
    obstruct(directory.path());
    below.make_room(u64::MAX).unwrap();
    assert_eq!(begins(&below), [1000, 1000, 2000, 2000, 3000, 3000]);
    assert!(!below.has_room_to_make(Instant::now()) && below.put_off.ranges.len() == 3);
    assert_eq!(below.failures(), 1, "the others were not tried");
}

/// As where compaction takes all the room beside it, and gives it back: nobody commits any more, as nothing that grows is taken.
#[test]
fn a_merge_that_failed_is_tried_again_though_nothing_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let mut below = three_with_removals(directory.path());
    let obstacles = obstruct(directory.path());
    below.make_room(u64::MAX).unwrap();
    assert!(!below.has_room_to_make(Instant::now()) && !below.by_itself);
    obstacles.iter().for_each(|obstacle| std::fs::remove_dir(obstacle).unwrap());
    assert!(below.has_room_to_make(Instant::now() + PUT_OFF));
    below.make_room(u64::MAX).unwrap();
    assert!(below.by_itself);
    assert_eq!(begins(&below), [1010, 2100, 3050]);
}

/// Else nobody would make them fewer: there is no pause while something waits to be taken.
#[test]
fn where_merging_what_was_removed_fails_and_young_tables_are_many_rocksdb_compacts_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut below = three_with_removals(directory.path());
    let obstacles = obstruct(directory.path());
    below.make_room(u64::MAX).unwrap();
    assert!(!below.is_behind().unwrap() && !below.by_itself);
    obstacles.iter().for_each(|obstacle| std::fs::remove_dir(obstacle).unwrap());
    let number = |below: &Below| below.number(&properties::num_files_at_level(0));
    while number(&below) < YOUNG_TABLES_MAX {
        take(&mut below, &removals([1020, 3290]), true).unwrap();
    }
    // All of it waits again, with what was taken: that is done first.
    assert!(below.is_behind().unwrap() && !below.by_itself && below.has_room_to_make(Instant::now()));
    obstruct(directory.path());
    below.make_room(u64::MAX).unwrap();
    assert!(
        number(&below) >= YOUNG_TABLES_MAX && !below.has_room_to_make(Instant::now()) && !below.by_itself
    );
    assert!(below.is_behind().is_err() && below.by_itself);
}

/// As on a full file system.
#[test]
fn that_rocksdb_does_not_compact_holds_although_it_can_write_that_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let mut below = below(directory.path());
    obstruct_names(directory.path(), |number| format!("OPTIONS-{number:06}.dbtmp"));
    let refused = below.db.set_options(&[("disable_auto_compactions", "true")]).unwrap_err();
    assert!(refused.as_ref().contains(NOT_PERSISTED), "{refused}");
    for by_itself in [false, true] {
        below.let_compact(by_itself);
        assert_eq!(below.by_itself, by_itself);
    }
    // What is no option is none.
    let wrong = below.db.set_options(&[("disable_auto_compaction", "true")]).unwrap_err();
    assert!(!wrong.as_ref().contains(NOT_PERSISTED), "{wrong}");
}

#[test]
fn what_fails_again_and_again_is_put_off_for_longer_and_longer() {
    let mut put_off = PutOff::default();
    let now = Instant::now();
    let mut waits = |got_on| {
        put_off.ranges.push(Removed { first: Key::new(), last: Key::new(), removals: 1 });
        put_off.wait(now, got_on);
        (1..=80).find(|&seconds| put_off.is_due(now + Duration::from_secs(seconds)))
    };
    assert_eq!([false; 8].map(&mut waits), [2, 4, 8, 16, 32, 64, 64, 64].map(Some));
    assert_eq!([true, true, false].map(&mut waits), [2, 2, 4].map(Some), "something was merged");
    put_off.ranges.clear();
    assert!(!put_off.is_due(now + PUT_OFF_MAX));
}

/// With the options that stores have.
fn below_as_used(directory: &Path) -> Below {
    let (mut options, _cache) = rocksdb_options(&Budget::of(32 << 20), 0);
    options.create_if_missing(true);
    let background = Background::of(&mut options);
    let db = Arc::new(DB::open(&options, directory).unwrap());
    let inherited = InheritedLogs::of(directory).unwrap();
    let records = Arc::new(Records::new(0, 0, KEYS));
    Below::new((db, background, records), directory, options, KEYS, inherited)
}

fn wait_for_compaction(below: &Below) {
    // What is pending may not begin where it is not let.
    let is_busy = || {
        below.number(properties::NUM_RUNNING_COMPACTIONS) > 0
            || below.by_itself && below.number(properties::COMPACTION_PENDING) > 0
    };
    while is_busy() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// They are enough young tables for compaction to begin by itself, which would make one of them.
#[test]
fn removals_that_wait_to_be_merged_stay_where_each_of_them_is() {
    const TABLES: u64 = 20;
    let directory = tempfile::tempdir().unwrap();
    let mut below = below_as_used(directory.path());
    let numbers = |of_each: std::ops::Range<u64>| {
        (0..TABLES).flat_map(move |table| of_each.clone().map(move |number| table * 1000 + number))
    };
    take(&mut below, &memtable(numbers(0..300).map(|number| (b'n', number)), 4096), false).unwrap();
    take(&mut below, &removals([999]), true).unwrap();
    assert!(below.by_itself, "nobody has it");
    take(&mut below, &removals(numbers(0..2)), true).unwrap();
    wait_for_compaction(&below);
    let each = |first: u64| (0..TABLES).map(move |table| table * 1000 + first);
    let twice: Vec<u64> = each(0).flat_map(|first| [first, first]).collect();
    assert_eq!(begins(&below), twice);
    // What else is taken meanwhile changes nothing of it.
    take(&mut below, &memtable([(b'x', 0)], 1), true).unwrap();
    wait_for_compaction(&below);
    assert_eq!(begins(&below), twice);
    while below.has_room_to_make(Instant::now()) {
        assert!(!below.by_itself);
        below.make_room(1).unwrap();
    }
    assert_eq!(begins(&below), each(2).collect::<Vec<_>>());
    assert!(below.by_itself);
    let overlapping = || memtable([(b'n', 0), (b'n', TABLES * 1000)], 1);
    (0..15).for_each(|_| take(&mut below, &overlapping(), false).unwrap());
    wait_for_compaction(&below);
    assert!(below.number(&properties::num_files_at_level(0)) < 12, "it compacts again");
}

/// Of the young tables two groups do not meet: the scattered keys', and those of sequences that overlap from one table to the next.
#[test]
fn each_group_of_young_tables_has_its_turn() {
    const ROUNDS: u64 = 48;
    let directory = tempfile::tempdir().unwrap();
    let mut below = below_as_used(directory.path());
    for round in 0..ROUNDS {
        let scattered = (0..300).map(|number| (b'x', number * 1000 + round));
        let overlapping = (0..300).map(|number| (b'n', (round * 200 + number) * 2));
        take(&mut below, &memtable(scattered.chain(overlapping), 4096), false).unwrap();
        wait_for_compaction(&below);
    }
    let told = below.db.property_value("rocksdb.cfstats-no-file-histogram").unwrap().unwrap();
    let word = |line: &str, at_end| -> u64 {
        let line = told.lines().find(|told| told.trim().starts_with(line)).unwrap();
        line.split_whitespace().nth_back(at_end).unwrap().trim_end_matches(',').parse().unwrap()
    };
    // Comp(cnt) of the threads that compact, and the last word, interval, of the tables that were young.
    let (compactions, young) = (word("Low ", 5), word("AddFile(L0 Files)", 0));
    assert!(young > ROUNDS && compactions * 7 <= young, "{compactions} compactions of {young} young tables");
}

#[test]
fn compaction_that_fails_and_is_behind_is_an_error_until_it_has_caught_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut below = below(directory.path());
    while !below.is_behind().unwrap() {
        // Each in the range of all others: one level takes one of them, and the uppermost the rest.
        take(&mut below, &memtable([(b'x', 0), (b'x', 1)], 1), false).unwrap();
    }
    obstruct(directory.path());
    below.db.compact_range::<&[u8], &[u8]>(None, None);
    let mut errno = || below.is_behind().unwrap_err().errno;
    assert_eq!([errno(), errno()], [Some(Errno::IO.raw_os_error()); 2]);
    // Of which nobody can tell how much is free.
    below.directory = directory.path().join("none");
    assert_eq!(below.is_behind().unwrap_err().errno, Some(Errno::NOSPC.raw_os_error()));
}
