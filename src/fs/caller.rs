//! Who asks: whether a caller that waits for us has a signal pending. fuser does not pass on the
//! kernel's INTERRUPT, so that without this a waiting program could not even be killed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::engine::scanner::Interrupted;

/// How often the pending signals are looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// Says whether the thread `thread` has a signal pending that it neither blocks nor ignores
/// (proc(5), `/proc/pid/status`). 0 stands for one that cannot be seen from here; it is waited out.
pub fn interrupted(thread: u32) -> Interrupted {
    let began = Instant::now();
    let looked = AtomicU64::new(0);
    Interrupted::when(move || {
        let now = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last = looked.load(Ordering::Relaxed);
        if thread == 0 || now < last + u64::try_from(INTERVAL.as_millis()).unwrap_or(0) {
            return false;
        }
        looked.store(now, Ordering::Relaxed);
        std::fs::read_to_string(format!("/proc/{thread}/status"))
            .is_ok_and(|text| is_pending(&text))
    })
}

fn is_pending(status: &str) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
    };
    let pending = mask("SigPnd:") | mask("ShdPnd:");
    pending & !(mask("SigBlk:") | mask("SigIgn:")) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_counts_unless_it_is_blocked_or_ignored() {
        let status = |pending, blocked, ignored| {
            let pending = format!("SigPnd:\t{pending}\nShdPnd:\t0000000000000000\n");
            format!("Name:\tx\n{pending}SigBlk:\t{blocked}\nSigIgn:\t{ignored}\n")
        };
        assert!(is_pending(&status("0000000000000002", "0000000000000000", "0000000000000000")));
        assert!(!is_pending(&status("0000000000000002", "0000000000000002", "0000000000000000")));
        assert!(!is_pending(&status("0000000000000002", "0000000000000000", "0000000000000002")));
        assert!(!is_pending(""));
    }

    #[test]
    fn this_thread_goes_on() {
        assert!(!interrupted(std::process::id()).asked());
        assert!(!interrupted(0).asked());
    }
}
