//! Holds the quotes in the tests against SEMANTICS.md, both ways.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A number and the words that a test quotes.
#[derive(Debug)]
struct Quote {
    /// For the message of a failing test.
    #[expect(dead_code, reason = "shown by Debug")]
    file: String,
    number: String,
    words: String,
}

#[test]
fn every_promise_is_quoted() {
    let quoted: BTreeSet<String> = quotes().into_iter().map(|quote| quote.number).collect();
    let open: Vec<String> =
        promises().into_keys().filter(|number| !quoted.contains(number)).collect();
    assert_eq!(open, [""; 0], "no test quotes these promises");
}

#[test]
fn every_quote_is_in_the_contract() {
    let promises = promises();
    let wrong: Vec<Quote> = quotes()
        .into_iter()
        .filter(|quote| !promises.get(&quote.number).is_some_and(|p| p.contains(&quote.words)))
        .collect();
    assert!(wrong.is_empty(), "not in SEMANTICS.md: {wrong:#?}");
}

#[test]
fn every_semantics_test_quotes_a_promise() {
    let mut silent = Vec::new();
    for (file, text) in test_files() {
        if file.starts_with("semantics/") && file != "semantics/coverage.rs" {
            let tests = text.matches("#[test]").count();
            let quoting = text.split("#[test]").filter(|before| ends_with_quote(before)).count();
            if tests != quoting {
                silent.push(format!("{file}: {tests} tests, {quoting} with a quote"));
            }
        }
    }
    assert_eq!(silent, [""; 0]);
}

/// Does the text end with a doc comment that quotes a promise?
fn ends_with_quote(before: &str) -> bool {
    let doc: Vec<&str> =
        before.lines().rev().take_while(|line| line.trim_start().starts_with("///")).collect();
    let joined: Vec<&str> = doc.into_iter().rev().collect();
    !quotes_in("", &joined.join("\n")).is_empty()
}

fn quotes() -> Vec<Quote> {
    test_files().iter().flat_map(|(file, text)| quotes_in(file, text)).collect()
}

/// `N.M: "words"` in doc comments.
fn quotes_in(file: &str, text: &str) -> Vec<Quote> {
    let docs = text.lines().filter_map(|line| line.trim_start().strip_prefix("///"));
    let text = docs.collect::<Vec<_>>().join("\n");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once(": \"") {
        let number = before.rsplit(' ').next().unwrap_or_default();
        let (words, behind) = after.split_once('"').unwrap_or((after, ""));
        if is_number(number) {
            let (number, words) = (number.to_string(), words.to_string());
            found.push(Quote { file: file.to_string(), number, words });
        }
        rest = behind;
    }
    found
}

/// Paragraphs by number, as one line each; sections 2 and 3 have an opening without one.
fn promises() -> BTreeMap<String, String> {
    let page = fs::read_to_string(root().join("src/fs/SEMANTICS.md")).expect("the contract");
    let mut promises: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut number = None;
    for line in page.lines() {
        let word = line.split(' ').next().unwrap_or_default();
        if let Some(section) = line.strip_prefix("## ") {
            let section = section.split('.').next().unwrap_or_default().to_string();
            number = is_whole(&section).then_some(section);
        } else if is_number(word) && word.contains('.') {
            number = Some(word.to_string());
        }
        if let Some(number) = &number {
            promises.entry(number.clone()).or_default().push(line.to_string());
        }
    }
    let one_line =
        |lines: Vec<String>| lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut promises: BTreeMap<String, String> =
        promises.into_iter().map(|(number, lines)| (number, one_line(lines))).collect();
    // The others open with their title only; section 7 with the list of commands.
    promises.retain(|number, _| number.contains('.') || ["2", "3"].contains(&number.as_str()));
    assert!(promises.len() > 40, "the contract is read: {:?}", promises.keys());
    promises
}

fn is_number(word: &str) -> bool {
    let (section, paragraph) = word.split_once('.').unwrap_or((word, "0"));
    is_whole(section) && is_whole(paragraph)
}

fn is_whole(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

/// All Rust files of the tests: name below tests/, contents.
fn test_files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for directory in ["", "semantics/"] {
        let path = root().join("tests").join(directory);
        for entry in fs::read_dir(path).expect("the tests") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("UTF-8");
                files.push((format!("{directory}{name}"), text));
            }
        }
    }
    files
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
