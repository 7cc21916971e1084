//! The short session in README.md is what `examples/tour.sh` prints, to the byte.

mod support;

use std::path::Path;
use std::process::Command;

use support::{OFFSETFS, told};

#[test]
fn the_readme_shows_what_the_tour_prints() {
    needs_fuse!();
    for tool in ["jq", "getfattr", "mountpoint", "fusermount3"] {
        needs_tool!(tool);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let done = Command::new("timeout")
        .args(["-k", "5", "120"])
        .arg(root.join("examples/tour.sh"))
        .env("OFFSETFS", OFFSETFS)
        .output()
        .expect("the tour starts");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("README.md");
    let session = readme.split("```console\n").nth(1).and_then(|rest| rest.split("```").next());
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{}", told(&done));
    assert_eq!(printed, session.expect("a session"), "{}", told(&done));
}
