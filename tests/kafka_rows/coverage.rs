//! Holds the quotes of Kafka's tests, in all tests of the project, against KAFKA_BEHAVIOURS.md.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// How many rows there are.
const ROWS_COUNT: usize = 160;

/// A row of the list.
struct Row {
    /// Kafka's test, class and method.
    kafka_test: String,
    /// Why no test of ours quotes it, or not all of it; empty where one does.
    reason: String,
}

/// A number, and the words behind it in a doc comment.
struct Quote {
    file: String,
    row: usize,
    words: String,
}

#[test]
fn the_list_has_every_row_once() {
    let (rows, count) = rows();
    let numbers: Vec<usize> = rows.keys().copied().collect();
    assert_eq!((numbers, count), ((1..=ROWS_COUNT).collect(), ROWS_COUNT));
    let nameless: Vec<usize> = rows
        .iter()
        .filter(|(_, row)| row.kafka_test.split('.').filter(|part| !part.is_empty()).count() != 2)
        .map(|(number, _)| *number)
        .collect();
    assert_eq!(nameless, [0; 0], "Class.method");
}

#[test]
fn every_row_is_replayed_or_has_a_reason() {
    let quotes = quotes();
    let is_quoted = |row: usize| quotes.iter().any(|quote| quote.row == row);
    let open: Vec<usize> = rows()
        .0
        .into_iter()
        .filter(|(number, row)| !is_quoted(*number) && row.reason.split(' ').count() < 4)
        .map(|(number, _)| number)
        .collect();
    assert_eq!(open, [0; 0], "no test quotes these rows, and no reason is given");
}

#[test]
fn every_quote_names_the_test_of_its_row() {
    let (rows, _) = rows();
    let names = |quote: &Quote, (class, method): (&str, &str)| {
        let behind = quote.words.strip_prefix(&format!("(`{class}"));
        // The two are apart where they would not fit in a line.
        let method_behind = |behind: &str| {
            [".", "`: `"].iter().any(|between| behind.starts_with(&format!("{between}{method}`")))
        };
        behind.is_some_and(method_behind)
    };
    let is_wrong = |quote: &&Quote| {
        let kafka_test = rows.get(&quote.row).map_or("", |row| &row.kafka_test);
        !kafka_test.split_once('.').is_some_and(|parts| names(quote, parts))
    };
    let quotes = quotes();
    assert!(quotes.len() > 100, "the quotes are read: {}", quotes.len());
    let wrong: Vec<String> = quotes
        .iter()
        .filter(is_wrong)
        .map(|quote| {
            let begin: String = quote.words.chars().take(60).collect();
            format!("{}: row {} {begin}", quote.file, quote.row)
        })
        .collect();
    assert_eq!(wrong, [""; 0]);
}

/// The lines of the list by number, and how many there are.
fn rows() -> (BTreeMap<usize, Row>, usize) {
    let page = fs::read_to_string(root().join("tests/KAFKA_BEHAVIOURS.md")).expect("the list");
    let mut rows = BTreeMap::new();
    let mut count = 0;
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", number, name, reason, ""] = cells[..] else { continue };
        let Ok(number) = number.parse() else { continue };
        let row = Row { kafka_test: name.replace('`', ""), reason: reason.to_owned() };
        rows.insert(number, row);
        count += 1;
    }
    (rows, count)
}

/// What the comments of all sources quote.
fn quotes() -> Vec<Quote> {
    let mut found = Vec::new();
    for directory in ["src", "tests"] {
        for path in rust_files(&root().join(directory)) {
            let text = fs::read_to_string(&path).expect("UTF-8");
            let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix("///"));
            let comments: Vec<&str> = comments.flat_map(str::split_whitespace).collect();
            for rest in comments.join(" ").split("kafka-behaviours row ").skip(1) {
                let (number, words) = rest.split_once(' ').expect("a number and a name");
                let row = number.parse().unwrap_or_else(|e| panic!("{number}: {e}"));
                let file = path.display().to_string();
                found.push(Quote { file, row, words: words.to_owned() });
            }
        }
    }
    found
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
