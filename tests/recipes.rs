//! What `examples/recipes.md` and README.md show to be typed is run, and what it prints compared.

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

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

/// Sections of README.md whose indented lines are commands, in an order in which they work.
const SECTIONS: [&str; 3] = ["When a disk is broken", "A log for scripts", "How a record is found"];

/// Ends with the code of the first line that went wrong. A mount is waited for, and one that the
/// page leaves mounted is ended; nothing is opened on a desktop.
const BEFORE: &str = "\
    xdg-open() { grep -q '<html' \"$1\"; }
    at=$PWD/at
    leave() { if mountpoint -q \"$at\"; then offsetfs umount \"$at\"; fi; }
    trap leave EXIT
";

#[test]
fn the_command_lines_of_the_readme_run() {
    needs_fuse!();
    for tool in ["mountpoint", "fusermount3", "timeout"] {
        needs_tool!(tool);
    }
    let page = fs::read_to_string(root().join("README.md")).expect("README.md");
    for title in SECTIONS {
        let section = page.split("\n## ").find(|part| part.starts_with(title));
        let lines: Vec<&str> = section
            .unwrap_or_else(|| panic!("README.md: no section {title:?}"))
            .lines()
            .filter_map(|line| line.strip_prefix("    "))
            .collect();
        assert!(lines.len() >= 3, "{title}: {lines:?}");
        run_section(title, &lines);
    }
}

/// Runs commands in a new directory, in which the directories that they name are made.
fn run_section(title: &str, lines: &[&str]) {
    let home = scratch();
    let work = home.path().join("work");
    fs::create_dir(&work).expect("a new directory");
    fs::write(work.join("lines"), "third\nfourth\n").expect("a file of lines");
    let torn = fixture("torn").join("data/mixed-0");
    let sound = fixture("exact").join("data/seed-0");
    let places = [("/mnt/dead-broker", &torn), ("/mnt/copy", &torn), ("/var/lib/kafka", &sound)];
    let mut script = BEFORE.to_owned();
    if lines.iter().any(|line| line.starts_with("offsetfs mount /mnt")) {
        fs::create_dir(work.join("at")).expect("a mountpoint");
    }
    for line in lines {
        script += &step(line);
    }
    for (place, partition) in places {
        let own = home.path().join(place.trim_start_matches('/').replace('/', "-"));
        fs::create_dir(&own).expect("a new directory");
        copy(partition, own.join("orders-0"));
        script = script.replace(place, &own.display().to_string());
    }
    // A mount that is still there holds what the script has as standard output.
    let (stdout, stderr) = (home.path().join("stdout"), home.path().join("stderr"));
    let _guard = Unmounted(work.join("at"));
    let status = shell(&script)
        .current_dir(&work)
        .env("XDG_CACHE_HOME", home.path().join("cache"))
        .stdout(fs::File::create(&stdout).expect("a new file"))
        .stderr(fs::File::create(&stderr).expect("a new file"))
        .status()
        .expect("timeout starts");
    let [stdout, stderr] = [stdout, stderr].map(|file| fs::read(file).expect("what it printed"));
    let done = Output { status, stdout, stderr };
    assert!(done.status.success(), "{title}\n{script}\n{}", told(&done));
}

/// A line of the page as a script: without its remark, and with what must hold after it.
fn step(line: &str) -> String {
    let command = line.split("   ").next().unwrap_or_default().trim_end();
    let background = command.ends_with('&');
    if background && command.contains("offsetfs mount") {
        return format!("{command}\nuntil mountpoint -q at; do sleep 0.05; done\n");
    }
    if background {
        return format!("{command}\nfollower=$!\nsleep 0.3\nkill $follower\n");
    }
    if line.contains("exit code 3") {
        return format!("code=0; {command} || code=$?; [ $code = 3 ]\n");
    }
    format!("{command}\n")
}

/// Takes a mount away when a test ends, however it ends.
struct Unmounted(std::path::PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        mount::detach(&self.0);
    }
}
