//! Whose turn it is to write, where a record is written by a call: it may take as long as a network does, and whoever came
//! meanwhile must not pay for it one after the other. So who gets the turn answers all that wait, in the order in which they came.

use std::{
    collections::VecDeque,
    sync::mpsc::{SyncSender, sync_channel},
};

use parking_lot::Mutex;

use crate::{Batch, Change, EngineError, Guard, Outcome};

/// How a commit ended; an error leaves nothing behind.
pub(super) type Answer = Result<Outcome, EngineError>;

/// What a commit wants, on behalf of a thread that waits for the answer.
pub(super) struct Wanted {
    pub(super) guards: Vec<Guard>,
    pub(super) changes: Vec<Change>,
}

/// What a thread that waits is told, once.
enum Word {
    Answer(Answer),
    /// It is its turn.
    Turn,
}

struct Waiting {
    wanted: Wanted,
    tell: SyncSender<Word>,
}

#[derive(Default)]
struct Queue {
    /// Somebody has the turn.
    taken: bool,
    /// The first one stays here until it takes its turn.
    waiting: VecDeque<Waiting>,
}

#[derive(Default)]
pub(super) struct Turns(Mutex<Queue>);

impl Turns {
    /// The answer to `batch`: from `alone` on this thread if nobody has the turn; else from `together`, given all that wait by then, on the thread whose
    /// turn comes next. `together` gives each its answer, in order. If that thread panics, nobody knows what it has written for the others.
    pub(super) fn answer(
        &self,
        batch: &Batch<'_>,
        alone: impl FnOnce() -> Answer,
        together: impl FnOnce(Vec<Wanted>) -> Vec<Answer>,
    ) -> Answer {
        let mut queue = self.0.lock();
        if !queue.taken {
            queue.taken = true;
            drop(queue);
            let _turn = Turn(self);
            return alone();
        }
        let wanted = Wanted { guards: batch.guards.to_vec(), changes: batch.changes.clone() };
        let (tell, told) = sync_channel(1);
        queue.waiting.push_back(Waiting { wanted, tell });
        drop(queue);
        match told.recv() {
            Ok(Word::Answer(answer)) => answer,
            Ok(Word::Turn) => self.answer_all(together).unwrap_or(Ok(Outcome::Unknown)),
            Err(_) => Ok(Outcome::Unknown),
        }
    }

    /// Answers all that wait; gives the first one's answer.
    fn answer_all(&self, together: impl FnOnce(Vec<Wanted>) -> Vec<Answer>) -> Option<Answer> {
        let turn = Turn(self);
        let waiting = std::mem::take(&mut self.0.lock().waiting);
        let (wanted, tell): (Vec<_>, Vec<_>) =
            waiting.into_iter().map(|waiting| (waiting.wanted, waiting.tell)).unzip();
        let mut answers = together(wanted).into_iter();
        // The next one writes while these are told.
        drop(turn);
        let own = answers.next();
        for (tell, answer) in tell.iter().skip(1).zip(answers) {
            // Whoever waits for it is there until he has it.
            let _ = tell.send(Word::Answer(answer));
        }
        own
    }

    /// Who has the turn, and who waits for it.
    #[cfg(test)]
    pub(super) fn callers(&self) -> usize {
        let queue = self.0.lock();
        usize::from(queue.taken) + queue.waiting.len()
    }
}

/// Goes to the next one when it is dropped.
struct Turn<'t>(&'t Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.0.lock();
        queue.taken = queue.waiting.front().is_some_and(|next| next.tell.send(Word::Turn).is_ok());
    }
}
