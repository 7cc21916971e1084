//! Measuring side by side: what is compared runs interleaved in the same rounds, and what is
//! printed is the median. Sizes shrink with `OFFSETFS_BENCH_SCALE` for a smoke test.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

use std::time::Instant;

/// What a measurement gives, or why it could not be made.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// One side of a comparison: prepares, works, and gives its own figure (seconds or bytes a second).
pub type Work<'a> = Box<dyn FnMut() -> Outcome<f64> + 'a>;

/// The figures of one side, a round each.
#[derive(Clone, Debug)]
pub struct Series(Vec<f64>);

impl Series {
    /// The figure in the middle.
    pub fn median(&self) -> f64 {
        median(self.0.clone())
    }

    /// The median of this side's figure over the other's, round by round.
    pub fn ratio(&self, peer: &Series) -> f64 {
        median(self.0.iter().zip(&peer.0).map(|(ours, theirs)| ours / theirs).collect())
    }

    /// The median of the other side's figure over this one's: how much faster, given seconds.
    pub fn speed_ratio(&self, peer: &Series) -> f64 {
        peer.ratio(self)
    }
}

/// Runs all sides once in each round, in turn. The first failure of a side ends that side only.
pub fn interleave<const SIDES: usize>(
    rounds: usize,
    mut sides: [Work<'_>; SIDES],
) -> [Result<Series, String>; SIDES] {
    let mut figures: [Result<Series, String>; SIDES] =
        std::array::from_fn(|_| Ok(Series(Vec::new())));
    for _ in 0..rounds {
        for (side, so_far) in sides.iter_mut().zip(&mut figures) {
            let Ok(series) = so_far else { continue };
            match side() {
                Ok(figure) => series.0.push(figure),
                Err(error) => *so_far = Err(error.to_string()),
            }
        }
    }
    figures
}

/// Seconds that `work` takes.
pub fn seconds<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Bytes a second that `work`, which returns the bytes it did, reaches.
pub fn bytes_a_second(work: impl FnOnce() -> Outcome<u64>) -> Outcome<f64> {
    let start = Instant::now();
    let bytes = work()?;
    Ok(float(bytes) / start.elapsed().as_secs_f64())
}

/// Is this run by `cargo bench`? Otherwise (`cargo test --all-targets`) says that it is skipped.
pub fn asked_for(name: &str) -> bool {
    let asked = std::env::args().any(|argument| argument == "--bench");
    if !asked {
        eprintln!("{name}: skipped, run it with `cargo bench --bench {name}`");
    }
    asked
}

/// `count` times `OFFSETFS_BENCH_SCALE` (1 when not set), at least `least`.
pub fn scaled(count: u64, least: u64) -> u64 {
    let parts = (scale() * 1_000_000.0).round();
    let millionths: u64 = format!("{parts:.0}").parse().unwrap_or(1_000_000);
    u64::try_from(u128::from(count) * u128::from(millionths) / 1_000_000)
        .unwrap_or(count)
        .max(least)
}

/// Rounds to run: `usual`, or 3 in a smoke test.
pub fn rounds(usual: usize) -> usize {
    if scale() < 0.5 { 3 } else { usual }
}

/// A count as a float, for ratios.
#[expect(clippy::cast_precision_loss, reason = "figures are printed with three digits")]
pub fn float(count: u64) -> f64 {
    count as f64
}

fn scale() -> f64 {
    std::env::var("OFFSETFS_BENCH_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
