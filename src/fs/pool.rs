//! A few threads for work that may take long, so that the thread which takes requests never waits.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

/// Something to do.
type Work = Box<dyn FnOnce() + Send>;

/// The threads. They end when the pool is dropped and nothing is left to do.
#[derive(Debug)]
pub struct Pool {
    work: Sender<Work>,
}

impl Pool {
    /// A pool of `threads` threads.
    pub fn new(threads: usize) -> Pool {
        let (work, todo) = mpsc::channel();
        let todo = Arc::new(Mutex::new(todo));
        for number in 0..threads {
            let todo = Arc::clone(&todo);
            let named = std::thread::Builder::new().name(format!("offsetfs-pool-{number}"));
            if let Err(e) = named.spawn(move || serve(&todo)) {
                log::warn!("cannot start a thread: {e}");
            }
        }
        Pool { work }
    }

    /// Does `work` on one of the threads, or at once when there is none.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        if let Err(refused) = self.work.send(Box::new(work)) {
            (refused.0)();
        }
    }
}

fn serve(todo: &Mutex<Receiver<Work>>) {
    loop {
        let next = todo.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(work) => work(),
            Err(mpsc::RecvError) => return,
        }
    }
}
