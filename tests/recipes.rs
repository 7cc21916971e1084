//! What `examples/recipes.md` and README.md show to be typed is run, and what it prints compared.

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use support::written::writable;
use support::{OFFSETFS, copy, fixture, mount, out, scratch, told};

const TOOLS: [&str; 4] = ["jq", "awk", "rsync", "timeout"];

/// A fenced block: where it begins (line, from 1), its language, its text.
struct Block {
    line: usize,
    language: String,
    text: String,
}

#[test]
fn every_recipe_prints_what_its_page_shows() {
    needs_fuse!();
    for tool in TOOLS {
        needs_tool!(tool);
    }
    let page = root().join("examples/recipes.md");
    let blocks = blocks(&fs::read_to_string(&page).expect("the page"));
    let home = scratch();
    let at = |name: &str| home.path().join(name);
    for name in ["log", "work", "cache"] {
        fs::create_dir(at(name)).expect("a new directory");
    }
    let disk = copy(fixture("torn").join("data"), at("disk"));
    let ours = writable(at("log"));
    let dead = mount(&disk).start();
    let old = mount(fixture("clean").join("data")).start();

    let mut wrong = String::new();
    assert!(blocks.len() >= 20 && blocks.len().is_multiple_of(2), "{} blocks", blocks.len());
    for pair in blocks.chunks(2) {
        let [script, shown] = pair else { panic!("a block without its output") };
        let languages = (script.language.as_str(), shown.language.as_str());
        assert_eq!(languages, ("sh", "output"), "line {}", script.line);
        assert!(!shown.text.is_empty(), "line {}: a recipe shows something", shown.line);
        let done = shell(&script.text)
            .current_dir(at("work"))
            .env("MNT", ours.path())
            .env("DEAD", dead.path())
            .env("OLD", old.path())
            .env("DISK", &disk)
            .env("XDG_CACHE_HOME", at("cache"))
            .output()
            .expect("timeout starts");
        if !done.status.success() || out(&done) != shown.text {
            let line = script.line;
            writeln!(wrong, "line {line}: {}\nshown: {}", told(&done), shown.text).expect("text");
        }
    }
    assert!(wrong.is_empty(), "examples/recipes.md:\n{wrong}");
}

/// bash with the program under test first in PATH, ended after a minute.
fn shell(script: &str) -> Command {
    let program = Path::new(OFFSETFS).parent().expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", "60", "bash", "-euo", "pipefail", "-c", script])
        .env("PATH", format!("{}:{path}", program.display()))
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The fenced blocks of a Markdown page, in order.
fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut inside = false;
    for (line, text) in (1..).zip(page.lines()) {
        match (text.strip_prefix("```"), inside) {
            (Some(language), false) => {
                found.push(Block { line, language: language.into(), text: String::new() });
                inside = true;
            }
            (Some(_), true) => inside = false,
            (None, true) => {
                let block = found.last_mut().expect("a block was begun");
                writeln!(block.text, "{text}").expect("text");
            }
            (None, false) => {}
        }
    }
    found
}
