//! Points at which tests can control the order in which threads access the segment.

/// Makes one access to shared memory. In a test that schedules threads, the thread waits here for its turn.
#[cfg(not(test))]
#[inline(always)]
pub(super) fn turn<T>(access: impl FnOnce() -> T) -> T {
    access()
}

#[cfg(test)]
pub(super) use schedule::turn;

/// Runs threads one access at a time, in an order chosen by the test.
#[cfg(test)]
pub(super) mod schedule {
    use std::cell::RefCell;
    use std::sync::{Arc, Condvar, Mutex};
    use std::thread;

    #[derive(Clone, Copy, PartialEq)]
    enum At {
        Work,
        Turn,
        End,
    }

    struct Turns {
        /// The state of each thread, and the thread whose turn it is.
        state: Mutex<(Vec<At>, Option<usize>)>,
        changed: Condvar,
    }

    thread_local! {
        static MINE: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
    }

    pub(crate) fn turn<T>(access: impl FnOnce() -> T) -> T {
        if let Some((turns, me)) = MINE.with_borrow(Clone::clone) {
            let mut state = turns.state.lock().unwrap();
            state.0[me] = At::Turn;
            turns.changed.notify_all();
            state = turns.changed.wait_while(state, |(_, next)| *next != Some(me)).unwrap();
            (state.0[me], state.1) = (At::Work, None);
        }
        access()
    }

    /// Marks the end of a thread on drop, even after a panic.
    struct End(Arc<Turns>, usize);

    impl Drop for End {
        fn drop(&mut self) {
            self.0.state.lock().unwrap().0[self.1] = At::End;
            self.0.changed.notify_all();
        }
    }

    type Task = Box<dyn FnOnce() + Send>;

    /// Runs the tasks, each in a thread; `choose` picks one of the threads that wait for their turn.
    pub(crate) fn run(tasks: Vec<Task>, mut choose: impl FnMut(&[usize]) -> usize) {
        let state = Mutex::new((vec![At::Work; tasks.len()], None));
        let turns = Arc::new(Turns { state, changed: Condvar::new() });
        let begin = |(me, task): (usize, Task)| {
            let turns = Arc::clone(&turns);
            thread::spawn(move || {
                MINE.set(Some((Arc::clone(&turns), me)));
                let _end = End(turns, me);
                task();
            })
        };
        let threads: Vec<_> = tasks.into_iter().enumerate().map(begin).collect();
        loop {
            let state = turns.state.lock().unwrap();
            let busy = |(at, next): &mut (Vec<At>, Option<usize>)| next.is_some() || at.contains(&At::Work);
            let mut state = turns.changed.wait_while(state, busy).unwrap();
            let waiting: Vec<usize> = (0..state.0.len()).filter(|&at| state.0[at] == At::Turn).collect();
            if waiting.is_empty() {
                break;
            }
            state.1 = Some(waiting[choose(&waiting)]);
            turns.changed.notify_all();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    /// Calls `round` once for every possible order. `round` makes one run with the choices that it is given.
    /// Returns the number of orders.
    pub(crate) fn every_order(mut round: impl FnMut(&mut dyn FnMut(&[usize]) -> usize)) -> u32 {
        // For each choice, the option taken and the number of options.
        let mut path: Vec<(usize, usize)> = Vec::new();
        for rounds in 1.. {
            let mut depth = 0;
            round(&mut |waiting| {
                if depth == path.len() {
                    path.push((0, waiting.len()));
                }
                depth += 1;
                path[depth - 1].0
            });
            while path.last().is_some_and(|(taken, of)| taken + 1 == *of) {
                path.pop();
            }
            match path.last_mut() {
                Some((taken, _)) => *taken += 1,
                None => return rounds,
            }
        }
        unreachable!("the rounds end before the numbers do")
    }

    /// Returns choices derived from a seed.
    pub(crate) fn random(seed: u64) -> impl FnMut(&[usize]) -> usize {
        let mut state = seed;
        move |waiting| {
            // Knuth's linear congruential generator, whose high bits are random enough for shuffling.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % waiting.len()
        }
    }
}
