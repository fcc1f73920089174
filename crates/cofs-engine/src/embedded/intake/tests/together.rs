//! Commits that come while another is written: they become one record, and each is answered.

use super::*;

/// The answers to commits that come one after the other while none can be written: the first one has the turn, the others wait for it.
fn answers(
    intake: &Intake,
    batches: &[Batch<'_>],
    holds: impl Fn(&Guard) -> bool + Sync,
) -> Vec<thread::Result<Answer>> {
    let holds = &holds;
    thread::scope(|scope| {
        let writer = intake.writer.lock();
        let commit = |(number, batch)| {
            let caller = scope.spawn(move || intake.commit(batch, |guard| Ok(holds(guard))));
            let from = Instant::now();
            while intake.turns.callers() <= number {
                assert!(from.elapsed() < Duration::from_secs(60), "{number} does not come");
                thread::yield_now();
            }
            caller
        };
        let callers: Vec<_> = batches.iter().enumerate().map(commit).collect();
        drop(writer);
        callers.into_iter().map(thread::ScopedJoinHandle::join).collect()
    })
}

fn all_committed(answers: Vec<thread::Result<Answer>>) -> bool {
    answers.into_iter().all(|answer| answer.unwrap().unwrap() == Outcome::Committed)
}

fn numbered(number: u8) -> Batch<'static> {
    let put = |key: &[u8]| Change::put(key, vec![number]);
    Batch { changes: vec![put(&[number]), put(b"last")], ..Batch::default() }
}

fn records(intake: &Intake) -> u64 {
    intake.writer.lock().tail.records
}

#[test]
fn commits_that_wait_for_a_call_become_one_record_in_their_order() {
    let world = World::new();
    let intake = world.open_by_calls();
    let batches: Vec<_> = (0..7).map(numbered).collect();
    assert!(all_committed(answers(&intake, &batches, |_| true)));
    assert_eq!(records(&intake), 2, "the first one, and the others");
    drop(intake);
    let intake = world.open();
    assert!((0..7).all(|number| intake.get(&[number]).flatten().as_deref() == Some(&[number])));
    assert_eq!(intake.get(b"last").flatten().as_deref(), Some(&[6][..]));
}

#[test]
fn a_guard_asks_for_what_a_commit_that_waited_before_it_has_changed() {
    let world = World::new();
    let intake = world.open_by_calls();
    let last_is = |value: u8| [Guard { key: b"last".to_vec(), value: Some(vec![value]) }];
    let (one, two) = (last_is(1), last_is(2));
    let guarded = |guards, number| Batch { guards, ..numbered(number) };
    // Of the guarded ones that wait, the first and the third come when what they say is so; an answer without changes is one, too.
    let asks = Batch { guards: &two, ..Batch::default() };
    let batches = [numbered(0), numbered(1), guarded(&one, 2), guarded(&one, 3), guarded(&two, 4), asks];
    let answers = answers(&intake, &batches, |guard| {
        intake.get(&guard.key).flatten().as_deref() == guard.value.as_deref()
    });
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().unwrap()).collect();
    use Outcome::{Committed, GuardFailed};
    assert_eq!(answers, [Committed, Committed, Committed, GuardFailed, Committed, GuardFailed]);
    assert_eq!(records(&intake), 4);
    assert_eq!(intake.get(b"last").flatten().as_deref(), Some(&[4][..]));
    assert_eq!(intake.get(&[3]), None);
}

#[test]
fn commits_that_wait_are_not_one_record_beyond_a_share_of_a_segment() {
    let world = World::new();
    let intake = world.open_by_calls();
    let large = |number: u8| {
        let value = vec![number; SEGMENT_BYTES as usize / 16];
        Batch { changes: vec![Change::put([number], value)], ..Batch::default() }
    };
    let batches: Vec<_> = (0..4).map(large).collect();
    assert!(all_committed(answers(&intake, &batches, |_| true)));
    assert_eq!(records(&intake), 4);
}

#[test]
fn a_failed_write_of_several_is_told_to_each_and_changes_nothing() {
    let world = World::new();
    let intake = world.open_by_calls();
    commit(&intake, 1);
    let layer = world.seal(&intake);
    let batches: Vec<_> = (0..4).map(numbered).collect();
    let refused = answers(&intake, &batches, |_| true).into_iter().map(|answer| answer.unwrap().unwrap_err());
    let told: Vec<_> = refused.map(|error| error.what).collect();
    assert!(told[2..].iter().all(|what| Arc::ptr_eq(what, &told[1])), "one attempt for all: {told:?}");
    assert!(intake.get(b"last").is_none());
    intake.writer.lock().layer = Some(layer);
    assert!(all_committed(answers(&intake, &batches, |_| true)));
    drop(intake);
    assert_eq!(world.open().get(b"last").flatten().as_deref(), Some(&[3][..]));
}

#[test]
fn where_several_do_not_fit_those_that_do_are_written() {
    let world = World::new();
    let intake = world.open_by_calls();
    // There is room for some more, and no other segment: nor will there be.
    let filler = vec![1; SEGMENT_BYTES as usize - 64 - 8 - 8 - 9 - 200];
    change(&intake, &[Change::put([], filler)]).unwrap();
    intake.work.lock().space.failed(from_errno("draining", rustix::io::Errno::IO), false, || None);
    let batches: Vec<_> = (0..9).map(numbered).collect();
    let answers: Vec<_> = answers(&intake, &batches, |_| true).into_iter().map(|a| a.unwrap()).collect();
    let written = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!((2..8).contains(&written), "{answers:?}");
    for (number, answer) in (0..9).zip(&answers) {
        assert_eq!(answer.is_ok(), intake.get(&[number]).is_some(), "{answers:?}");
    }
}

#[test]
fn who_waits_for_one_that_panics_is_told_and_those_behind_go_on() {
    let world = World::new();
    let intake = world.open_by_calls();
    let bad = [Guard { key: b"bad".to_vec(), value: None }];
    let batches = [numbered(0), numbered(1), Batch { guards: &bad, ..numbered(2) }, numbered(3)];
    let answers =
        answers(&intake, &batches, |guard| if guard.key == b"bad" { panic!("as wanted") } else { true });
    let unknown = |answer: &thread::Result<Answer>| matches!(answer, Ok(Ok(Outcome::Unknown)));
    assert!(matches!(answers[..2], [Ok(Ok(Outcome::Committed)), Err(_)]), "{answers:?}");
    assert!(answers[2..].iter().all(unknown), "{answers:?}");
    change(&intake, &numbered(4).changes).unwrap();
    assert_eq!(intake.turns.callers(), 0);
}
