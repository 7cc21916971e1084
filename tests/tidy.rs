//! The shape of the sources, held by a test: which room may know which, where unsafe code may be,
//! who may touch the files of SOURCE, and what every file owes its reader.

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, with what each may use (`lib.rs` draws the arrows). A room always knows itself.
const ROOMS: [(&str, &[&str]); 10] = [
    ("units", &["error", "sys"]),
    ("error", &["units", "sys"]),
    ("sys", &["units", "error"]),
    ("format", &["units", "error", "sys"]),
    ("engine", &["units", "error", "sys", "format"]),
    ("view", &["units", "error", "sys", "format", "engine"]),
    ("inspect", &["units", "error", "sys", "format", "engine"]),
    ("fs", &["units", "error", "sys", "format", "engine", "view"]),
    ("cli", &["units", "error", "sys", "format", "engine", "view", "inspect", "fs"]),
    ("main", &["cli"]),
];

/// Where unsafe code may be.
const UNSAFE: [&str; 2] = ["src/sys.rs", "src/engine/mmap.rs"];

/// Who may open files inside the engine, and why.
const OPENS_FILES: [(&str, &str); 5] = [
    ("src/engine/disk.rs", "it is the way to the files of SOURCE"),
    ("src/engine/lock.rs", "a lock belongs to the descriptor that took it"),
    ("src/engine/fixture.rs", "it copies partitions for tests and is built for them only"),
    ("src/engine/extent_store.rs", "marks are kept in the cache directory, outside SOURCE"),
    ("src/engine/mmap.rs", "it maps a file that disk.rs has lent"),
];

/// Words that open, list or change files.
const FILE_WORDS: [&str; 4] = ["std::fs", "File::open", "File::create", "OpenOptions"];

/// Words that are no part of finished code.
const UNFINISHED: [&str; 4] = ["todo!", "dbg!", "unimplemented!", "FIXME"];

/// Words that belong to one machine, spelled so that this file has none of them.
const PLACES: [[&str; 2]; 7] = [
    ["/ro", "ot/"],
    ["/ho", "me/"],
    ["/wo", "rk/"],
    ["/tmp/", "target"],
    ["../sh", "ared"],
    ["artifac", "tory"],
    ["/Us", "ers/"],
];

#[test]
fn no_room_knows_a_room_to_its_right() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let room = room_of(&path);
        if room == "lib" {
            continue;
        }
        let known = ROOMS.iter().find(|(name, _)| *name == room);
        let (_, allowed) = known.unwrap_or_else(|| panic!("{path}: which room is `{room}`?"));
        for used in rooms_used(&code_only(&text)) {
            if used != room && !allowed.contains(&used.as_str()) {
                wrong.push(format!("{path}: {room} knows {used}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0], "see the arrows in lib.rs");
}

#[test]
fn unsafe_code_is_in_two_files_and_argues() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let code = code_only(&text);
        let words = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait"];
        if words.iter().any(|word| code.contains(word)) && !UNSAFE.contains(&path.as_str()) {
            wrong.push(format!("{path}: unsafe code"));
        }
        let blocks = code.matches("unsafe {").count();
        let argued = text.matches("SAFETY:").count();
        if blocks > argued {
            wrong.push(format!("{path}: {blocks} unsafe blocks, {argued} SAFETY sentences"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn files_of_source_are_opened_in_one_place() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let engine_or_left = ["format", "engine", "view", "units"].contains(&room_of(&path));
        let exempt = OPENS_FILES.iter().any(|(file, _)| *file == path);
        for word in FILE_WORDS {
            if engine_or_left && !exempt && without_tests(&code_only(&text)).contains(word) {
                wrong.push(format!("{path}: {word}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0], "the files of SOURCE are reached through engine/disk.rs");
}

#[test]
fn every_module_opens_with_what_it_is_for() {
    let silent = |(path, text): (String, String)| (!text.starts_with("//! ")).then_some(path);
    assert_eq!(
        sources().into_iter().chain(tests()).filter_map(silent).collect::<Vec<_>>(),
        [""; 0]
    );
}

#[test]
fn sources_are_ascii_and_narrow() {
    let mut wrong = Vec::new();
    for (path, text) in sources().into_iter().chain(tests()) {
        for (line, number) in text.lines().zip(1..) {
            // A row of a table in the docs cannot be broken.
            let wide = line.len() > 100 && !line.starts_with("//! |");
            if wide || !line.is_ascii() || line.contains('\t') || line.ends_with(' ') {
                wrong.push(format!("{path}:{number}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn nothing_is_left_unfinished() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        for word in UNFINISHED.iter().filter(|word| text.contains(*word)) {
            wrong.push(format!("{path}: {word}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn no_file_names_a_machine() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for path in files_below(root) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for place in PLACES.map(|parts| parts.concat()) {
            if text.contains(&place) {
                wrong.push(format!("{}: {place}", relative(&path)));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn every_dependency_says_what_it_is_for() {
    let text = fs::read_to_string(in_tree("Cargo.toml")).expect("Cargo.toml");
    let mut in_dependencies = false;
    let mut silent = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies]");
        } else if in_dependencies && line.contains('=') && !line.contains(" # ") {
            silent.push(line.to_string());
        }
    }
    assert_eq!(silent, [""; 0]);
}

#[test]
fn every_exception_names_its_reason() {
    for (path, reason) in OPENS_FILES {
        assert!(path.starts_with("src/engine/") && reason.contains(' '), "{path}: {reason}");
    }
}

/// The room of a file: its directory or its own name below src.
fn room_of(path: &str) -> &str {
    let inner = path.strip_prefix("src/").expect("a source file");
    inner.split(['/', '.']).next().expect("a name")
}

/// The first names after `crate::` and `offsetfs::`, in braces too.
fn rooms_used(code: &str) -> Vec<String> {
    let mut used = Vec::new();
    for start in ["crate::", "offsetfs::"] {
        for rest in code.split(start).skip(1) {
            match rest.strip_prefix('{') {
                Some(list) => used.extend(first_names(list)),
                None => used.extend(name(rest)),
            }
        }
    }
    used
}

/// The first name of each item of a use list, to its closing brace.
fn first_names(list: &str) -> Vec<String> {
    let mut depth = 1;
    let mut names = Vec::new();
    let mut at_start = true;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => at_start = true,
            c if c.is_whitespace() => {}
            _ if at_start => {
                names.extend(name(&list[at..]));
                at_start = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// A module's name at the beginning of `text`; types of the crate's root begin with a capital.
fn name(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    name.chars().next().filter(char::is_ascii_lowercase).map(|_| name)
}

/// Without comments, which may speak of any room.
fn code_only(text: &str) -> String {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.map(|line| line.split(" // ").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// Up to the tests, which stand last in a file and may write scratch files.
fn without_tests(code: &str) -> &str {
    code.split("#[cfg(test)]").next().unwrap_or(code)
}

fn sources() -> Vec<(String, String)> {
    rust_files("src")
}

fn tests() -> Vec<(String, String)> {
    let mut files = rust_files("tests");
    files.extend(rust_files("examples"));
    files
}

fn rust_files(directory: &str) -> Vec<(String, String)> {
    let below = in_tree(directory);
    let files = if below.exists() { files_below(&below) } else { Vec::new() };
    files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| (relative(&path), fs::read_to_string(&path).expect("UTF-8")))
        .collect()
}

/// Files in the repository; what is built, hidden or written by Kafka is left out.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if ["target", ".git", "fixtures"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn relative(path: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
