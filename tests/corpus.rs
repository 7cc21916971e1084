//! Every input that the fuzz targets found worth keeping, and the seeds that they begin with, once
//! more: what was mended stays mended.

#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "fuzz/probe.rs"]
mod probe;

use std::fs;
use std::path::Path;

#[test]
fn every_kept_input_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    for (name, probe) in probe::PROBES {
        let mut count = 0;
        for file in fs::read_dir(corpus.join(name)).unwrap().map(Result::unwrap) {
            let path = file.path();
            // Which one it was is seen when a test fails.
            println!("{}", path.display());
            probe(&fs::read(&path).unwrap());
            count += 1;
        }
        assert!(count > 0, "no input for {name}");
    }
}

/// A part of each input is an input, too.
#[test]
fn every_piece_of_a_kept_input_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    for (name, probe) in probe::PROBES {
        for file in fs::read_dir(corpus.join(name)).unwrap().map(Result::unwrap) {
            println!("{}", file.path().display());
            let bytes = fs::read(file.path()).unwrap();
            for end in (0..bytes.len()).step_by(bytes.len() / 7 + 1) {
                probe(&bytes[..end]);
            }
        }
    }
}
