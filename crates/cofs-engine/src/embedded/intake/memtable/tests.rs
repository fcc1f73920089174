use super::*;

#[test]
fn any_number_of_versions_of_a_key_is_let_go_of() {
    let older = |older, commit| Some(Box::new(Version { commit, value: None, older }));
    drop((0..300_000).fold(None, older));
}

#[test]
fn an_entry_is_as_large_as_a_cache_line() {
    assert_eq!(size_of::<Rank>() + size_of::<Version>(), 64);
}

#[test]
fn as_many_keys_are_expected_as_there_were_and_some_more() {
    let most = keys_max(16 << 20);
    let expected = |before| keys_expected(16 << 20, before);
    assert_eq!(most, 262_144);
    assert_eq!([0, 12_000, 26_000].map(expected), [most / 8; 3]);
    assert_eq!([40_000, 80_000].map(expected), [50_000, 100_000]);
    assert_eq!([most - 1, most, usize::MAX].map(expected), [most; 3]);
    assert_eq!(keys_expected(0, 5), 0);
}

#[test]
fn what_comes_and_goes_in_a_memtable_is_not_visited() {
    let memtable = Memtable::of_segment(0, KeyShape::default());
    memtable.replay(vec![(Key::from_slice(b"replayed"), Some(Bytes::from_static(b"1")))]);
    // What a batch says that a key was before is of the time before all of its changes.
    memtable.apply(&[Change::delete(b"made again"), Change::put(b"old", &b"1"[..])]);
    for key in ["born", "back", "lives", "made again", "twice"] {
        memtable.apply(&[Change::insert(key, &b"1"[..])]);
    }
    memtable.apply(&[Change::put(b"lives", &b"2"[..]), Change::put(b"born", &b"2"[..])]);
    for key in ["born", "back", "made again", "old", "replayed", "twice"] {
        memtable.apply(&[Change::delete(key)]);
    }
    memtable.apply(&[Change::insert("back", &b"3"[..]), Change::insert("twice", &b"3"[..])]);
    memtable.apply(&[Change::delete("twice")]);
    let mut visited = Vec::new();
    let see = |key: &[u8], value: Option<&[u8]>| {
        visited.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        Ok::<(), ()>(())
    };
    memtable.visit(see).unwrap();
    let pair = |key: &str, value: Option<&[u8]>| (key.as_bytes().to_vec(), value.map(<[u8]>::to_vec));
    let expected = [
        pair("back", Some(b"3")),
        pair("lives", Some(b"2")),
        pair("made again", None),
        pair("old", None),
        pair("replayed", None),
    ];
    assert_eq!(visited, expected);
    let get = |key: &str| memtable.get(KeyHash::of(key.as_bytes()), &Rank::of(key.as_bytes()));
    assert_eq!(get("born"), Some(None), "whoever asks here is told");
}

fn put(memtable: &Memtable, key: &str, value: &str) {
    memtable.apply(&[Change::put(key, Bytes::copy_from_slice(value.as_bytes()))]);
}

fn all(mut cursor: Cursor) -> Vec<(String, Option<String>)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut pairs = Vec::new();
    while let Some((key, value)) = cursor.peek() {
        pairs.push((text(key), value.as_ref().map(|value| text(value))));
        cursor.advance();
    }
    pairs
}

fn cursor(memtable: &Arc<Memtable>) -> Cursor {
    Cursor::new(Arc::clone(memtable), b"", b"~")
}

#[test]
fn a_cursor_sees_the_state_in_which_it_was_made() {
    let memtable = Arc::new(Memtable::of_segment(0, KeyShape::default()));
    put(&memtable, "a", "1");
    put(&memtable, "b", "1");
    let first = cursor(&memtable);
    put(&memtable, "a", "2");
    memtable.apply(&[Change::delete(b"b"), Change::put(b"b", &b"2"[..])]);
    put(&memtable, "c", "2");
    let second = cursor(&memtable);
    memtable.apply(&[Change::delete(b"a")]);
    put(&memtable, "b", "3");
    let pairs = |of: &[(&str, &str)]| {
        of.iter().map(|(key, value)| (key.to_string(), Some(value.to_string()))).collect::<Vec<_>>()
    };
    assert_eq!(all(first), pairs(&[("a", "1"), ("b", "1")]));
    assert_eq!(all(second), pairs(&[("a", "2"), ("b", "2"), ("c", "2")]));
    put(&memtable, "b", "4");
    let table = memtable.table.read();
    let newest = table.versions.get(KeyHash::of(b"b"), &Rank::of(b"b")).unwrap();
    assert!(newest.older.is_none(), "nobody looks any more");
    let get = |key: &[u8]| memtable.get(KeyHash::of(key), &Rank::of(key));
    assert_eq!((get(b"a"), get(b"z")), (Some(None), None));
}

#[test]
fn a_cursor_waits_for_nobody_who_only_reads() {
    let memtable = Arc::new(Memtable::of_segment(0, KeyShape::default()));
    put(&memtable, "a", "1");
    // As the drain holds it.
    let drained = memtable.table.read();
    let other = Arc::clone(&memtable);
    let pairs = std::thread::spawn(move || all(cursor(&other)));
    let from = std::time::Instant::now();
    while !pairs.is_finished() && from.elapsed().as_secs() < 60 {
        std::thread::yield_now();
    }
    assert!(pairs.is_finished(), "a cursor waits for the drain");
    drop(drained);
    assert_eq!(pairs.join().unwrap().len(), 1);
}

/// Several put the same keys in order, while new ones come.
#[test]
fn a_scan_misses_nothing_that_was_there_when_it_began() {
    const KEYS: usize = 20_000;
    // In no order, and each once.
    let key = |number: usize| format!("{:05}", number * 7919 % KEYS);
    for _ in 0..20 {
        let memtable = Arc::new(Memtable::of_segment(0, KeyShape::default()));
        let there = AtomicUsize::new(0);
        let scan = || {
            while there.load(Ordering::Acquire) < KEYS {
                let at_least = there.load(Ordering::Acquire);
                let found = all(cursor(&memtable));
                assert!(found.is_sorted_by(|(a, _), (b, _)| a < b));
                assert!(found.len() >= at_least, "{} of {at_least}", found.len());
            }
        };
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(scan)));
            for number in 0..KEYS {
                put(&memtable, &key(number), "v");
                there.store(number + 1, Ordering::Release);
            }
        });
        assert_eq!((all(cursor(&memtable)).len(), memtable.keys()), (KEYS, KEYS));
    }
}

#[test]
fn a_long_range_comes_in_parts() {
    let memtable = Arc::new(Memtable::of_segment(0, KeyShape::default()));
    for number in 0..5000 {
        put(&memtable, &format!("{number:05}"), "v");
    }
    let mut cursor = cursor(&memtable);
    for number in 0..5000 {
        assert_eq!(cursor.peek().unwrap().0.as_slice(), format!("{number:05}").as_bytes());
        cursor.advance();
        memtable.apply(&[Change::delete(format!("{:05}", number + 1))]);
    }
    assert!(cursor.peek().is_none());
}

#[test]
fn large_values_come_a_few_at_a_time() {
    const VALUES: usize = 400;
    let memtable = Arc::new(Memtable::of_segment(0, KeyShape::default()));
    let value = |number: usize| vec![number as u8; 4096];
    for number in 0..VALUES {
        memtable.apply(&[Change::put(format!("{number:05}").as_bytes(), value(number))]);
    }
    let mut cursor = cursor(&memtable);
    for number in 0..VALUES {
        let (key, bytes) = cursor.peek().cloned().unwrap();
        assert_eq!(
            (key.as_slice(), bytes.as_deref()),
            (format!("{number:05}").as_bytes(), Some(&value(number)[..]))
        );
        let ahead: usize = cursor.ahead.iter().map(|(_, value)| value.as_ref().map_or(0, Bytes::len)).sum();
        assert!(ahead <= Cursor::CHUNK_BYTES, "{ahead} bytes");
        cursor.advance();
    }
    assert_eq!(cursor.peek(), None);
}
